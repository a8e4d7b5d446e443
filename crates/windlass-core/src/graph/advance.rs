//! What a run does next.

use super::expr::{Expr, Scope};
use super::model::{Graph, MATRIX_MAX, Source, Work};
use super::progress::{End, Event, Outcome, Progress, Skip};
use super::scope::NodeScope;
use super::template::Template;
use crate::id::JobId;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Something that has happened to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Happened {
    /// One of its jobs has ended.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        end: End,
    },
    /// It is to stop.
    Cancel {
        /// In the words of who says it.
        reason: String,
    },
    /// Its time has run out.
    TimedOut,
    /// Nodes are to be run once more, with all that comes after them.
    Rerun {
        /// The nodes.
        nodes: Vec<usize>,
        /// Rows of a matrix that succeeded are not run again, unless something before the matrix is.
        keep_rows: bool,
    },
}

/// What follows from what has happened. The events are taken into `progress` already. What comes too late, or twice, or from
/// a job that is no part of the run any more, is without consequence.
pub fn advance(
    graph: &Graph,
    progress: &mut Progress,
    inputs: &Value,
    happened: impl IntoIterator<Item = Happened>,
    new_job: &mut dyn FnMut() -> JobId,
) -> Vec<Event> {
    let mut step = Step::new(graph, progress, inputs, Some(new_job));
    if !step.progress.begun {
        step.emit(Event::Begun);
        step.open.extend((0..graph.nodes.len()).filter(|&node| graph.nodes[node].needs.is_empty()));
        step.go_on();
    }
    let mut happened = stops_first(happened.into_iter().collect()).into_iter().peekable();
    while let Some(what) = happened.next() {
        step.take(what);
        if !happened.peek().is_some_and(stops) {
            step.go_on();
        }
    }
    step.finish();
    step.events
}

fn stops(what: &Happened) -> bool {
    matches!(what, Happened::Cancel { .. } | Happened::TimedOut)
}

/// A step that stops a run starts nothing, so that a run of which a start is refused can still be cancelled. What comes before
/// a rerun stays before it.
fn stops_first(mut happened: Vec<Happened>) -> Vec<Happened> {
    for part in happened.split_mut(|what| matches!(what, Happened::Rerun { .. })) {
        part.sort_by_key(|what| !stops(what));
    }
    happened
}

/// What a run has left undone whose history may have been cut off half-way: nodes that may start and have not, instances of
/// a matrix, a matrix that gives up, its end.
pub fn resume(
    graph: &Graph,
    progress: &mut Progress,
    inputs: &Value,
    new_job: &mut dyn FnMut() -> JobId,
) -> Vec<Event> {
    let mut step = Step::new(graph, progress, inputs, Some(new_job));
    step.resume();
    step.events
}

/// What follows from the ends of jobs, and from a history that may have been cut off half-way, as long as nothing starts: a node
/// that would start stays as it is, for [`resume`]. So it shows whether a run has already ended.
pub fn settle(
    graph: &Graph,
    progress: &mut Progress,
    inputs: &Value,
    happened: impl IntoIterator<Item = Happened>,
) -> Vec<Event> {
    let mut step = Step::new(graph, progress, inputs, None);
    happened.into_iter().for_each(|what| step.take(what));
    step.resume();
    step.events
}

/// Nodes and all that comes after them, in the order of the graph.
pub fn descendants(progress: &Progress, nodes: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut found = vec![false; progress.nodes.len()];
    let mut open: Vec<usize> = nodes.into_iter().filter(|&node| node < found.len()).collect();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut found[node], true) {
            open.extend(progress.dependents(node));
        }
    }
    found.iter().enumerate().filter_map(|(node, found)| found.then_some(node)).collect()
}

/// The nodes with which a rerun of what failed begins: those that failed or were cancelled, and those that were not run because
/// of it.
pub fn reruns(progress: &Progress) -> Vec<usize> {
    let failed = |node: &usize| matches!(progress.nodes[*node].outcome, Some(Outcome::Failed | Outcome::Cancelled));
    (0..progress.nodes.len()).filter(failed).collect()
}

struct Step<'s> {
    graph: &'s Graph,
    progress: &'s mut Progress,
    inputs: &'s Value,
    /// Makes the ids of jobs; `None` when no job may start.
    new_job: Option<&'s mut dyn FnMut() -> JobId>,
    events: Vec<Event>,
    /// Nodes whose needs have ended.
    open: VecDeque<usize>,
}

impl<'s> Step<'s> {
    fn new(
        graph: &'s Graph,
        progress: &'s mut Progress,
        inputs: &'s Value,
        new_job: Option<&'s mut dyn FnMut() -> JobId>,
    ) -> Self {
        Self { graph, progress, inputs, new_job, events: Vec::new(), open: VecDeque::new() }
    }

    /// What the history has left undone.
    fn resume(&mut self) {
        if !self.progress.begun || self.progress.result.is_some() {
            return;
        }
        for node in 0..self.progress.nodes.len() {
            let progress = &self.progress.nodes[node];
            if progress.left == 0 && !progress.has_begun() {
                self.open.push_back(node);
            } else if progress.outcome.is_none() {
                self.resume_in(node);
            }
        }
        self.go_on();
        self.finish();
    }

    /// Takes an event in and notes it; nodes that it opens are looked at later.
    fn emit(&mut self, event: Event) {
        let node = match &event {
            Event::Ended { node, .. } | Event::Settled { node, .. } | Event::Stopping { node } => Some(*node),
            _ => None,
        };
        let was_done = node.is_none_or(|node| self.progress.nodes[node].outcome.is_some());
        self.progress.apply(self.graph, &event);
        self.events.push(event);
        if let Some(node) = node.filter(|&node| !was_done && self.progress.nodes[node].outcome.is_some()) {
            let ready =
                |&later: &usize| self.progress.nodes[later].left == 0 && !self.progress.nodes[later].has_begun();
            self.open.extend(self.progress.dependents(node).iter().copied().filter(ready));
        }
    }

    /// The run ends when all of its nodes have.
    fn finish(&mut self) {
        if self.progress.left == 0 && self.progress.result.is_none() {
            let result = self.progress.verdict(self.graph);
            self.emit(Event::Finished { result });
        }
    }

    fn take(&mut self, happened: Happened) {
        match happened {
            Happened::JobEnded { job, end } => {
                let Some((node, instance)) = self.progress.place_of(job) else { return };
                if self.progress.nodes[node].instances[instance].outcome.is_some() {
                    return;
                }
                let outcome = end.outcome;
                self.emit(Event::Ended { node, instance, end });
                self.go_on_in(node, outcome);
            }
            Happened::Cancel { reason } if self.progress.result.is_none() && self.progress.cancelled.is_none() => {
                self.emit(Event::Cancelled { reason });
            }
            Happened::TimedOut if self.progress.result.is_none() && !self.progress.is_stopping() => {
                self.emit(Event::TimedOut);
            }
            Happened::Rerun { nodes, keep_rows } if self.progress.result.is_some() => self.rerun(nodes, keep_rows),
            Happened::Cancel { .. } | Happened::TimedOut | Happened::Rerun { .. } => {}
        }
    }

    fn rerun(&mut self, nodes: Vec<usize>, keep_rows: bool) {
        let nodes = descendants(self.progress, nodes);
        if nodes.is_empty() {
            return;
        }
        let rows_kept = if keep_rows { self.keeps_rows(&nodes) } else { Vec::new() };
        self.emit(Event::Rerun { nodes: nodes.clone(), rows_kept });
        self.open.extend(nodes.into_iter().filter(|&node| self.progress.nodes[node].left == 0));
    }

    /// Those of the nodes of a rerun that keep rows: what the others get from the nodes before them may be different this time.
    fn keeps_rows(&self, nodes: &[usize]) -> Vec<usize> {
        let reruns: HashSet<usize> = nodes.iter().copied().collect();
        let has_same_needs = |node: usize| !self.graph.nodes[node].needs.iter().any(|need| reruns.contains(&need.node));
        let has_rows = |node: usize| {
            let instances = &self.progress.nodes[node].instances;
            self.graph.nodes[node].matrix.is_some()
                && instances.iter().any(|one| one.outcome == Some(Outcome::Succeeded))
                && instances.iter().any(|one| one.outcome != Some(Outcome::Succeeded))
        };
        nodes.iter().copied().filter(|&node| has_rows(node) && has_same_needs(node)).collect()
    }

    /// An instance of a node has ended: the others are given up, or the next one starts.
    fn go_on_in(&mut self, node: usize, outcome: Outcome) {
        let Some(matrix) = &self.graph.nodes[node].matrix else { return };
        let progress = &self.progress.nodes[node];
        if progress.outcome.is_some() {
            return;
        }
        if matrix.fail_fast && outcome == Outcome::Failed && !progress.stopping {
            self.emit(Event::Stopping { node });
        } else {
            self.start_instances(node);
        }
    }

    /// What the last end of an instance was to cause, if its decision was cut off behind it.
    fn resume_in(&mut self, node: usize) {
        let failed = self.progress.nodes[node].instances.iter().any(|one| one.outcome == Some(Outcome::Failed));
        self.go_on_in(node, if failed { Outcome::Failed } else { Outcome::Succeeded });
    }

    fn go_on(&mut self) {
        while let Some(node) = self.open.pop_front() {
            let progress = &self.progress.nodes[node];
            if !progress.has_begun() {
                self.decide(node);
            } else if progress.outcome.is_none() {
                // A matrix of which some rows are run again.
                self.start_instances(node);
            }
        }
    }

    /// All needs of a node have ended.
    fn decide(&mut self, node: usize) {
        let scope = NodeScope { graph: self.graph, progress: self.progress, inputs: self.inputs, node, row: None };
        let is_exit = matches!(self.graph.nodes[node].work, Work::Join { .. });
        let shut = scope.shut().map(|(node, outcome)| Skip::Need { node, outcome });
        if shut.is_some() && !is_exit {
            // Nothing in a sub-graph is run that was not entered, whatever it says itself.
            return self.settle(node, Outcome::Skipped, shut);
        }
        let refused = scope.refused();
        let runs = match &self.graph.nodes[node].condition {
            Some(condition) => condition.holds(&scope),
            None => refused.is_none() || is_exit,
        };
        if !runs {
            let asks = self.graph.nodes[node].condition.as_ref().is_some_and(Expr::asks_status);
            let skip = match refused.filter(|_| !asks) {
                Some((node, outcome)) => Skip::Need { node, outcome },
                None => Skip::Condition,
            };
            return self.settle(node, Outcome::Skipped, Some(skip));
        }
        match &self.graph.nodes[node].work {
            Work::Gate { inputs } => {
                // As JSON, so that a number stays one.
                let fill =
                    |(key, value): (&String, &Value)| (key.clone(), Template::fill_all(value, &scope).to_string());
                let outputs = inputs.iter().map(fill).collect();
                self.emit(Event::Settled { node, outcome: Outcome::Succeeded, skip: None, outputs });
            }
            Work::Join { outputs } => {
                let read = |(key, expr): (&String, &Expr)| (key.clone(), super::expr::text(&expr.value(&scope)));
                let outputs = outputs.iter().map(read).collect();
                let outcome = self.joined(node);
                let skip = shut.filter(|_| outcome == Outcome::Skipped);
                self.emit(Event::Settled { node, outcome, skip, outputs });
            }
            Work::Job(_) => self.start(node),
        }
    }

    fn settle(&mut self, node: usize, outcome: Outcome, skip: Option<Skip>) {
        self.emit(Event::Settled { node, outcome, skip, outputs: BTreeMap::new() });
    }

    /// How a sub-graph ends: as the worst of what is in it, and skipped when all of it was.
    fn joined(&self, node: usize) -> Outcome {
        let inside = || self.graph.nodes[node].needs.iter().map(|need| need.node);
        let any = |wanted: Outcome| {
            inside().any(|at| {
                let forgiven = wanted == Outcome::Failed && self.graph.nodes[at].continue_on_error;
                self.progress.nodes[at].outcome == Some(wanted) && !forgiven
            })
        };
        if any(Outcome::Failed) {
            Outcome::Failed
        } else if any(Outcome::Cancelled) {
            Outcome::Cancelled
        } else if inside().all(|at| self.progress.nodes[at].outcome == Some(Outcome::Skipped)) {
            Outcome::Skipped
        } else {
            Outcome::Succeeded
        }
    }

    fn start(&mut self, node: usize) {
        let rows = match &self.graph.nodes[node].matrix {
            None => {
                let Some(job) = self.new_job() else { return };
                return self.emit(Event::Started { node, instance: 0, job });
            }
            Some(matrix) => match &matrix.source {
                Source::Rows(rows) => Ok(rows.clone()),
                Source::From(expr) => {
                    let scope =
                        NodeScope { graph: self.graph, progress: self.progress, inputs: self.inputs, node, row: None };
                    rows_of(expr, &scope)
                }
            },
        };
        match rows {
            Ok(rows) if rows.is_empty() => self.settle(node, Outcome::Succeeded, Some(Skip::NoRows)),
            // An expanded node has begun, and its instances must have jobs.
            Ok(_) if self.new_job.is_none() => {}
            Ok(rows) => {
                self.emit(Event::Expanded { node, rows });
                self.start_instances(node);
            }
            Err(message) => self.settle(node, Outcome::Failed, Some(Skip::Matrix { message })),
        }
    }

    /// The id of the next job; `None` when no job may start.
    fn new_job(&mut self) -> Option<JobId> {
        self.new_job.as_mut().map(|new_job| new_job())
    }

    /// Starts as many instances as may run at once.
    fn start_instances(&mut self, node: usize) {
        let most = self.graph.nodes[node].matrix.as_ref().and_then(|matrix| matrix.parallel_max);
        let most = most.map_or(usize::MAX, |most| most.max(1) as usize);
        if self.progress.nodes[node].stopping {
            return;
        }
        // Instances are started in their order, and end in any.
        while let Some(instance) = self.progress.nodes[node].next_instance() {
            let progress = &self.progress.nodes[node];
            if progress.started - progress.ended.min(progress.started) >= most {
                return;
            }
            let Some(job) = self.new_job() else { return };
            self.emit(Event::Started { node, instance, job });
        }
    }
}

/// How much of a text is told that is no JSON, in characters.
const BEGINNING: usize = 60;

/// The rows that an expression comes to; why not.
pub(super) fn rows_of(expr: &Expr, scope: &dyn Scope) -> Result<Vec<Map<String, Value>>, String> {
    let no_json = |text: &str, error: serde_json::Error| {
        let begins: String = text.chars().take(BEGINNING).collect();
        let more = if begins.len() < text.len() { "…" } else { "" };
        format!("`{}` is no JSON: {error}; it is given `{}{more}`", expr.as_str(), begins.escape_debug())
    };
    let value = match expr.value(scope) {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| no_json(&text, error))?,
        value => value,
    };
    let list = match value {
        Value::Array(list) => list,
        Value::Null => {
            return Err(match expr.no_json(scope) {
                Some((text, error)) => no_json(&text, error),
                None => format!("`{}` is not there", expr.as_str()),
            });
        }
        other => return Err(format!("`{}` is no list: {}", expr.as_str(), kind_of(&other))),
    };
    if list.len() > MATRIX_MAX {
        return Err(format!("`{}` has {} rows, and {MATRIX_MAX} are allowed", expr.as_str(), list.len()));
    }
    let row = |entry| match entry {
        Value::Object(map) => map,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    Ok(list.into_iter().map(row).collect())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}
