//! `windlass runs show` of a run of a workflow in code.

use crate::app::App;
use crate::failure::Failure;
use crate::table::{Table, maybe, number, text, whole};
use crate::ui::STRONG;
use std::collections::BTreeSet;
use windlass::core::id::RunId;
use windlass::core::store::Store;
use windlass::core::time::Timestamp;
use windlass::durable::Unreadable;
use windlass_operate::code_run::{CodeRunView, Operation, is_remarkable, read_code_run, short_json};
use windlass_operate::run_view::resume_hint;
use windlass_operate::text::{count, printable, relative_time, rough_duration};

/// Operations that are shown unless all are wanted: those that are open or failed, and the last ones.
const SHOWN_MAX: usize = 50;
/// The same for programs.
const SHOWN_MAX_JSON: usize = 1_000;
const LAST_SHOWN: usize = 20;

/// Prints a code run; with `all`, every operation of it.
pub(super) async fn show(app: &App, store: &dyn Store, run: RunId, all: bool) -> Result<(), Failure> {
    let mut view = read_code_run(store, run).await?;
    if app.ui.json {
        if !all {
            view.shorten(SHOWN_MAX_JSON);
        }
        return app.ui.json(&view);
    }
    let now = store.now().await?;
    sheet(app, &view, now)?;
    if view.operations.is_empty() {
        return Ok(());
    }
    app.ui.line("")?;
    let (table, omitted) = operation_table(&view.operations, now, all);
    app.ui.table(&table)?;
    if omitted > 0 {
        app.ui.line(format_args!("{} more; --all shows them", count(omitted as u64, "operation")))?;
    }
    if view.records_omitted > 0 {
        app.ui.line(format_args!(
            "{} are not shown; windlass runs history {run} prints them",
            count(view.records_omitted, "later record")
        ))?;
    }
    Ok(())
}

fn sheet(app: &App, view: &CodeRunView, now: Timestamp) -> Result<(), Failure> {
    let run = &view.run;
    let is_open = !run.state.is_terminal();
    let field = |name: &str, value: String| app.ui.line(format_args!("{STRONG}{name:>9}{STRONG:#} {value}"));
    field("run", run.id.to_string())?;
    field("workflow", format!("{}, version {}", printable(&view.workflow), printable(&view.version)))?;
    if run.name != view.workflow {
        field("name", printable(&run.name))?;
    }
    let took = rough_duration(run.finished_at.unwrap_or(now).ms_since(run.created_at));
    let summary =
        if is_open && !run.summary.is_empty() { format!(", {}", printable(&run.summary)) } else { String::new() };
    field("state", format!("{}{summary} ({took})", run.state.name()))?;
    field("created", format!("{} ({})", run.created_at, relative_time(run.created_at, now)))?;
    if let Some(parent) = run.parent {
        field("parent", parent.to_string())?;
    }
    if !run.labels.is_empty() {
        let labels: Vec<String> = run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        field("labels", printable(&labels.join(", ")))?;
    }
    if let Some(deadline) = view.deadline.filter(|_| is_open) {
        field("deadline", format!("{deadline} ({})", relative_time(deadline, now)))?;
    }
    if let Some(input) = view.input.as_ref().filter(|input| input.get() != "null") {
        field("input", short_json(input.get()))?;
    }
    if is_open && run.unread_messages > 0 {
        let names = if view.unread.is_empty() { String::new() } else { format!(": {}", view.unread.join(", ")) };
        field("unread", count(run.unread_messages, "message") + &printable(&names))?;
    }
    if let Some(stuck) = run.stuck.as_ref().filter(|_| is_open) {
        let mut lines = stuck.lines().map(printable);
        field("stuck", lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| field("", line))?;
    }
    if let Some(hint) = resume_hint(run) {
        field("hint", format!("{hint}; windlass runs terminate {} ends it", run.id))?;
    }
    if run.stuck.as_deref().and_then(Unreadable::of_reason).is_some_and(|message| is_open && !message.was_received) {
        field("", format!("windlass runs discard {} drops the message that it cannot read", run.id))?;
    }
    for (name, value) in &view.published {
        let value = value.as_ref().map_or("null", |value| value.get());
        field("published", format!("{} = {}", printable(name), short_json(value)))?;
    }
    if let Some(error) = &run.error {
        // The summary of a terminated run has the reason, once a worker has cleaned up.
        let error = if run.summary.starts_with("terminated: ") { &run.summary } else { error };
        field("error", printable(error))?;
    }
    if let Some(result) = &view.result {
        field("result", printable(result.get()))?;
    }
    // Of few operations the table says it all.
    let is_many = view.operations.len() > SHOWN_MAX;
    for group in view.groups.iter().filter(|_| is_many) {
        field("", printable(&format!("{}: {}", group.title(), group.counts_text())))?;
    }
    Ok(())
}

/// The table of operations, and how many are left out.
pub(in crate::commands) fn operation_table(rows: &[Operation], now: Timestamp, all: bool) -> (Table, usize) {
    let mut shown: BTreeSet<u64> = rows.iter().map(|row| row.number).collect();
    if !all && rows.len() > SHOWN_MAX {
        let last = rows[rows.len() - LAST_SHOWN..].iter().map(|row| row.number);
        shown = rows
            .iter()
            .filter(|row| is_remarkable(row))
            .take(SHOWN_MAX - LAST_SHOWN)
            .map(|row| row.number)
            .chain(last)
            .collect();
    }
    let mut table = Table::new(&["NR", "OPERATION", "STATE", "TOOK", "NOTE", "PLACE", "JOB OR RUN"]);
    let cells = |row: &Operation| {
        let id = row.job_id.map(|job| job.to_string()).or_else(|| row.run_id.map(|run| run.to_string()));
        vec![
            number(row.number),
            text(row.title()),
            whole(row.state_name()),
            whole(row.duration_ms(now).map_or_else(|| "-".to_owned(), rough_duration)),
            text(row.note(now)),
            maybe(Some(&row.place).filter(|place| !place.is_empty())),
            whole(id.unwrap_or_else(|| "-".to_owned())),
        ]
    };
    rows.iter().filter(|row| shown.contains(&row.number)).for_each(|row| table.row(cells(row)));
    (table, rows.len() - shown.len())
}
