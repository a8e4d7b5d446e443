//! Where a run of a graph stands: the fold of its events.

use super::model::Graph;
use crate::id::JobId;
use crate::store::RunState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// How a node, one instance of it, or a whole run has ended. A run is never skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It went well.
    Succeeded,
    /// It did not.
    Failed,
    /// It was told to stop, or never started because the run was.
    Cancelled,
    /// It was not to be run.
    Skipped,
}

impl Outcome {
    /// Its name, as conditions and people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }
}

impl From<Outcome> for RunState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            // Nothing of it was to be run, and that is no fault.
            Outcome::Succeeded | Outcome::Skipped => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

/// The end of a job, as its run sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What others may read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
}

/// Why a node ended without having run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// A node that it needs ended in a way that it does not accept.
    Need {
        /// That node.
        node: usize,
        /// How it ended.
        outcome: Outcome,
    },
    /// Its condition does not hold.
    Condition,
    /// The run was cancelled, or ran out of time.
    Stopped,
    /// Its matrix has no rows: there is nothing to do, and that is no fault.
    NoRows,
    /// Its matrix cannot be worked out.
    Matrix {
        /// Why.
        message: String,
    },
}

/// What a run has decided, or has learnt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It has begun.
    Begun,
    /// The instances of a node are known.
    Expanded {
        /// The node.
        node: usize,
        /// The rows of its matrix.
        rows: Vec<Map<String, Value>>,
    },
    /// A job was enqueued for an instance of a node.
    Started {
        /// The node.
        node: usize,
        /// Which instance of it.
        instance: usize,
        /// The job.
        job: JobId,
    },
    /// An instance of a node has ended.
    Ended {
        /// The node.
        node: usize,
        /// Which instance of it.
        instance: usize,
        /// How.
        #[serde(flatten)]
        end: End,
    },
    /// A node has ended without a job.
    Settled {
        /// The node.
        node: usize,
        /// How.
        outcome: Outcome,
        /// Why it was not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skip: Option<Skip>,
        /// What others may read.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        outputs: BTreeMap<String, String>,
    },
    /// One instance has failed, and its node gives up the others.
    Stopping {
        /// The node.
        node: usize,
    },
    /// The run was told to stop: nothing more starts.
    Cancelled {
        /// In the words of who said it.
        reason: String,
    },
    /// Its time has run out: nothing more starts.
    TimedOut,
    /// These nodes are to be run once more.
    Rerun {
        /// With all that comes after them.
        nodes: Vec<usize>,
        /// Those of them of which only the rows that did not succeed are run, in ascending order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rows_kept: Vec<usize>,
    },
    /// All nodes have ended.
    Finished {
        /// How the run has.
        result: Outcome,
    },
}

/// One job of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// Its job, once there is one.
    pub job: Option<JobId>,
    /// How it has ended.
    pub outcome: Option<Outcome>,
    /// What went wrong.
    pub error: Option<String>,
}

/// Where a node stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeProgress {
    /// Needs that have not ended.
    pub left: usize,
    /// The rows of its matrix, if it has one and they are known.
    pub rows: Vec<Map<String, Value>>,
    /// Its jobs, once it has started.
    pub instances: Vec<Instance>,
    /// How many of those have a job.
    pub started: usize,
    /// All instances before this one have a job.
    pub(super) next: usize,
    /// Instances that have ended.
    pub ended: usize,
    /// It gives up the instances that have not started.
    pub stopping: bool,
    /// How it has ended.
    pub outcome: Option<Outcome>,
    /// Why it was not run.
    pub skip: Option<Skip>,
    /// What others may read.
    pub outputs: BTreeMap<String, String>,
    /// It or something before it failed, and that counts.
    pub failed_so_far: bool,
    /// How often it was run before.
    pub reruns: u32,
}

impl NodeProgress {
    /// Whether it has been looked at: it runs, or has ended.
    pub fn has_begun(&self) -> bool {
        !self.instances.is_empty() || self.outcome.is_some()
    }

    /// The first instance that has no job.
    pub(super) fn next_instance(&self) -> Option<usize> {
        if self.started >= self.instances.len() {
            return None;
        }
        self.instances.iter().skip(self.next).position(|one| one.job.is_none()).map(|at| self.next + at)
    }

    /// The state before its rows are run again that did not succeed. The others keep their jobs, and the node their outputs.
    fn with_rows_kept(mut self) -> Self {
        for one in self.instances.iter_mut().filter(|one| one.outcome != Some(Outcome::Succeeded)) {
            *one = Instance::default();
        }
        let kept = self.instances.iter().filter(|one| one.outcome.is_some()).count();
        let Self { rows, instances, outputs, reruns, .. } = self;
        Self { rows, instances, outputs, reruns: reruns + 1, started: kept, ended: kept, ..Self::default() }
    }

    /// Instances that have a job and have not ended.
    pub fn running(&self) -> usize {
        self.instances.iter().filter(|one| one.job.is_some() && one.outcome.is_none()).count()
    }
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Its nodes, in the order of the graph.
    pub nodes: Vec<NodeProgress>,
    /// Nodes that have not ended.
    pub left: usize,
    /// It has begun.
    pub begun: bool,
    /// It was told to stop, and why.
    pub cancelled: Option<String>,
    /// Its time has run out.
    pub timed_out: bool,
    /// How it has ended.
    pub result: Option<Outcome>,
    /// Nodes and instances by job.
    pub(super) jobs: HashMap<JobId, (usize, usize)>,
    dependents: Vec<Vec<usize>>,
}

impl Progress {
    /// Of a run that has not begun.
    pub fn new(graph: &Graph) -> Self {
        let nodes = graph.nodes.iter().map(|node| NodeProgress { left: node.needs.len(), ..NodeProgress::default() });
        Self {
            nodes: nodes.collect(),
            left: graph.nodes.len(),
            begun: false,
            cancelled: None,
            timed_out: false,
            result: None,
            jobs: HashMap::new(),
            dependents: graph.dependents(),
        }
    }

    /// Of a run that has come this far.
    pub fn fold<'e>(graph: &Graph, events: impl IntoIterator<Item = &'e Event>) -> Self {
        let mut progress = Self::new(graph);
        for event in events {
            progress.apply(graph, event);
        }
        progress
    }

    /// Nothing more starts.
    pub fn is_stopping(&self) -> bool {
        self.cancelled.is_some() || self.timed_out
    }

    /// The node and the instance that a job belongs to.
    pub fn place_of(&self, job: JobId) -> Option<(usize, usize)> {
        self.jobs.get(&job).copied()
    }

    /// Who needs a node.
    pub fn dependents(&self, node: usize) -> &[usize] {
        self.dependents.get(node).map_or(&[], Vec::as_slice)
    }

    /// Jobs that have not ended.
    pub fn running_jobs(&self) -> impl Iterator<Item = JobId> {
        self.nodes.iter().flat_map(|node| &node.instances).filter(|one| one.outcome.is_none()).filter_map(|one| one.job)
    }

    /// Takes an event in. One that speaks of what is not there is damage, and changes nothing.
    pub fn apply(&mut self, graph: &Graph, event: &Event) {
        match event {
            Event::Begun => self.begun = true,
            Event::Expanded { node, rows } => {
                if let Some(progress) = self.nodes.get_mut(*node) {
                    progress.rows.clone_from(rows);
                    progress.instances = vec![Instance::default(); rows.len()];
                }
            }
            Event::Started { node, instance, job } => self.start(*node, *instance, *job),
            Event::Ended { node, instance, end } => self.end(graph, *node, *instance, end),
            Event::Settled { node, outcome, skip, outputs } => {
                if let Some(progress) = self.nodes.get_mut(*node) {
                    progress.skip.clone_from(skip);
                    progress.outputs.clone_from(outputs);
                    self.done(graph, *node, *outcome);
                }
            }
            Event::Stopping { node } => self.stop_node(graph, *node),
            Event::Cancelled { reason } => {
                self.cancelled = Some(reason.clone());
                self.stop_all(graph);
            }
            Event::TimedOut => {
                self.timed_out = true;
                self.stop_all(graph);
            }
            Event::Rerun { nodes, rows_kept } => self.rerun(graph, nodes, rows_kept),
            Event::Finished { result } => self.result = Some(*result),
        }
    }

    fn start(&mut self, node: usize, instance: usize, job: JobId) {
        let Some(progress) = self.nodes.get_mut(node) else { return };
        if progress.instances.is_empty() {
            progress.instances = vec![Instance::default()];
        }
        if let Some(one) = progress.instances.get_mut(instance) {
            one.job = Some(job);
            progress.started += 1;
            progress.next = instance + 1;
            self.jobs.insert(job, (node, instance));
        }
    }

    fn end(&mut self, graph: &Graph, node: usize, instance: usize, end: &End) {
        let Some(progress) = self.nodes.get_mut(node) else { return };
        let Some(one) = progress.instances.get_mut(instance).filter(|one| one.outcome.is_none()) else { return };
        one.outcome = Some(end.outcome);
        one.error.clone_from(&end.error);
        progress.outputs.extend(end.outputs.clone());
        progress.ended += 1;
        self.done_if_all_ended(graph, node);
    }

    fn done_if_all_ended(&mut self, graph: &Graph, node: usize) {
        let progress = &self.nodes[node];
        if progress.outcome.is_some() || progress.ended < progress.instances.len() || progress.instances.is_empty() {
            return;
        }
        let any = |wanted| progress.instances.iter().any(|one| one.outcome == Some(wanted));
        let outcome = [Outcome::Failed, Outcome::Cancelled].into_iter().find(|&wanted| any(wanted));
        self.done(graph, node, outcome.unwrap_or(Outcome::Succeeded));
    }

    /// A node has ended, and those who need it have one need less.
    fn done(&mut self, graph: &Graph, node: usize, outcome: Outcome) {
        if self.nodes[node].outcome.is_some() {
            return;
        }
        let counts = outcome == Outcome::Failed && !graph.forgives(node);
        let before = graph.nodes[node].needs.iter().any(|need| self.nodes[need.node].failed_so_far);
        let progress = &mut self.nodes[node];
        progress.outcome = Some(outcome);
        progress.failed_so_far = counts || before;
        self.left -= 1;
        for at in 0..self.dependents[node].len() {
            let later = self.dependents[node][at];
            self.nodes[later].left = self.nodes[later].left.saturating_sub(1);
        }
    }

    /// Instances that have no job get none any more.
    fn stop_node(&mut self, graph: &Graph, node: usize) {
        let Some(progress) = self.nodes.get_mut(node) else { return };
        progress.stopping = true;
        for one in progress.instances.iter_mut().filter(|one| one.job.is_none() && one.outcome.is_none()) {
            one.outcome = Some(Outcome::Cancelled);
            progress.ended += 1;
        }
        self.done_if_all_ended(graph, node);
    }

    fn stop_all(&mut self, graph: &Graph) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].instances.is_empty() {
                if self.nodes[node].outcome.is_none() {
                    self.nodes[node].skip = Some(Skip::Stopped);
                    self.done(graph, node, Outcome::Cancelled);
                }
            } else {
                self.stop_node(graph, node);
            }
        }
    }

    /// Puts nodes back to where they were before the run, or before their rows that did not succeed; the others stay as they
    /// ended.
    fn rerun(&mut self, graph: &Graph, nodes: &[usize], rows_kept: &[usize]) {
        for &node in nodes {
            let Some(progress) = self.nodes.get_mut(node) else { continue };
            self.left += usize::from(progress.outcome.is_some());
            let keeps_rows = rows_kept.binary_search(&node).is_ok();
            let is_kept = |one: &Instance| keeps_rows && one.outcome == Some(Outcome::Succeeded);
            for job in progress.instances.iter().filter(|one| !is_kept(one)).filter_map(|one| one.job) {
                self.jobs.remove(&job);
            }
            *progress = match keeps_rows {
                true => std::mem::take(progress).with_rows_kept(),
                false => NodeProgress { reruns: progress.reruns + 1, ..NodeProgress::default() },
            };
        }
        for &node in nodes {
            let Some(needs) = graph.nodes.get(node).map(|node| &node.needs) else { continue };
            self.nodes[node].left = needs.iter().filter(|need| self.nodes[need.node].outcome.is_none()).count();
        }
        (self.cancelled, self.timed_out, self.result) = (None, false, None);
    }

    /// How a run ends in which every node has.
    pub(super) fn verdict(&self, graph: &Graph) -> Outcome {
        let any = |wanted: Outcome| {
            let nodes = self.nodes.iter().enumerate();
            nodes.filter(|(_, node)| node.outcome == Some(wanted)).any(|(at, _)| !graph.forgives(at))
        };
        if self.cancelled.is_some() {
            Outcome::Cancelled
        } else if self.timed_out || any(Outcome::Failed) {
            Outcome::Failed
        } else if any(Outcome::Cancelled) {
            // Somebody cancelled a job of it by hand: it did not do all that it should.
            Outcome::Cancelled
        } else {
            Outcome::Succeeded
        }
    }
}
