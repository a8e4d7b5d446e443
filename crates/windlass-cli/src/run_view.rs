//! Runs, for people and programs.

use crate::draw_graph::{Look, Mark};
use crate::failure::Failure;
use crate::values::about;
use serde_json::{Value, json};
use std::str::FromStr;
use windlass::Error;
use windlass::core::graph::{Graph, Outcome, Skip, Work};
use windlass::core::id::RunId;
use windlass::core::store::{ListOrder, Run, RunList, RunRead, RunState, Store};
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

/// A run, as it is named on the command line: its id, or `latest`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunName {
    /// By its id.
    Id(RunId),
    /// The one that was created last.
    Latest,
}

impl FromStr for RunName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "latest" { Ok(Self::Latest) } else { text.parse().map(Self::Id) }
    }
}

impl RunName {
    pub(crate) async fn find(self, store: &dyn Store) -> Result<RunId, Failure> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Latest => {
                let newest = RunList { state: None, order: ListOrder::Descending, cursor: None, limit: 1 };
                let run = store.list_runs(newest).await?.runs.pop();
                run.map(|run| run.id)
                    .ok_or_else(|| Failure::not_found("there are no runs").hint("windlass run FILE starts one"))
            }
        }
    }
}

/// Reads a run; why that cannot be, and what to do about it.
pub(crate) async fn read(runs: &Runs, run: RunId) -> Result<RunStatus, Failure> {
    let error = match runs.status(run).await {
        Ok(Some(status)) => return Ok(status),
        Ok(None) => return Err(Failure::not_found(format!("there is no run {run}"))),
        Err(error) => error,
    };
    if !matches!(error, Error::Corrupt { .. } | Error::Incompatible { .. }) {
        return Err(error.into());
    }
    let brief = runs.store().read_runs(vec![RunRead::brief(run)]).await?.pop().flatten().map(|view| view.run);
    let says = format!("the run {run} cannot be read: {error}");
    let failure = Failure::from(error).says(says);
    Err(match brief.as_ref().and_then(way_on) {
        Some(way) => failure.hint(format!("{way}, windlass runs remove {run} removes it")),
        None => failure,
    })
}

/// What to do about a run that is stuck.
pub(crate) fn way_on(run: &Run) -> Option<String> {
    let stuck = run.stuck.is_some() && run.damaged.is_none() && !run.state.is_terminal();
    stuck.then(|| format!("windlass runs resume {} tries again once the cause is gone", run.id))
}

/// Where a node stands.
pub(crate) fn mark(status: &RunStatus, node: usize) -> Mark {
    let progress = &status.progress.nodes[node];
    match progress.outcome {
        Some(Outcome::Succeeded) => Mark::Succeeded,
        Some(Outcome::Failed) => Mark::Failed,
        Some(Outcome::Cancelled) => Mark::Cancelled,
        Some(Outcome::Skipped) => Mark::Skipped,
        None if progress.has_begun() => Mark::Running,
        None => Mark::Waiting,
    }
}

/// What is drawn of a node: its mark, how far its rows are, and how long it took or takes.
pub(crate) fn look(status: &RunStatus, node: usize, now: Timestamp) -> Look {
    let progress = &status.progress.nodes[node];
    let mut notes = Vec::new();
    if progress.instances.len() > 1 {
        notes.push(format!("{}/{}", progress.ended, progress.instances.len()));
    }
    let times = status.times[node];
    if let Some(from) = times.started_at {
        notes.push(about(times.ended_at.unwrap_or(now).ms_since(from)));
    }
    Look { mark: mark(status, node), note: notes.join(" ") }
}

/// Why a node stands where it stands.
pub(crate) fn reason(status: &RunStatus, node: usize) -> Option<String> {
    let (graph, progress) = (&status.graph, &status.progress);
    let this = &progress.nodes[node];
    if let Some(skip) = &this.skip {
        return Some(skipped(graph, skip));
    }
    if let Some(error) = this.instances.iter().find_map(|one| one.error.as_deref()) {
        return Some(error.lines().next().unwrap_or_default().to_owned());
    }
    if this.outcome.is_none() && !this.has_begun() {
        let open: Vec<&str> = (graph.nodes[node].needs.iter().map(|need| need.node))
            .filter(|&need| progress.nodes[need].outcome.is_none())
            .map(|need| graph.nodes[need].id.as_str())
            .collect();
        return Some(if open.is_empty() {
            "about to start".to_owned()
        } else {
            format!("waits for {}", shortened(&open))
        });
    }
    None
}

fn shortened(names: &[&str]) -> String {
    match names {
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a}, {b}, {c} and {} more", rest.len()),
        names => names.join(", "),
    }
}

fn skipped(graph: &Graph, skip: &Skip) -> String {
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

/// Nodes that people see: those with a job.
pub(crate) fn is_shown(graph: &Graph, node: usize) -> bool {
    matches!(graph.nodes[node].work, Work::Job(_))
}

pub(crate) fn run_json(run: &Run) -> Value {
    json!(run)
}

/// All there is to know about a run.
pub(crate) fn status_json(status: &RunStatus) -> Value {
    let mut value = run_json(&status.run);
    let nodes: Vec<Value> = (0..status.graph.nodes.len()).map(|node| node_json(status, node)).collect();
    value["inputs"] = status.inputs.clone();
    value["nodes"] = Value::Array(nodes);
    value["cancelled"] = json!(status.progress.cancelled);
    value["timed_out"] = json!(status.progress.timed_out);
    value
}

fn node_json(status: &RunStatus, node: usize) -> Value {
    let (this, progress) = (&status.graph.nodes[node], &status.progress.nodes[node]);
    let jobs: Vec<Value> = (progress.instances.iter())
        .map(|one| json!({ "job": one.job, "outcome": one.outcome, "error": one.error }))
        .collect();
    json!({
        "node": this.id,
        "state": mark(status, node).word(),
        "reason": reason(status, node),
        "outputs": progress.outputs,
        "jobs": jobs,
        "started_at": status.times[node].started_at,
        "ended_at": status.times[node].ended_at,
        "reruns": progress.reruns,
    })
}

/// The exit code of a command that waits for a run.
pub(crate) fn exit_code(state: RunState) -> std::process::ExitCode {
    match state {
        RunState::Succeeded | RunState::Running => std::process::ExitCode::SUCCESS,
        RunState::Failed => std::process::ExitCode::FAILURE,
        RunState::Cancelled => std::process::ExitCode::from(130),
    }
}
