//! `windlass runs list`.

use crate::app::App;
use crate::failure::Failure;
use crate::run_view::run_json;
use crate::table::{Cell, Table, text, whole};
use crate::values::{about, relative};
use clap::{Args, ValueEnum};
use comfy_table::Color;
use serde_json::json;
use std::process::ExitCode;
use windlass::core::store::{LIST_MAX, ListOrder, Run, RunList, RunPage, RunState, Store};
use windlass::core::time::Timestamp;

const AFTER: &str = "\
The latest come first. With --json each run is a line; when there are more, the last line is {\"cursor\": \"…\"} for --cursor.

Examples:
  windlass runs list
  windlass runs list --state failed --json | jq -r .id";

/// List runs, the latest first.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct List {
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateName>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)))]
    limit: u32,
    /// Go on where an earlier listing ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// The earliest first
    #[arg(long)]
    oldest: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StateName {
    Running,
    Succeeded,
    Failed,
    Cancelled,
    // Running, and no engine can go on with it.
    Stuck,
}

impl StateName {
    fn state(self) -> RunState {
        match self {
            Self::Running | Self::Stuck => RunState::Running,
            Self::Succeeded => RunState::Succeeded,
            Self::Failed => RunState::Failed,
            Self::Cancelled => RunState::Cancelled,
        }
    }
}

impl List {
    async fn page(&self, store: &dyn Store) -> Result<RunPage, Failure> {
        let order = if self.oldest { ListOrder::Ascending } else { ListOrder::Descending };
        let state = self.state.map(StateName::state);
        let (mut found, mut cursor) = (Vec::new(), self.cursor.clone());
        let mut limit = self.limit;
        // Stores know nothing of stuck runs; those that run are looked through, and never more are asked for than still fit.
        loop {
            let page = store.list_runs(RunList { state, order, cursor, limit }).await?;
            let wanted = |run: &Run| self.state != Some(StateName::Stuck) || run.stuck.is_some();
            found.extend(page.runs.into_iter().filter(wanted));
            limit = self.limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            if limit == 0 || page.cursor.is_none() || self.state != Some(StateName::Stuck) {
                return Ok(RunPage { runs: found, cursor: page.cursor });
            }
            cursor = page.cursor;
        }
    }

    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let page = self.page(store.as_ref()).await?;
        let now = store.now().await?;
        if app.ui.json {
            for run in &page.runs {
                app.ui.json(&run_json(run))?;
            }
            if let Some(cursor) = page.cursor {
                app.ui.json(&json!({ "cursor": cursor }))?;
            }
        } else if page.runs.is_empty() {
            app.ui.note("no runs");
        } else {
            let mut table = Table::new(&["ID", "NAME", "STATE", "STARTED", "TOOK", "NOTE"]);
            page.runs.iter().for_each(|run| table.row(row(run, now)));
            app.ui.table(&table)?;
            if let Some(cursor) = page.cursor {
                app.ui.note(format_args!("there are more: --cursor {cursor}"));
            }
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

fn row(run: &Run, now: Timestamp) -> Vec<Cell> {
    let note = run.damaged.as_ref().map(|why| format!("damaged: {why}"));
    let note = note.or_else(|| run.stuck.as_ref().map(|why| format!("stuck: {why}")));
    vec![
        whole(run.id),
        text(&run.name),
        state(run),
        whole(relative(run.created_at, now)),
        whole(about(run.finished_at.unwrap_or(now).ms_since(run.created_at))),
        text(note.unwrap_or_else(|| run.summary.clone())),
    ]
}

pub(super) fn state(run: &Run) -> Cell {
    if run.damaged.is_some() || run.stuck.is_some() {
        return whole(if run.damaged.is_some() { "damaged" } else { "stuck" }).color(Color::Red);
    }
    let cell = whole(run.state.name());
    match run.state {
        RunState::Running => cell.color(Color::Cyan),
        RunState::Succeeded => cell.color(Color::Green),
        RunState::Failed => cell.color(Color::Red),
        RunState::Cancelled => cell.color(Color::DarkGrey),
    }
}
