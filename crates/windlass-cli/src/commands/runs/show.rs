//! `windlass runs show` and `windlass runs follow`.

use crate::app::App;
use crate::commands::run::inputs_text;
use crate::draw_graph::{self, Canvas, Mark, title};
use crate::failure::Failure;
use crate::follow_run;
use crate::run_jobs::{Row, RunJobs};
use crate::run_view::{RunName, exit_code, is_shown, read, way_on};
use crate::table::{Cell, Table, text, whole};
use crate::ui::STRONG;
use crate::values::{about, clean, relative};
use clap::Args;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::time::Timestamp;
use windlass::runs::{RunStatus, Runs};

const AFTER: &str = "\
What waits for what, why a node was skipped, and which job to look at: windlass explain JOB, windlass jobs logs JOB. A node \
with a matrix has a line for each row; of more than 20, those that failed or run.

Examples:
  windlass runs show latest
  windlass runs show r0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json | jq '.nodes[] | select(.state == \"failed\")'";

/// Show a run: its graph, what each node did or waits for, and what it left.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Show {
    /// The run's id, `latest`, or the name that it was given with --id
    id: RunName,
    /// Draw with ASCII alone
    #[arg(long)]
    ascii: bool,
    /// Show every row of a matrix, however many they are
    #[arg(long)]
    all: bool,
}

impl Show {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let run = self.id.find(store.as_ref()).await?;
        let status = read(&Runs::new(Arc::clone(&store)), run).await?;
        let jobs = RunJobs::read(store.as_ref(), &status).await?;
        let now = store.now().await?;
        if app.ui.json {
            app.ui.json(&jobs.json(&status))?;
        } else {
            sheet(app, &status, now)?;
            app.ui.line("")?;
            let canvas = Canvas::of_terminal(self.ascii);
            app.ui.line(draw_graph::draw(&status.graph, canvas, &|node| jobs.look(&status, node, now)))?;
            app.ui.line("")?;
            app.ui.table(&Nodes { status: &status, jobs: &jobs, now, all: self.all }.table())?;
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

/// More rows of a node are not all shown.
const ROWS_SHOWN: usize = 20;

/// What is shown of the nodes.
struct Nodes<'a> {
    status: &'a RunStatus,
    jobs: &'a RunJobs,
    now: Timestamp,
    /// Every row.
    all: bool,
}

impl Nodes<'_> {
    fn table(&self) -> Table {
        let graph = &self.status.graph;
        let shown: Vec<usize> = (0..graph.nodes.len()).filter(|&node| is_shown(graph, node)).collect();
        let titled = shown.iter().any(|&node| title(&graph.nodes[node]).is_some());
        let mut table = match titled {
            true => Table::new(&["NODE", "NAME", "STATE", "TOOK", "JOB", "NOTE"]),
            false => Table::new(&["NODE", "STATE", "TOOK", "JOB", "NOTE"]),
        };
        let mut row = |name: Option<&str>, row: &Row| {
            let mut cells = cells(row);
            if titled {
                cells.insert(1, text(name.unwrap_or("")));
            }
            table.row(cells);
        };
        for node in shown {
            row(title(&graph.nodes[node]), &self.node(node));
            for one in self.rows(node) {
                row(None, &one);
            }
        }
        table
    }

    fn node(&self, node: usize) -> Row {
        let this = &self.status.progress.nodes[node];
        let outputs = this.outputs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        // Rows have jobs and errors of their own.
        let done = format!("{} of {} done", this.ended, this.instances.len());
        let note = match (this.rows.is_empty(), this.outputs.is_empty()) {
            (true, _) => self.jobs.reason(self.status, node).unwrap_or(outputs),
            (false, true) => done,
            (false, false) => format!("{done}; {outputs}"),
        };
        Row {
            label: self.status.graph.nodes[node].id.clone(),
            mark: self.jobs.mark(self.status, node),
            job: this.instances.last().and_then(|one| one.job).filter(|_| this.rows.is_empty()),
            took_ms: self.jobs.took_ms(self.status, node, self.now),
            note,
        }
    }

    /// The rows of a node; of very many those that one looks for, and how the others stand.
    fn rows(&self, node: usize) -> Vec<Row> {
        let rows = self.jobs.rows(self.status, node, self.now);
        if self.all || rows.len() <= ROWS_SHOWN {
            return rows;
        }
        let (mut shown, others): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| matches!(row.mark, Mark::Failed | Mark::Running));
        let tally = |mark: Mark| match others.iter().filter(|row| row.mark == mark).count() {
            0 => None,
            count => Some((mark, format!("{count} {}", mark.word()))),
        };
        let tallies: Vec<(Mark, String)> = Mark::ALL.into_iter().filter_map(tally).collect();
        if let Some(&(mark, _)) = tallies.first() {
            let words: Vec<String> = tallies.into_iter().map(|(_, words)| words).collect();
            let label = format!("{} ({} more)", self.status.graph.nodes[node].id, others.len());
            let note = format!("{}; --all shows them", words.join(", "));
            shown.push(Row { label, mark, job: None, took_ms: None, note });
        }
        shown
    }
}

fn cells(row: &Row) -> Vec<Cell> {
    vec![
        text(&row.label),
        whole(row.mark.word()),
        whole(row.took_ms.map_or_else(|| "-".to_owned(), about)),
        whole(row.job.map_or_else(|| "-".to_owned(), |job| job.to_string())),
        text(&row.note),
    ]
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
    /// The run's id, `latest`, or the name that it was given with --id
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
