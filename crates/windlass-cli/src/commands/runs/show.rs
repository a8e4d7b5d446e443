//! `windlass runs show` and `windlass runs follow`.

use super::code;
use crate::app::App;
use crate::draw_graph::{self, Canvas};
use crate::failure::Failure;
use crate::failure::exit_code;
use crate::follow_code::follow_code;
use crate::follow_run;
use crate::table::{Cell, Table, text, whole};
use crate::ui::STRONG;
use clap::Args;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};
use windlass_operate::code_run::{is_code, read_brief};
use windlass_operate::names::RunName;
use windlass_operate::run_view::{
    NodeRow, NodeState, OmittedRows, RunJobs, inputs_text, is_shown, node_title, read_run, resume_hint,
};
use windlass_operate::text::{printable, relative_time, rough_duration};

const AFTER: &str = "\
What waits for what, why a node was skipped, and which job to look at: windlass explain JOB, windlass jobs logs JOB. A node \
with a matrix has a line for each row; of more than 20, those that failed or run. A run of a workflow in code is shown by its \
operations: calls, timers, children, signals, local steps; of more than 50, those that are open or failed, and the last ones.

Examples:
  windlass runs show latest
  windlass runs show r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json | jq '.nodes[] | select(.state == \"failed\")'";

/// Show a run: its graph or its operations, what each did or waits for, and what it left.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Show {
    /// The run's id, `latest`, or the name that it was given with --id
    id: RunName,
    /// Draw with ASCII alone
    #[arg(long)]
    ascii: bool,
    /// Show every row of a matrix and every operation, however many they are
    #[arg(long)]
    all: bool,
}

impl Show {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        if is_code(&read_brief(store.as_ref(), run).await?) {
            return code::show(app, store.as_ref(), run, self.all).await;
        }
        let status = read_run(&Runs::new(Arc::clone(&store)), run).await?;
        let jobs = RunJobs::read(store.as_ref(), &status).await?;
        let now = store.now().await?;
        if app.ui.json {
            app.ui.json(&jobs.view(&status))?;
        } else {
            sheet(app, &status, now)?;
            app.ui.line("")?;
            let canvas = Canvas::of_terminal(self.ascii);
            app.ui.line(draw_graph::draw(&status.graph, canvas, &|node| jobs.summary(&status, node, now)))?;
            app.ui.line("")?;
            app.ui.table(&Nodes { status: &status, jobs: &jobs, now, all: self.all }.table())?;
        }
        Ok(())
    }
}

fn sheet(app: &App, status: &RunStatus, now: Timestamp) -> Result<(), Failure> {
    let run = &status.run;
    let field = |name: &str, value: String| app.ui.line(format_args!("{STRONG}{name:>9}{STRONG:#} {value}"));
    field("run", run.id.to_string())?;
    field("workflow", printable(&run.name))?;
    let took = rough_duration(run.finished_at.unwrap_or(now).ms_since(run.created_at));
    let summary = if run.summary.is_empty() { String::new() } else { format!(", {}", run.summary) };
    field("state", format!("{}{summary} ({took})", run.state.name()))?;
    field("started", format!("{} ({})", run.created_at, relative_time(run.created_at, now)))?;
    if let Some(inputs) = inputs_text(&status.inputs) {
        field("inputs", inputs)?;
    }
    if let Some(reason) = &status.progress.cancelled {
        field("cancelled", printable(reason))?;
    }
    if status.progress.timed_out {
        field("note", "it took longer than its timeout".to_owned())?;
    }
    if let Some(stuck) = &run.stuck {
        field("stuck", printable(stuck))?;
    }
    if let Some(way) = resume_hint(run) {
        field("hint", format!("{way}; windlass runs cancel {} ends it", run.id))?;
    }
    if let Some(at) = run.wake_at.filter(|_| !run.state.is_terminal()) {
        field("ends", format!("by its timeout {}", relative_time(at, now)))?;
    }
    Ok(())
}

/// What is shown of the nodes.
struct Nodes<'a> {
    status: &'a RunStatus,
    jobs: &'a RunJobs,
    now: Timestamp,
    /// Every row of a matrix.
    all: bool,
}

impl Nodes<'_> {
    fn table(&self) -> Table {
        let graph = &self.status.graph;
        let shown: Vec<usize> = (0..graph.nodes.len()).filter(|&node| is_shown(graph, node)).collect();
        let titled = shown.iter().any(|&node| node_title(&graph.nodes[node]).is_some());
        let mut table = match titled {
            true => Table::new(&["NODE", "NAME", "STATE", "TOOK", "JOB", "NOTE"]),
            false => Table::new(&["NODE", "STATE", "TOOK", "JOB", "NOTE"]),
        };
        let mut add = |name: Option<&str>, row: &NodeRow| {
            let mut cells = cells(row);
            if titled {
                cells.insert(1, text(name.unwrap_or("")));
            }
            table.row(cells);
        };
        for node in shown {
            let title = node_title(&graph.nodes[node]);
            add(title, &self.jobs.node_row(self.status, node, self.now));
            let (rows, omitted) = self.jobs.matrix_rows(self.status, node, self.now, self.all);
            rows.iter().for_each(|row| add(None, row));
            if let Some(omitted) = omitted {
                add(None, &omitted_row(&graph.nodes[node].id, &omitted));
            }
        }
        table
    }
}

fn omitted_row(node: &str, omitted: &OmittedRows) -> NodeRow {
    let words: Vec<String> = omitted.counts.iter().map(|(state, count)| format!("{count} {}", state.name())).collect();
    let count: usize = omitted.counts.iter().map(|(_, count)| count).sum();
    NodeRow {
        label: format!("{node} ({count} more)"),
        state: omitted.counts.first().map_or(NodeState::Waiting, |(state, _)| *state),
        job: None,
        duration_ms: None,
        note: format!("{}; --all shows them", words.join(", ")),
    }
}

fn cells(row: &NodeRow) -> Vec<Cell> {
    vec![
        text(&row.label),
        whole(row.state.name()),
        whole(row.duration_ms.map_or_else(|| "-".to_owned(), rough_duration)),
        whole(row.job.map_or_else(|| "-".to_owned(), |job| job.to_string())),
        text(&row.note),
    ]
}

const FOLLOW_AFTER: &str = "\
Of a workflow in code the records of its history are printed, and its result. Exit codes: 0 it succeeded, 1 it failed, 130 \
it was cancelled. Ctrl-C leaves the run to itself.

Examples:
  windlass runs follow
  windlass runs follow r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json";

/// Follow a run with what its jobs say, to its end.
#[derive(Debug, Args)]
#[command(after_help = FOLLOW_AFTER)]
pub(crate) struct Follow {
    /// The run's id, `latest`, or the name that it was given with --id
    #[arg(default_value = "latest")]
    id: RunName,
}

impl Follow {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        if is_code(&read_brief(store.as_ref(), run).await?) {
            return Ok(exit_code(follow_code(app, &store, run, false).await?));
        }
        let state = follow_run::follow(app, &Runs::new(Arc::clone(&store)), run).await?;
        app.ui.note(format_args!("{run} {}", state.name()));
        Ok(exit_code(state))
    }
}
