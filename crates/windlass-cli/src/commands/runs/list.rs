//! `windlass runs list`.

use crate::app::App;
use crate::failure::Failure;
use crate::table::{Cell, text, whole};
use crate::ui::Listing;
use clap::{Args, ValueEnum};
use comfy_table::Color;
use windlass::core::store::{LIST_MAX, ListOrder, Run, RunLabel, RunList, RunState};
use windlass::core::time::Timestamp;
use windlass_operate::names::RunName;
use windlass_operate::run_view::{list_runs, listed_note};
use windlass_operate::text::{relative_time, rough_duration};
use windlass_operate::values::pair;

const AFTER: &str = "\
The latest come first. With --json each run is a line; when there are more, the last line is {\"cursor\": \"…\"} for --cursor.

Examples:
  windlass runs list
  windlass runs list --state failed --json | jq -r .id
  windlass runs list --kind order --label tenant=acme
  windlass runs list --stuck";

/// List runs, the latest first.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct List {
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateName>,
    /// Only those of this kind: a workflow in code with or without its version, or `graph`
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only those that no engine can advance
    #[arg(long)]
    stuck: bool,
    /// Only those that this run has started
    #[arg(long, value_name = "RUN")]
    parent: Option<RunName>,
    /// Only those with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    label: Option<(String, String)>,
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
    #[value(name = "timed_out", alias = "timed-out")]
    TimedOut,
    Terminated,
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
            Self::TimedOut => RunState::TimedOut,
            Self::Terminated => RunState::Terminated,
        }
    }
}

impl List {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let order = if self.oldest { ListOrder::Ascending } else { ListOrder::Descending };
        let state = self.state.map(StateName::state);
        let parent = match self.parent {
            Some(parent) => Some(parent.find(store.as_ref()).await?),
            None => None,
        };
        let stuck = (self.stuck || self.state == Some(StateName::Stuck)).then_some(true);
        let label = self.label.map(|(name, value)| RunLabel { name, value });
        let (kind, cursor) = (self.kind, self.cursor);
        let list = RunList { state, kind, stuck, parent, label, order, cursor, ..RunList::new(self.limit) };
        let page = list_runs(store.as_ref(), list).await?;
        let now = store.now().await?;
        let mut list = Listing::new(app.ui, &["ID", "NAME", "KIND", "STATE", "STARTED", "TOOK", "NOTE"]);
        page.runs.iter().try_for_each(|run| list.add(run, || row(run, now)))?;
        list.end("no runs", page.cursor, "")
    }
}

fn row(run: &Run, now: Timestamp) -> Vec<Cell> {
    vec![
        whole(run.id),
        text(&run.name),
        text(run.kind.as_str()),
        state(run),
        whole(relative_time(run.created_at, now)),
        whole(rough_duration(run.finished_at.unwrap_or(now).ms_since(run.created_at))),
        text(listed_note(run)),
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
        RunState::Failed | RunState::TimedOut => cell.color(Color::Red),
        RunState::Cancelled | RunState::Terminated => cell.color(Color::DarkGrey),
    }
}
