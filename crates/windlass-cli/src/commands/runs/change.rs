//! `windlass runs cancel`, `rerun`, `fork`, `remove`.

use crate::app::App;
use crate::commands::run::started;
use crate::failure::Failure;
use crate::failure::exit_code;
use crate::follow_run;
use crate::workflow_file::refused;
use clap::Args;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::graph::Graph;
use windlass::graph::yaml::{Input, InputKind, Workflow};
use windlass::runs::{Rerun as What, RunStatus, Runs};
use windlass_operate::names::RunName;
use windlass_operate::run_change::{RunCancelled, cancel_run, check_is_graph};
use windlass_operate::run_view::read_run;
use windlass_operate::text::count;
use windlass_operate::values::pair;

const CANCEL_AFTER: &str = "\
When it returns, no job of the run can start any more. One that is stuck is cancelled, too, if it can be advanced that far. A \
workflow in code is asked to stop: what it waits for is cancelled, and it may clean up before it ends.

Examples:
  windlass runs cancel latest
  windlass runs cancel r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --reason 'wrong branch'";

/// Cancel a run: nothing of it starts any more, and what runs is told to stop.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_AFTER)]
pub(crate) struct Cancel {
    /// The run's id, `latest`, or the name that it was given with --id
    id: RunName,
    /// Why, for those who look at it later
    #[arg(long, default_value = "cancelled by hand")]
    reason: String,
}

impl Cancel {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        let RunCancelled { state, stuck, is_code } = cancel_run(&store, run, &self.reason).await?;
        if app.ui.json {
            let mut answer = json!({ "run": run, "state": state });
            if let Some(stuck) = stuck {
                answer["stuck"] = json!(stuck);
            }
            app.ui.json(&answer)?;
        } else if state.is_terminal() {
            app.ui.line(format_args!("{run} {}", state.name()))?;
        } else if stuck.is_some() {
            app.ui.line(format_args!("{run} is stuck, and its code reads the request when it goes on"))?;
            app.ui.note(format_args!(
                "hint: windlass runs resume {run}, or windlass runs terminate {run} to end it at once"
            ));
        } else if is_code {
            app.ui.line(format_args!("{run} is asked to stop; its code may clean up before it ends"))?;
        } else {
            app.ui.line(format_args!("{run} is cancelled; what runs is being told"))?;
        }
        Ok(())
    }
}

const RERUN_AFTER: &str = "\
What went well is not repeated, and its outputs are still there.

Examples:
  windlass runs rerun latest --failed
  windlass runs rerun r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --from test --from lint --follow";

/// Run an ended run of a graph once more: what failed, from a node on, or all of it.
#[derive(Debug, Args)]
#[command(after_help = RERUN_AFTER)]
#[group(skip)]
pub(crate) struct Rerun {
    /// The run's id, `latest`, or the name that it was given with --id
    id: RunName,
    /// What failed or was cancelled, and all that comes after it
    #[arg(long, conflicts_with_all = ["from", "all"])]
    failed: bool,
    /// This node and all that comes after it; may be repeated
    #[arg(long, value_name = "NODE", conflicts_with = "all")]
    from: Vec<String>,
    /// Everything
    #[arg(long)]
    all: bool,
    /// Follow it to its end
    #[arg(long)]
    follow: bool,
}

impl Rerun {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let what = match (self.failed, self.from.is_empty(), self.all) {
            (true, ..) => What::Failed,
            (_, false, _) => What::From(self.from),
            (.., true) => What::All,
            _ => {
                return Err(Failure::invalid("what is to be run once more?").hint("say --failed, --from NODE or --all"));
            }
        };
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        check_is_graph(store.as_ref(), run).await?;
        let runs = Runs::new(Arc::clone(&store));
        // What happened before is not told again.
        let before = if self.follow { Some(read_run(&runs, run).await?) } else { None };
        let nodes = runs.rerun(run, what).await?;
        let ui = if self.follow { app.ui.undeterred() } else { app.ui };
        if ui.json {
            ui.json(&json!({ "run": run, "nodes": nodes }))?;
        } else {
            ui.line(format_args!("{run} goes on with {}", count(nodes as u64, "node")))?;
        }
        let code = match before {
            Some(before) => exit_code(follow_run::go_on(app, &runs, before).await?),
            None => ExitCode::SUCCESS,
        };
        Ok(code)
    }
}

const FORK_AFTER: &str = "\
Examples:
  windlass runs fork latest --input version=1.3 --follow";

/// Start a new run of the graph of another one, with other inputs.
#[derive(Debug, Args)]
#[command(after_help = FORK_AFTER)]
pub(crate) struct Fork {
    /// The run's id, `latest`, or the name that it was given with --id
    id: RunName,
    /// An input that is to be another one, of the same type; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// Follow it to its end
    #[arg(long)]
    follow: bool,
}

impl Fork {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        check_is_graph(store.as_ref(), run).await?;
        let runs = Runs::new(Arc::clone(&store));
        let old = runs.status(run).await?.ok_or_else(|| Failure::not_found(format!("there is no run {run}")))?;
        let inputs = resolve(&old, self.inputs)?;
        let fork = runs.fork(run, inputs).await?;
        started(if self.follow { app.ui.undeterred() } else { app.ui }, fork)?;
        let code = if self.follow { exit_code(follow_run::follow(app, &runs, fork).await?) } else { ExitCode::SUCCESS };
        Ok(code)
    }
}

/// The inputs of a fork, checked as those of a run are. A run keeps the values and not the workflow that said what they may be,
/// so each must be what it was: a number a number, a text any text.
fn resolve(old: &RunStatus, given: Vec<(String, String)>) -> Result<Map<String, Value>, Failure> {
    let before = old.inputs.as_object().cloned().unwrap_or_default();
    let input = |value: &Value| {
        let kind = match value {
            Value::Bool(_) => InputKind::Boolean,
            Value::Number(_) => InputKind::Number,
            _ => InputKind::Text,
        };
        Input { kind, description: None, default: Some(value.clone()), required: false }
    };
    let inputs = before.iter().map(|(name, value)| (name.clone(), input(value))).collect();
    let graph = Graph { name: String::new(), nodes: Vec::new(), env: BTreeMap::new(), timeout_ms: None };
    let workflow = Workflow { graph, inputs, triggers: Vec::new(), outputs: BTreeMap::new() };
    let resolved = workflow.resolve_inputs(given.into_iter().collect()).map_err(|error| refused(&error))?;
    let Value::Object(mut resolved) = resolved else { return Ok(Map::new()) };
    // What only a program can have given is JSON.
    for (name, value) in &mut resolved {
        if let (Some(Value::Array(_) | Value::Object(_)), Value::String(text)) = (before.get(name), &*value) {
            let read = serde_json::from_str(text);
            *value = read.map_err(|error| Failure::invalid(format!("the input `{name}` is no JSON: {error}")))?;
        }
    }
    Ok(resolved)
}

const REMOVE_AFTER: &str = "\
Examples:
  windlass runs remove r0-01k9z3v8q2f7t8x6m5n4p3r2s1";

/// Remove runs that have ended or are stuck, with their history; their jobs go by the rules of their queues.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_AFTER)]
pub(crate) struct Remove {
    /// The runs' ids, or the names that they were given with --id
    #[arg(required = true)]
    ids: Vec<RunName>,
}

impl Remove {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let mut runs = Vec::new();
        for id in self.ids {
            runs.push(id.find(store.as_ref()).await?);
        }
        // Each is removed or refused for itself, and all are told of.
        let mut refused = None;
        for (run, removed) in runs.clone().into_iter().zip(store.remove_runs(runs).await?) {
            match removed {
                Ok(()) if app.ui.json => app.ui.json(&json!({ "run": run, "removed": true }))?,
                Ok(()) => app.ui.line(format_args!("{run} removed"))?,
                Err(error) if refused.is_none() => refused = Some(error),
                Err(error) => app.ui.note(format_args!("also: {error}")),
            }
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }
}
