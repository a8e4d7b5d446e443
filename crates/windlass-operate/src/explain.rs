//! Why a job or a run has its state, and what to do about it.

use crate::code_run::{explain_code_run, is_code, read_brief};
use crate::error::{ErrorKind, OperateError};
use crate::names::{JobName, RunName, find_named_run};
use crate::run_view::{is_shown, node_label, node_reason, read_run, resume_hint};
use crate::text::{count, relative_time, shell_quoted};
use serde::Serialize;
use serde_json::{Value, json};
use std::str::FromStr;
use windlass::core::graph::Outcome;
use windlass::core::id::{JobId, RunId};
use windlass::core::job::State;
use windlass::core::name::Label;
use windlass::core::store::{Explanation, Reason, RunRead, RunState, Store};
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

/// Open jobs of one node that are explained; the others are left out.
const JOBS_PER_NODE: usize = 5;

/// A job or a run as it is typed. A name that its creator gave may be that of a job or of a run.
#[derive(Clone, Debug)]
pub enum ExplainName {
    /// The id of a job, or a name.
    Job(JobName),
    /// The id of a run, or `latest`.
    Run(RunName),
}

/// What an [`ExplainName`] names.
#[derive(Clone, Copy, Debug)]
pub enum ExplainId {
    /// A job.
    Job(JobId),
    /// A run.
    Run(RunId),
}

impl FromStr for ExplainName {
    type Err = <JobName as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(name @ (RunName::Id(_) | RunName::Latest)) => Ok(Self::Run(name)),
            _ => text.parse().map(Self::Job),
        }
    }
}

impl ExplainName {
    /// Finds the job; or the run of this name, when there is no such job.
    pub async fn find(self, store: &dyn Store) -> Result<ExplainId, OperateError> {
        let name = match self {
            Self::Job(name) => name,
            Self::Run(name) => return name.find(store).await.map(ExplainId::Run),
        };
        let missing = match name.find(store).await {
            Ok(id) => return Ok(ExplainId::Job(id)),
            Err(missing) => missing,
        };
        let run = match &name {
            JobName::Custom(custom) if missing.kind == ErrorKind::NotFound => {
                find_named_run(store, custom.as_str()).await?
            }
            _ => None,
        };
        run.map(ExplainId::Run).ok_or(missing)
    }
}

/// Why a job has its state.
#[derive(Clone, Debug)]
pub struct JobExplanation {
    /// The answer of the store.
    pub explanation: Explanation,
    /// The queue of the job; empty when the job is gone meanwhile.
    pub queue: String,
    /// The reason as a sentence.
    pub text: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl JobExplanation {
    /// The explanation as `windlass explain --json` prints it.
    pub fn view(&self) -> Value {
        let mut value = json!(self.explanation.reason);
        value["id"] = json!(self.explanation.id);
        value["state"] = json!(self.explanation.state);
        value["queue"] = json!(self.queue);
        value["text"] = json!(self.text);
        value["hint"] = json!(self.hint);
        value
    }
}

/// Explains the state of a job.
pub async fn explain_job(store: &dyn Store, id: JobId) -> Result<JobExplanation, OperateError> {
    let explanation = store.explain(id).await?;
    let now = store.now().await?;
    let job = store.get(vec![id]).await?.pop().flatten();
    let run = job.as_ref().and_then(|job| job.spec.run);
    let queue = job.map(|job| job.spec.queue.to_string()).unwrap_or_default();
    let (mut text, mut hint) = (sentence(&explanation, now), hint(&explanation, &queue));
    if let Some(run) = run.filter(|_| explanation.state == State::Failed) {
        let (note, command) = failed_in_run(store, run).await?;
        text += &note;
        hint = Some(command);
    }
    Ok(JobExplanation { explanation, queue, text, hint })
}

/// What follows from the failure of a job of a run, and a command that shows more. Nothing reads the end of a job that is tried
/// again by hand: its run has acted on the failure.
async fn failed_in_run(store: &dyn Store, run: RunId) -> Result<(String, String), OperateError> {
    let brief = store.read_runs(vec![RunRead::brief(run)]).await?.pop().flatten().map(|view| view.run);
    let name =
        brief.as_ref().filter(|run| !run.name.is_empty()).map(|run| format!(" `{}`", run.name)).unwrap_or_default();
    let state = match brief {
        Some(run) if run.state.is_terminal() => format!("has ended as {}", run.state.name()),
        Some(_) => "has been told".to_owned(),
        None => "was removed".to_owned(),
    };
    let note = format!(
        "; it belongs to the run{name}, which {state}: another attempt would repeat its work, and change nothing for the run"
    );
    Ok((note, format!("windlass runs show {run}")))
}

/// The reason for a job's state, as a sentence.
pub fn sentence(explanation: &Explanation, now: Timestamp) -> String {
    let when = |time: &Timestamp| format!("{time} ({})", relative_time(*time, now));
    match &explanation.reason {
        Reason::Delayed { until } => format!("its time has not come; it becomes ready at {}", when(until)),
        Reason::BackingOff { until, attempt, error } => {
            format!("attempt {attempt} failed with `{error}`; the next one begins at {}", when(until))
        }
        Reason::Due => "its time has come; the next claim or sweep makes it ready".to_owned(),
        Reason::HeldBehind { job } => format!("it waits until the job {job}, which has the same dedup key, has ended"),
        Reason::QueuePaused => "its queue is paused, so nothing of it is claimed".to_owned(),
        Reason::KindPaused { kind } => format!("jobs of the kind `{kind}` are paused on its queue"),
        Reason::QueueAtCap { cap } => {
            format!("its queue has {}, which is as many as it may have at once", count(u64::from(*cap), "active job"))
        }
        Reason::QueueRateLimited { until } => {
            format!("its queue has started as many jobs as its rate allows; the next one may start at {}", when(until))
        }
        Reason::GroupAtCap { group, cap } => {
            format!(
                "its group `{group}` has {}, which is as many as it may have at once",
                count(u64::from(*cap), "active job")
            )
        }
        Reason::GroupRateLimited { group, until } => {
            format!(
                "its group `{group}` has started as many jobs as its rate allows; the next one may start at {}",
                when(until)
            )
        }
        Reason::NoWorkerForQueue => "no live worker works on its queue".to_owned(),
        Reason::NoWorkerForKind { kind } => format!("workers are there, but none has a handler for the kind `{kind}`"),
        Reason::NoWorkerWithLabels { missing } => {
            format!("workers are there, but the best of them lacks {}", labels(missing))
        }
        Reason::WaitsItsTurn => "nothing is in its way; it waits for its turn behind the jobs before it".to_owned(),
        Reason::Running { worker, until } => {
            format!("the worker {worker} works on it, with a lease until {}", when(until))
        }
        Reason::Cancelling { worker } => format!("it was cancelled, and the worker {worker} is being told"),
        Reason::LeaseExpired { worker } => {
            format!("the worker {worker} has vanished; the next sweep takes the job away from it")
        }
        Reason::Ended { error: Some(error) } => format!("it has ended as {}: {error}", explanation.state),
        Reason::Ended { error: None } => format!("it has ended as {}", explanation.state),
        Reason::Quarantined { detail: why } => format!("its stored form cannot be read, so it is never claimed: {why}"),
        other => format!("{other:?}"),
    }
}

fn labels(missing: &[Label]) -> String {
    let names: Vec<String> = missing.iter().map(|label| format!("`{label}`")).collect();
    format!("the label{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

/// What to do next, as a command where there is one; `None` when there is nothing to do.
pub fn hint(explanation: &Explanation, queue: &str) -> Option<String> {
    let id = explanation.id;
    let queue = shell_quoted(queue);
    Some(match &explanation.reason {
        Reason::Delayed { .. } | Reason::Due | Reason::WaitsItsTurn | Reason::Running { .. } => {
            format!("windlass jobs watch {id}")
        }
        Reason::BackingOff { .. } => format!("windlass jobs show {id}  # all that went wrong so far"),
        Reason::HeldBehind { job } => format!("windlass explain {job}"),
        Reason::QueuePaused => format!("windlass queues resume {queue}"),
        Reason::KindPaused { kind } => format!("windlass queues resume {queue} --kind {}", shell_quoted(kind.as_str())),
        Reason::QueueAtCap { cap } => {
            format!("windlass queues set {queue} --cap {}  # or wait until one has ended", cap.saturating_mul(2))
        }
        Reason::QueueRateLimited { .. } => format!("windlass queues set {queue} --rate none  # or wait"),
        Reason::GroupAtCap { group, cap } => {
            let (group, cap) = (shell_quoted(group.as_str()), cap.saturating_mul(2));
            format!("windlass groups set {queue} {group} --cap {cap}  # or wait until one has ended")
        }
        Reason::GroupRateLimited { group, .. } => {
            format!("windlass groups set {queue} {} --rate none  # or wait", shell_quoted(group.as_str()))
        }
        Reason::NoWorkerForQueue => {
            format!("start a worker for the queue {queue}; windlass workers shows who is there")
        }
        Reason::NoWorkerForKind { kind } => {
            let kind = shell_quoted(kind.as_str());
            format!(
                "start a worker with a handler for {kind}, or check its spelling; windlass workers shows who does what"
            )
        }
        Reason::NoWorkerWithLabels { missing } => {
            format!("start a worker that offers {}; windlass workers shows what they offer", labels(missing))
        }
        Reason::Cancelling { .. } => format!("windlass jobs watch {id}  # it ends once its handler has stopped"),
        Reason::LeaseExpired { .. } => {
            "start a worker: any one takes back what others left; windlass doctor says more".to_owned()
        }
        Reason::Ended { .. } if explanation.state == State::Failed => format!("windlass jobs retry {id}"),
        Reason::Ended { .. } => return None,
        Reason::Quarantined { .. } => format!("windlass jobs show {id}  # and then: windlass jobs remove {id} --yes"),
        _ => return None,
    })
}

/// Why a run has its state, as `windlass explain --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct RunExplanation {
    /// The run.
    pub run: RunId,
    /// The state of the run.
    pub state: RunState,
    /// The reason as a sentence.
    pub text: String,
    /// What each node, or each operation of a code run, that has not ended waits for.
    pub waits: Vec<NodeWait>,
}

/// What a node, or one job of it, waits for.
#[derive(Clone, Debug, Serialize)]
pub struct NodeWait {
    /// The name of the node, with the values of its row.
    pub node: String,
    /// The reason as a sentence.
    pub reason: String,
}

/// Explains the state of a run.
pub async fn explain_run(runs: &Runs, run: RunId) -> Result<RunExplanation, OperateError> {
    if is_code(&read_brief(runs.store().as_ref(), run).await?) {
        return explain_code_run(runs.store().as_ref(), run).await;
    }
    let (status, store) = (read_run(runs, run).await?, runs.store().as_ref());
    let waits = node_waits(&status, store, store.now().await?).await?;
    Ok(RunExplanation { run, state: status.run.state, text: run_sentence(&status), waits })
}

/// The state of the run as a whole, as a sentence.
fn run_sentence(status: &RunStatus) -> String {
    let run = &status.run;
    let failed = || {
        let failed =
            (0..status.graph.nodes.len()).filter(|&node| status.progress.nodes[node].outcome == Some(Outcome::Failed));
        let names: Vec<&str> = failed.map(|node| status.graph.nodes[node].id.as_str()).collect();
        if names.is_empty() { String::new() } else { format!("; failed: {}", names.join(", ")) }
    };
    if let Some(damage) = &run.damaged {
        return format!("it is damaged: {damage}; windlass runs remove {} removes it", run.id);
    }
    if let Some(stuck) = &run.stuck {
        let hint = resume_hint(run).map(|hint| format!("; {hint}")).unwrap_or_default();
        return format!("it is stuck: {stuck}{hint}");
    }
    match (&status.progress.cancelled, status.progress.timed_out) {
        (Some(reason), _) => format!("it was cancelled: {reason}"),
        (None, true) => format!("it took longer than its timeout{}", failed()),
        (None, false) => format!("{}{}", run.summary, failed()),
    }
}

/// What each node that has not ended waits for.
async fn node_waits(status: &RunStatus, store: &dyn Store, now: Timestamp) -> Result<Vec<NodeWait>, OperateError> {
    let mut waits = Vec::new();
    for (node, progress) in status.progress.nodes.iter().enumerate() {
        if progress.outcome.is_some() || !is_shown(&status.graph, node) {
            continue;
        }
        let open = progress.instances.iter().enumerate().filter(|(_, one)| one.outcome.is_none());
        let jobs: Vec<_> = open.filter_map(|(row, one)| Some((row, one.job?))).take(JOBS_PER_NODE).collect();
        if jobs.is_empty() {
            let (id, reason) = (status.graph.nodes[node].id.clone(), node_reason(status, node).unwrap_or_default());
            waits.push(NodeWait { node: id, reason });
            continue;
        }
        for (row, job) in jobs {
            let why = match store.explain(job).await {
                Ok(explanation) => sentence(&explanation, now),
                Err(error) => error.to_string(),
            };
            waits.push(NodeWait { node: node_label(status, node, row), reason: format!("job {job}: {why}") });
        }
    }
    Ok(waits)
}
