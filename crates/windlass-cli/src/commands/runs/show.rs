//! `windlass runs show` and `windlass runs follow`.

use crate::app::App;
use crate::commands::run::inputs_text;
use crate::draw_graph::{self, Canvas};
use crate::failure::Failure;
use crate::follow_run;
use crate::run_view::{RunName, exit_code, is_shown, look, mark, read, reason, status_json, way_on};
use crate::table::{Table, text, whole};
use crate::ui::STRONG;
use crate::values::{about, clean, relative};
use clap::Args;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

const AFTER: &str = "\
What waits for what, why a node was skipped, and which job to look at: windlass explain JOB, windlass jobs logs JOB.

Examples:
  windlass runs show latest
  windlass runs show r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json | jq '.nodes[] | select(.state == \"failed\")'";

/// Show a run: its graph, what each node did or waits for, and what it left.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Show {
    /// The run's id, or `latest`
    id: RunName,
    /// Draw with ASCII alone
    #[arg(long)]
    ascii: bool,
}

impl Show {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        let status = read(&Runs::new(Arc::clone(&store)), run).await?;
        let now = store.now().await?;
        if app.ui.json {
            app.ui.json(&status_json(&status))?;
        } else {
            sheet(app, &status, now)?;
            app.ui.line("")?;
            let canvas = Canvas::of_terminal(self.ascii);
            app.ui.line(draw_graph::draw(&status.graph, canvas, &|node| look(&status, node, now)))?;
            app.ui.line("")?;
            app.ui.table(&table(&status, now))?;
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

fn sheet(app: &App, status: &RunStatus, now: Timestamp) -> Result<(), Failure> {
    let run = &status.run;
    let field = |name: &str, value: String| app.ui.line(format_args!("{STRONG}{name:>9}{STRONG:#} {value}"));
    field("run", run.id.to_string())?;
    field("workflow", clean(&run.name))?;
    let took = about(run.finished_at.unwrap_or(now).ms_since(run.created_at));
    let summary = if run.summary.is_empty() { String::new() } else { format!(", {}", run.summary) };
    field("state", format!("{}{summary} ({took})", run.state.name()))?;
    field("started", format!("{} ({})", run.created_at, relative(run.created_at, now)))?;
    if let Some(inputs) = inputs_text(&status.inputs) {
        field("inputs", inputs)?;
    }
    if let Some(reason) = &status.progress.cancelled {
        field("cancelled", clean(reason))?;
    }
    if status.progress.timed_out {
        field("note", "it took longer than its timeout".to_owned())?;
    }
    if let Some(stuck) = &run.stuck {
        field("stuck", clean(stuck))?;
    }
    if let Some(way) = way_on(run) {
        field("hint", format!("{way}; windlass runs cancel {} ends it", run.id))?;
    }
    if let Some(at) = run.wake_at.filter(|_| !run.state.is_terminal()) {
        field("ends", format!("by its timeout {}", relative(at, now)))?;
    }
    Ok(())
}

fn table(status: &RunStatus, now: Timestamp) -> Table {
    let mut table = Table::new(&["NODE", "STATE", "TOOK", "JOB", "NOTE"]);
    for node in (0..status.graph.nodes.len()).filter(|&node| is_shown(&status.graph, node)) {
        let (this, times) = (&status.progress.nodes[node], status.times[node]);
        let took = times.started_at.map(|from| about(times.ended_at.unwrap_or(now).ms_since(from)));
        // With several jobs, the one to look at.
        let failed = this.instances.iter().find(|one| one.error.is_some());
        let job = failed.or(this.instances.last()).and_then(|one| one.job);
        let outputs = this.outputs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        table.row(vec![
            text(&status.graph.nodes[node].id),
            whole(mark(status, node).word()),
            whole(took.unwrap_or_else(|| "-".to_owned())),
            whole(job.map_or_else(|| "-".to_owned(), |job| job.to_string())),
            text(reason(status, node).unwrap_or(outputs)),
        ]);
    }
    table
}

const FOLLOW_AFTER: &str = "\
Exit codes: 0 it succeeded, 1 it failed, 130 it was cancelled. Ctrl-C leaves the run to itself.

Examples:
  windlass runs follow
  windlass runs follow r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json";

/// Follow a run with what its jobs say, to its end.
#[derive(Debug, Args)]
#[command(after_help = FOLLOW_AFTER)]
pub(crate) struct Follow {
    /// The run's id, or `latest`
    #[arg(default_value = "latest")]
    id: RunName,
}

impl Follow {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        let state = follow_run::follow(app, &Runs::new(Arc::clone(&store)), run).await?;
        app.ui.note(format_args!("{run} {}", state.name()));
        store.close().await?;
        Ok(exit_code(state))
    }
}
