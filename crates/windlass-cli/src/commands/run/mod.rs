//! `windlass run`: starts a workflow and follows it.

mod local;

use crate::app::App;
use crate::commands::worker::open_artifacts;
use crate::draw_graph::{self, Canvas};
use crate::failure::Failure;
use crate::failure::exit_code;
use crate::follow_run::{Printer, patiently};
use crate::ui::{STRONG, Ui};
use crate::workflow_file::read_with_inputs;
use clap::Args;
use local::{Local, Working};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::id::RunId;
use windlass::core::store::{RunState, Store};
use windlass::runs::{NewGraphRun, RunStatus, Runs};
use windlass_operate::ErrorKind;
use windlass_operate::run_view::node_summary;
use windlass_operate::text::{printable, rough_duration};
use windlass_operate::values::pair;

const AFTER: &str = "\
Without --local the run waits for workers: windlass worker --allow-commands. With --local the commands are run here, in \
this folder, and everything is forgotten afterwards unless --store names a store.

Ctrl-C cancels the run and waits for its end; once more leaves it. Exit codes: 0 succeeded, 1 failed, 130 cancelled.

Examples:
  windlass run ci.yml --local
  windlass run deploy.yml --store redis://localhost --input version=1.2
  windlass run nightly.yml --detach --id nightly-2026-11-16        started once, however often it is said";

/// Start a workflow, draw it, and follow it with what its jobs say.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Run {
    /// The file; - is standard input
    file: String,
    /// An input of the run; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// Run the commands here, in this folder
    #[arg(long)]
    local: bool,
    /// How many jobs of a local run go on at once [default: 4]
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    #[command(flatten)]
    commands: crate::commands::worker::CommandArgs,
    /// Start it, and do not follow it
    #[arg(long, conflicts_with = "local")]
    detach: bool,
    /// A name for the run: the same name twice starts it once
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// Show only what fails, and how it ended
    #[arg(long)]
    quiet: bool,
    /// Draw with ASCII alone
    #[arg(long)]
    ascii: bool,
}

impl Run {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        self.refuse_what_only_a_worker_uses()?;
        let (workflow, inputs) = read_with_inputs(app, &self.file, self.inputs.clone())?;
        let graph = Arc::new(workflow.graph);
        let local = if self.local { Some(Local::prepare(app, &graph, &inputs)?) } else { None };
        let store = match &local {
            Some(local) => local.store(app)?,
            None => app.store()?,
        };
        // Before the run: one that nobody could work on must not be started.
        let worker = match &local {
            Some(local) => Some(self.worker(local, &store)?),
            None => None,
        };
        let runs = Runs::new(Arc::clone(&store));
        let mut new = NewGraphRun::new(Arc::clone(&graph)).inputs(inputs);
        new.id = self.id.as_deref().map(RunId::named);
        let run = runs.start(new).await?;
        if self.detach {
            started(app.ui, run)?;
            store.close().await?;
            return Ok(ExitCode::SUCCESS);
        }
        let working = worker.map(Working::start);
        // No other command finds a run whose store is gone afterwards, whatever store the environment names.
        let done = match local.as_ref().is_some_and(|local| local.is_forgotten(app)) {
            true => self.watch(&app.without_store(), &runs, run).await,
            false => self.watch(app, &runs, run).await,
        };
        if done.as_ref().is_err_and(|failure| failure.kind == ErrorKind::Interrupted) {
            // Commands have watchers, which end them when this process goes.
            return done;
        }
        if let Some(working) = working {
            tokio::select! {
                () = working.end() => {}
                _ = tokio::signal::ctrl_c() => return Err(Failure::interrupted()),
            }
        }
        store.close().await?;
        done
    }

    fn refuse_what_only_a_worker_uses(&self) -> Result<(), Failure> {
        let flag = self.commands.first_given().or(self.slots.map(|_| "--slots"));
        match flag.filter(|_| !self.local) {
            None => Ok(()),
            Some(flag) => Err(Failure::invalid(format!("{flag} needs --local: without it, workers run the commands"))
                .hint(format!("add --local, or give it to the worker: windlass worker --allow-commands {flag} …"))),
        }
    }

    fn worker(&self, local: &Local, store: &Arc<dyn Store>) -> Result<windlass::Worker, Failure> {
        let mut commands = self.commands.commands("windlass run --local")?;
        if let (false, Some(folder)) = (self.commands.has_artifacts(), local.artifacts()) {
            commands = commands.artifacts(open_artifacts(&folder)?);
        }
        local.worker(store, commands, self.slots.unwrap_or(4))
    }

    async fn watch(&self, app: &App, runs: &Runs, run: RunId) -> Result<ExitCode, Failure> {
        let status = patiently(app.ui, async || runs.status(run).await).await?;
        let status = status.ok_or_else(|| Failure::not_found(format!("there is no run {run}")))?;
        let (canvas, ui) = (Canvas::of_terminal(self.ascii), app.ui.undeterred());
        let store = Arc::clone(runs.store());
        if self.quiet {
            // The last word is the only one.
        } else if ui.json {
            ui.json(&json!({ "run": run, "name": status.graph.name }))?;
        } else {
            ui.line(format_args!("{STRONG}{}{STRONG:#} {run}", printable(&status.graph.name)))?;
            draw(ui, &status, canvas, store.as_ref()).await?;
        }
        // It may have been started before: then all that has happened is told, too.
        let printer = Printer::new(app, canvas.ascii, self.quiet);
        let (status, state) = unless_cancelled(app, runs, run, printer.follow(runs, status.rewound())).await?;
        if ui.json {
            ui.json(&json!({ "run": run, "state": state, "summary": status.run.summary }))?;
        } else {
            if !self.quiet {
                draw(ui, &status, canvas, store.as_ref()).await?;
            }
            ui.line(last_line(&status, state))?;
            if state == RunState::Failed && app.url().is_some() && !self.quiet {
                ui.note(format_args!("hint: windlass runs rerun {run} --failed goes on from there"));
            }
        }
        Ok(exit_code(state))
    }
}

pub(crate) fn started(ui: Ui, run: RunId) -> Result<(), Failure> {
    if ui.json {
        return ui.json(&json!({ "run": run }));
    }
    ui.line(run)
}

async fn draw(ui: Ui, status: &RunStatus, canvas: Canvas, store: &dyn Store) -> Result<(), Failure> {
    let now = patiently(ui, async || store.now().await).await?;
    ui.line("")?;
    ui.line(draw_graph::draw(&status.graph, canvas, &|node| node_summary(status, node, now)))?;
    ui.line("")
}

fn last_line(status: &RunStatus, state: RunState) -> String {
    let run = &status.run;
    let took = run.finished_at.map(|at| rough_duration(at.ms_since(run.created_at))).unwrap_or_default();
    let style = draw_graph::style(state.into());
    format!("{style}{}{style:#}: {} in {took}", state.name(), run.summary)
}

/// The first interrupt cancels the run, the second leaves it.
async fn unless_cancelled(
    app: &App,
    runs: &Runs,
    run: RunId,
    follow: impl Future<Output = Result<(RunStatus, RunState), Failure>>,
) -> Result<(RunStatus, RunState), Failure> {
    let mut follow = std::pin::pin!(follow);
    tokio::select! {
        done = &mut follow => return done,
        _ = tokio::signal::ctrl_c() => {}
    }
    // A store that nobody named goes with this process, and so does the run.
    let (leaves, hint) = match app.url() {
        Some(_) => ("leaves the run to itself", Some(format!("windlass runs follow {run} goes on with it"))),
        None => ("ends it at once", None),
    };
    app.ui.note(format_args!("cancelling; Ctrl-C once more {leaves}"));
    let cancelled = async {
        patiently(app.ui, async || runs.cancel(run, "interrupted").await).await?;
        follow.await
    };
    tokio::select! {
        done = cancelled => done,
        _ = tokio::signal::ctrl_c() => Err(match hint {
            Some(hint) => Failure::interrupted().hint(hint),
            None => Failure::interrupted(),
        }),
    }
}
