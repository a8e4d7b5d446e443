//! Runs as people and programs see them: the state of each node, why it has that state, its jobs, and how long it took.

use crate::error::OperateError;
use crate::text::{printable, rough_duration};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass::Error;
use windlass::core::graph::{Graph, Instance, Node, Outcome, Skip, Work, expr};
use windlass::core::id::{JobId, RunId};
use windlass::core::store::{Run, RunList, RunPage, RunRead, RunState, Store};
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

/// Jobs of one call; they come with their payloads.
const JOBS_PER_CALL: usize = 500;
/// A node with more rows than this is shown by its rows that failed or run, unless all are wanted.
const ROWS_SHOWN: usize = 20;
/// Pages of the store that are read for one page with filters.
pub const PAGES_MAX: u32 = 1_000;

const QUEUED: &str = "queued, nobody has claimed it yet";

/// The state of a node, or of one of its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Not started, or none of its jobs is claimed yet.
    Waiting,
    /// At least one of its jobs was claimed.
    Running,
    /// Ended as succeeded.
    Succeeded,
    /// Ended as failed.
    Failed,
    /// Not run.
    Skipped,
    /// Ended as cancelled.
    Cancelled,
}

impl NodeState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Running, Self::Succeeded, Self::Failed, Self::Skipped, Self::Cancelled];

    /// The name of the state, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<Outcome> for NodeState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Skipped => Self::Skipped,
        }
    }
}

impl From<RunState> for NodeState {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Running => Self::Running,
            RunState::Succeeded => Self::Succeeded,
            RunState::Failed | RunState::TimedOut => Self::Failed,
            RunState::Cancelled | RunState::Terminated => Self::Cancelled,
        }
    }
}

/// What a drawing shows of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSummary {
    /// The state of the node.
    pub state: NodeState,
    /// A short note behind its name: `×3`, `12s`.
    pub note: String,
}

/// The title of a node, where it differs from its id.
pub fn node_title(node: &Node) -> Option<&str> {
    node.title.as_deref().filter(|title| *title != node.id)
}

/// Whether people see a node in lists: those with a job.
pub fn is_shown(graph: &Graph, node: usize) -> bool {
    matches!(graph.nodes[node].work, Work::Job(_))
}

/// The name of a node, with the values of one row of its matrix.
pub fn node_label(status: &RunStatus, node: usize, instance: usize) -> String {
    let id = printable(&status.graph.nodes[node].id);
    match status.progress.nodes[node].rows.get(instance) {
        None => id,
        Some(row) => {
            let values: Vec<String> = row.values().map(expr::text).collect();
            format!("{id} ({})", printable(&values.join(", ")))
        }
    }
}

/// The inputs of a run or a plan in one line; `None` when there are none.
pub fn inputs_text(inputs: &Value) -> Option<String> {
    let map = inputs.as_object().filter(|map| !map.is_empty())?;
    let pair = |(name, value): (&String, &Value)| format!("{name}={}", printable(&expr::text(value)));
    Some(map.iter().map(pair).collect::<Vec<_>>().join(", "))
}

/// Reads a run. The error of a run that cannot be read says how to go on.
pub async fn read_run(runs: &Runs, run: RunId) -> Result<RunStatus, OperateError> {
    let error = match runs.status(run).await {
        Ok(Some(status)) => return Ok(status),
        Ok(None) => return Err(OperateError::not_found(format!("there is no run {run}"))),
        Err(error) => error,
    };
    if !matches!(error, Error::Corrupt { .. } | Error::Incompatible { .. }) {
        return Err(error.into());
    }
    let brief = runs.store().read_runs(vec![RunRead::brief(run)]).await?.pop().flatten().map(|view| view.run);
    let message = format!("the run {run} cannot be read: {error}");
    let error = OperateError::from(error).with_message(message);
    Err(match brief.as_ref().and_then(resume_hint) {
        Some(hint) => error.hint(format!("{hint}, windlass runs remove {run} removes it")),
        None => error,
    })
}

/// How a stuck run goes on; `None` for other runs, and for damaged ones.
pub fn resume_hint(run: &Run) -> Option<String> {
    let stuck = run.stuck.is_some() && run.damaged.is_none() && !run.state.is_terminal();
    stuck.then(|| format!("windlass runs resume {} tries again once the cause is gone", run.id))
}

/// One page of runs. A store looks at a limited number of runs for a page with filters: pages are read until `list.limit` runs
/// are found, but not more than [`PAGES_MAX`].
pub async fn list_runs(store: &dyn Store, list: RunList) -> Result<RunPage, OperateError> {
    let (wanted, mut next, mut found) = (list.limit, list, Vec::new());
    for page in 1.. {
        let RunPage { runs, cursor } = store.list_runs(next.clone()).await?;
        found.extend(runs);
        next.limit = wanted.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if next.limit == 0 || cursor.is_none() || !next.is_filtered() || page == PAGES_MAX {
            next.cursor = cursor;
            break;
        }
        next.cursor = cursor;
    }
    Ok(RunPage { runs: found, cursor: next.cursor })
}

/// The note of a run in a listing: its damage, why it is stuck, or its summary.
pub fn listed_note(run: &Run) -> String {
    let damaged = run.damaged.as_ref().map(|why| format!("damaged: {why}"));
    let stuck = || run.stuck.as_ref().map(|why| format!("stuck: {}", why.lines().next().unwrap_or_default()));
    damaged.or_else(stuck).unwrap_or_else(|| run.summary.clone())
}

/// The state of a node by the history of its run alone.
pub fn node_state(status: &RunStatus, node: usize) -> NodeState {
    let progress = &status.progress.nodes[node];
    match progress.outcome {
        Some(outcome) => outcome.into(),
        None if progress.has_begun() => NodeState::Running,
        None => NodeState::Waiting,
    }
}

/// Why a node has its state, by the history of its run alone.
pub fn node_reason(status: &RunStatus, node: usize) -> Option<String> {
    let (graph, progress) = (&status.graph, &status.progress);
    let this = &progress.nodes[node];
    if let Some(skip) = &this.skip {
        return Some(skip_reason(graph, skip));
    }
    if let Some(error) = this.instances.iter().find_map(|one| one.error.as_deref()) {
        return Some(error.lines().next().unwrap_or_default().to_owned());
    }
    if this.outcome.is_none() && !this.has_begun() {
        let open: Vec<&str> = (graph.nodes[node].needs.iter().map(|need| need.node))
            .filter(|&need| progress.nodes[need].outcome.is_none())
            .map(|need| graph.nodes[need].id.as_str())
            .collect();
        return Some(match open.as_slice() {
            [] => "about to start".to_owned(),
            [a, b, c, rest @ ..] if !rest.is_empty() => format!("waits for {a}, {b}, {c} and {} more", rest.len()),
            names => format!("waits for {}", names.join(", ")),
        });
    }
    None
}

fn skip_reason(graph: &Graph, skip: &Skip) -> String {
    match skip {
        Skip::Need { node, outcome } => {
            let id = graph.nodes.get(*node).map_or("?", |node| node.id.as_str());
            match outcome {
                Outcome::Succeeded => format!("{id} succeeded"),
                Outcome::Failed => format!("{id} failed"),
                Outcome::Cancelled => format!("{id} was cancelled"),
                Outcome::Skipped => format!("{id} was skipped"),
            }
        }
        Skip::Condition => "its condition does not hold".to_owned(),
        Skip::Stopped => "the run was stopped".to_owned(),
        Skip::NoRows => "its matrix has no rows".to_owned(),
        Skip::Matrix { message } => message.clone(),
    }
}

/// What a drawing shows of a node when the jobs of its run were not read.
pub fn node_summary(status: &RunStatus, node: usize, now: Timestamp) -> NodeSummary {
    RunJobs::default().summary(status, node, now)
}

/// The jobs of a run, as far as the store still has them. The history of the run does not have the times of claims.
#[derive(Debug, Default)]
pub struct RunJobs {
    times: HashMap<JobId, JobTimes>,
}

#[derive(Clone, Copy, Debug)]
struct JobTimes {
    claimed_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// The job was claimed at most once, so `claimed_at` is when work on it began.
    first_claim: bool,
}

/// One line about a node, or about one job of a node with a matrix.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRow {
    /// The name of the node, with the values of the row.
    pub label: String,
    /// The state of the node or job.
    pub state: NodeState,
    /// The job; `None` for a node with a matrix, and before the job is enqueued.
    pub job: Option<JobId>,
    /// How long the work took, or takes so far.
    pub duration_ms: Option<u64>,
    /// Its error, its outputs, or why it waits.
    pub note: String,
}

/// Rows of a matrix that are left out of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OmittedRows {
    /// How many rows have each state; states without rows are left out. Never empty.
    pub counts: Vec<(NodeState, usize)>,
}

impl RunJobs {
    /// Reads the jobs of a run.
    pub async fn read(store: &dyn Store, status: &RunStatus) -> Result<Self, OperateError> {
        let nodes = status.progress.nodes.iter();
        let jobs: Vec<JobId> = nodes.flat_map(|node| &node.instances).filter_map(|one| one.job).collect();
        let mut times = HashMap::with_capacity(jobs.len());
        for some in jobs.chunks(JOBS_PER_CALL) {
            for job in store.get(some.to_vec()).await?.into_iter().flatten() {
                let first_claim = job.attempt <= 1 && job.stall_count == 0 && job.retry_count == 0;
                let (claimed_at, finished_at) = (job.claimed_at, job.finished_at);
                times.insert(job.id, JobTimes { claimed_at, finished_at, first_claim });
            }
        }
        Ok(Self { times })
    }

    /// Whether a job is unclaimed. A job that the store does not have any more counts as claimed.
    fn is_queued(&self, job: JobId) -> bool {
        self.times.get(&job).is_some_and(|times| times.claimed_at.is_none())
    }

    /// The state of a node: it waits until one of its jobs is claimed.
    pub fn state(&self, status: &RunStatus, node: usize) -> NodeState {
        let begun = |one: &Instance| one.outcome.is_some() || one.job.is_some_and(|job| !self.is_queued(job));
        match node_state(status, node) {
            NodeState::Running if !status.progress.nodes[node].instances.iter().any(begun) => NodeState::Waiting,
            state => state,
        }
    }

    /// How long a node took or takes: from its first claim, or from when it was enqueued when the claim is not known.
    pub fn duration_ms(&self, status: &RunStatus, node: usize, now: Timestamp) -> Option<u64> {
        let times = status.times[node];
        let jobs: Vec<JobId> = status.progress.nodes[node].instances.iter().filter_map(|one| one.job).collect();
        let known = jobs.iter().all(|job| self.times.get(job).is_some_and(|times| times.first_claim));
        let claimed_at = || jobs.iter().filter_map(|job| self.times.get(job)?.claimed_at).min();
        let from = if known && !jobs.is_empty() { claimed_at()? } else { times.started_at? };
        Some(times.ended_at.unwrap_or(now).ms_since(from))
    }

    /// Why a node has its state.
    pub fn reason(&self, status: &RunStatus, node: usize) -> Option<String> {
        let queued = || self.state(status, node) == NodeState::Waiting && status.progress.nodes[node].has_begun();
        node_reason(status, node).or_else(|| queued().then(|| QUEUED.to_owned()))
    }

    /// What a drawing shows of a node: its state, how many of its rows have ended, and how long it took or takes.
    pub fn summary(&self, status: &RunStatus, node: usize, now: Timestamp) -> NodeSummary {
        let progress = &status.progress.nodes[node];
        let mut notes = Vec::new();
        if progress.instances.len() > 1 {
            notes.push(format!("{}/{}", progress.ended, progress.instances.len()));
        }
        notes.extend(self.duration_ms(status, node, now).map(rough_duration));
        NodeSummary { state: self.state(status, node), note: notes.join(" ") }
    }

    /// The line about a node as a whole.
    pub fn node_row(&self, status: &RunStatus, node: usize, now: Timestamp) -> NodeRow {
        let this = &status.progress.nodes[node];
        let outputs = this.outputs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        // The rows of a matrix have their own jobs and errors.
        let done = format!("{} of {} done", this.ended, this.instances.len());
        let note = match (this.rows.is_empty(), this.outputs.is_empty()) {
            (true, _) => self.reason(status, node).unwrap_or(outputs),
            (false, true) => done,
            (false, false) => format!("{done}; {outputs}"),
        };
        NodeRow {
            label: status.graph.nodes[node].id.clone(),
            state: self.state(status, node),
            job: this.instances.last().and_then(|one| one.job).filter(|_| this.rows.is_empty()),
            duration_ms: self.duration_ms(status, node, now),
            note,
        }
    }

    /// The lines about each job of a node with a matrix. Without `all`, only those that failed or run when there are more
    /// than 20, and how many were left out.
    pub fn matrix_rows(
        &self,
        status: &RunStatus,
        node: usize,
        now: Timestamp,
        all: bool,
    ) -> (Vec<NodeRow>, Option<OmittedRows>) {
        let this = &status.progress.nodes[node];
        let instances = if this.rows.is_empty() { 0 } else { this.instances.len() };
        let rows = (0..instances).map(|instance| self.job_row(status, (node, instance), now));
        if all || instances <= ROWS_SHOWN {
            return (rows.collect(), None);
        }
        let (shown, omitted): (Vec<NodeRow>, Vec<NodeRow>) =
            rows.partition(|row| matches!(row.state, NodeState::Failed | NodeState::Running));
        let tally = |state: NodeState| (state, omitted.iter().filter(|row| row.state == state).count());
        let counts: Vec<_> = NodeState::ALL.into_iter().map(tally).filter(|(_, count)| *count > 0).collect();
        (shown, Some(OmittedRows { counts }).filter(|omitted| !omitted.counts.is_empty()))
    }

    fn job_row(&self, status: &RunStatus, (node, instance): (usize, usize), now: Timestamp) -> NodeRow {
        let one = &status.progress.nodes[node].instances[instance];
        let (state, note) = match (one.outcome, one.job) {
            (Some(outcome), _) => (outcome.into(), ""),
            (None, None) => (NodeState::Waiting, "waits for others of its matrix"),
            (None, Some(job)) if self.is_queued(job) => (NodeState::Waiting, QUEUED),
            (None, Some(_)) => (NodeState::Running, ""),
        };
        let times = one.job.and_then(|job| self.times.get(&job));
        let duration_ms = times.and_then(|times| Some(times.finished_at.unwrap_or(now).ms_since(times.claimed_at?)));
        let error = one.error.as_deref().and_then(|error| error.lines().next());
        let label = node_label(status, node, instance);
        NodeRow { label, state, job: one.job, duration_ms, note: error.unwrap_or(note).to_owned() }
    }

    /// The run with its inputs, nodes and jobs, as `windlass runs show --json` prints it.
    pub fn view(&self, status: &RunStatus) -> Value {
        let mut value = json!(status.run);
        let nodes: Vec<Value> = (0..status.graph.nodes.len()).map(|node| self.node_view(status, node)).collect();
        value["inputs"] = Value::clone(&status.inputs);
        value["nodes"] = Value::Array(nodes);
        value["cancelled"] = json!(status.progress.cancelled);
        value["timed_out"] = json!(status.progress.timed_out);
        value
    }

    fn node_view(&self, status: &RunStatus, node: usize) -> Value {
        let (this, progress) = (&status.graph.nodes[node], &status.progress.nodes[node]);
        let job = |instance: usize| {
            let one = &progress.instances[instance];
            let times = one.job.and_then(|job| self.times.get(&job));
            json!({
                "job": one.job,
                "row": progress.rows.get(instance),
                "state": self.job_row(status, (node, instance), Timestamp::default()).state,
                "outcome": one.outcome,
                "error": one.error,
                "claimed_at": times.and_then(|times| times.claimed_at),
                "ended_at": times.and_then(|times| times.finished_at),
            })
        };
        json!({
            "node": this.id,
            "title": this.title,
            "state": self.state(status, node),
            "reason": self.reason(status, node),
            "outputs": progress.outputs,
            "jobs": (0..progress.instances.len()).map(job).collect::<Vec<_>>(),
            "started_at": status.times[node].started_at,
            "ended_at": status.times[node].ended_at,
            "reruns": progress.reruns,
        })
    }
}
