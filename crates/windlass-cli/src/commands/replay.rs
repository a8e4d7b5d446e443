//! `windlass replay`.

use crate::app::App;
use crate::commands::runs::code::operation_table;
use crate::failure::Failure;
use crate::follow_code::print_record;
use crate::ui::{DIM, STRONG};
use clap::Args;
use std::path::PathBuf;
use windlass::core::time::Timestamp;
use windlass::runs::RunExport;
use windlass_operate::code_run::{RunAt, Step, read_run_at, read_steps};
use windlass_operate::text::{count, printable};

const AFTER: &str = "\
FILE is what windlass runs export has written. It shows what the history says: each operation of the present segment as it was \
before record N, and which ones the code waited for. No code is executed, and no store is opened.

To replay the history against the code of the workflow, write a test in the program that has it:
  windlass::durable::Replay::of_file(\"order-7.json\")?.against(order)?
It returns what the code waits for, or why the run is stuck, with both sides.

Examples:
  windlass replay order-7.json
  windlass replay order-7.json --until 12
  windlass replay order-7.json --steps --json | jq -c '{number: .record.number, open}'";

/// Show an exported run of a workflow in code as it was at a record of its history.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Replay {
    /// The exported run
    file: PathBuf,
    /// Only the records before this number
    #[arg(long, value_name = "N")]
    until: Option<u64>,
    /// Print each record, with the operations that are open behind it
    #[arg(long)]
    steps: bool,
    /// Show every operation, however many they are
    #[arg(long)]
    all: bool,
}

/// Operations in JSON, unless all are wanted.
const OPERATIONS_MAX: usize = 1_000;

impl Replay {
    pub(crate) fn run(self, app: &App) -> Result<(), Failure> {
        let export = RunExport::of_file(&self.file)?;
        if self.steps {
            let steps = read_steps(&export, self.until)?;
            return steps.iter().try_for_each(|step| print_step(app, step));
        }
        let mut at = read_run_at(&export, self.until)?;
        if app.ui.json {
            if !self.all {
                at.shorten(OPERATIONS_MAX);
            }
            return app.ui.json(&at);
        }
        // Times are relative to the last event that is shown.
        let now = at.at.unwrap_or(export.run.created_at);
        sheet(app, &export, &at)?;
        if !at.operations.is_empty() {
            app.ui.line("")?;
            let (table, omitted) = operation_table(&at.operations, now, self.all);
            app.ui.table(&table)?;
            if omitted > 0 {
                app.ui.line(format_args!("{} more; --all shows them", count(omitted as u64, "operation")))?;
            }
        }
        app.ui.note(
            "hint: to replay it against the code: windlass::durable::Replay::of_file(FILE)?.against(WORKFLOW), in a test of the \
             program that has the code",
        );
        Ok(())
    }
}

fn sheet(app: &App, export: &RunExport, at: &RunAt) -> Result<(), Failure> {
    let field =
        |name: &str, value: String| app.ui.line(format_args!("{STRONG}{name:>9}{STRONG:#} {}", printable(&value)));
    field("run", at.run.to_string())?;
    field("workflow", at.kind.clone())?;
    let time = |at: Timestamp| format!(", the last event at {at}");
    field(
        "records",
        format!("{} to {} of {}{}", at.segment_from, at.until, at.history_len, at.at.map(time).unwrap_or_default()),
    )?;
    if let Some(ended) = at.ended {
        field("ended", ended.to_owned())?;
    }
    for group in &at.groups {
        field("", format!("{}: {}", group.title(), group.counts_text()))?;
    }
    let pending: Vec<String> = at.pending().take(5).map(|row| format!("{} at {}", row.title(), row.place)).collect();
    let more = at.pending().count().saturating_sub(pending.len());
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    match (pending.is_empty(), at.ended) {
        (false, _) => field("pending", format!("{}{more}", pending.join(", ")))?,
        (true, None) => {
            field(
                "pending",
                "no call, timer or child; receivers of signals and local steps have no record".to_owned(),
            )?;
        }
        (true, Some(_)) => {}
    }
    match &export.run.stuck {
        Some(stuck) => field("stuck", stuck.lines().next().unwrap_or_default().to_owned()),
        None => Ok(()),
    }
}

fn print_step(app: &App, step: &Step) -> Result<(), Failure> {
    if app.ui.json {
        return app.ui.json(step);
    }
    print_record(app.ui, &step.record)?;
    let open: Vec<String> = step.open.iter().map(ToString::to_string).collect();
    let more = if step.open_count > open.len() as u64 { " …" } else { "" };
    app.ui.line(format_args!("{DIM}{:>6}  {} open: {}{more}{DIM:#}", "", step.open_count, open.join(" ")))
}
