//! Runs, for people and programs.

use crate::draw_graph::{Look, Mark};
use crate::failure::Failure;
use crate::run_jobs::RunJobs;
use crate::values::short;
use serde_json::{Value, json};
use std::str::FromStr;
use windlass::Error;
use windlass::core::graph::{Graph, Outcome, Skip, Work};
use windlass::core::id::RunId;
use windlass::core::store::{ListOrder, Run, RunList, RunRead, RunState, Store};
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

/// A run, as it is named on the command line: its id, `latest`, or the name that it was given with `--id`.
#[derive(Clone, Debug)]
pub(crate) enum RunName {
    /// By its id.
    Id(RunId),
    /// The one that was created last.
    Latest,
    /// By the name that its creator chose.
    Given(String),
}

impl FromStr for RunName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "latest" => Self::Latest,
            // It says what an id looks like.
            "" => Self::Id(text.parse()?),
            text => text.parse().map_or_else(|_| Self::Given(text.to_owned()), Self::Id),
        })
    }
}

impl RunName {
    pub(crate) async fn find(self, store: &dyn Store) -> Result<RunId, Failure> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Given(name) => named(store, &name).await?.ok_or_else(|| {
                let words = format!("there is no run `{}`; an id looks like {}", short(&name), RunId::from_parts(0, 0));
                Failure::not_found(words).hint("windlass runs list shows what is there")
            }),
            Self::Latest => {
                let newest = RunList { state: None, order: ListOrder::Descending, cursor: None, limit: 1 };
                let run = store.list_runs(newest).await?.runs.pop();
                run.map(|run| run.id)
                    .ok_or_else(|| Failure::not_found("there are no runs").hint("windlass run FILE starts one"))
            }
        }
    }
}

/// The run that its creator gave this name, if it is there.
pub(crate) async fn named(store: &dyn Store, name: &str) -> Result<Option<RunId>, Failure> {
    let run = RunId::named(name);
    let there = store.read_runs(vec![RunRead::brief(run)]).await?.pop().flatten();
    Ok(there.map(|_| run))
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

/// What is drawn of a node while its jobs are not asked for.
pub(crate) fn look(status: &RunStatus, node: usize, now: Timestamp) -> Look {
    RunJobs::default().look(status, node, now)
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

/// The exit code of a command that waits for a run.
pub(crate) fn exit_code(state: RunState) -> std::process::ExitCode {
    match state {
        RunState::Succeeded | RunState::Running => std::process::ExitCode::SUCCESS,
        RunState::Failed => std::process::ExitCode::FAILURE,
        RunState::Cancelled => std::process::ExitCode::from(130),
    }
}
