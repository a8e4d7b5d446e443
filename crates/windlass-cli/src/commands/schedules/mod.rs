//! `windlass schedules`: rules that create jobs.

mod add;
mod apply;
mod change;
mod timing;
mod workflow;

use crate::app::App;
use crate::failure::Failure;
use crate::table::{Cell, maybe, number, text};
use crate::ui::{Listing, STRONG};
use clap::{Args, Subcommand};
use serde_json::json;
use windlass::core::name::ScheduleName;
use windlass::core::schedule::Schedule;
use windlass::core::time::Timestamp;
use windlass_operate::names::find_schedule;
use windlass_operate::schedule_view::{next_ticks, rule_text, schedule_view, scheduled_kind};
use windlass_operate::text::{printable, relative_time};

/// Look at schedules and change them.
#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    List(List),
    Show(Show),
    Add(Box<add::Add>),
    Workflow(Box<workflow::Workflow>),
    Apply(apply::Apply),
    /// Pause a schedule: its ticks pass without a job and are not made up for.
    #[command(after_help = "Examples:\n  windlass schedules pause nightly")]
    Pause(change::SetPaused<true>),
    /// Resume a schedule with its next tick.
    #[command(after_help = "Examples:\n  windlass schedules resume nightly")]
    Resume(change::SetPaused<false>),
    Run(change::Run),
    Remove(change::Remove),
}

dispatch!(Schedules: List, Show, Add, Workflow, Apply, Pause, Resume, Run, Remove);

/// List all schedules.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass schedules list\n  windlass schedules list --json | jq 'select(.paused) | .name'"
)]
pub(crate) struct List {}

impl List {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let now = store.now().await?;
        let headers = ["SCHEDULE", "RULE", "QUEUE", "KIND", "NEXT", "LAST", "FIRED", "NOTE"];
        let mut list = Listing::new(app.ui, &headers);
        for schedule in store.schedules().await? {
            list.add(&schedule_view(&schedule), || row(&schedule, now))?;
        }
        list.end("no schedules", None, "")
    }
}

fn row(schedule: &Schedule, now: Timestamp) -> Vec<Cell> {
    let note = match (schedule.paused, schedule.is_over()) {
        (true, _) => "paused",
        (false, true) => "over",
        (false, false) => "",
    };
    vec![
        text(&schedule.name),
        text(rule_text(&schedule.rule)),
        text(&schedule.spec.queue),
        text(scheduled_kind(&schedule.spec)),
        maybe(schedule.next_tick.map(|tick| relative_time(tick, now))),
        maybe(schedule.last_tick.map(|tick| relative_time(tick, now))),
        number(schedule.fired),
        text(note),
    ]
}

/// Show a schedule and its next ticks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass schedules show nightly-report")]
pub(crate) struct Show {
    /// The schedule
    name: ScheduleName,
}

impl Show {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let schedule = find_schedule(store.as_ref(), &self.name).await?;
        let now = store.now().await?;
        print(app, &schedule, now)
    }
}

/// Arms a schedule, stores it and prints it.
async fn put(app: &App, schedule: Schedule) -> Result<(), Failure> {
    // Before the store is opened, which would make the file.
    schedule.check()?;
    let store = app.store()?;
    let now = store.now().await?;
    let stored = store.schedules().await?.into_iter().find(|stored| stored.name == schedule.name);
    let schedule = schedule.arm(stored.as_ref(), now)?;
    store.put_schedule(schedule.clone()).await?;
    app.ui.note(format_args!("{} `{}`", if stored.is_some() { "changed" } else { "added" }, schedule.name));
    print(app, &schedule, now)?;
    if schedule.is_over() {
        app.ui.note("note: it will never tick; check --start, --end and --limit");
    }
    Ok(())
}

fn print(app: &App, schedule: &Schedule, now: Timestamp) -> Result<(), Failure> {
    let next = next_ticks(schedule, 3)?;
    if app.ui.json {
        let mut value = schedule_view(schedule);
        value["next_ticks"] = json!(next);
        return app.ui.json(&value);
    }
    let field = |name: &str, value: Option<String>| match value {
        Some(value) => app.ui.line(format_args!("{STRONG}{name:<10}{STRONG:#} {}", printable(&value))),
        None => Ok(()),
    };
    let word = |value: serde_json::Value| value.to_string().replace('"', "");
    field("schedule", Some(schedule.name.to_string()))?;
    field("rule", Some(rule_text(&schedule.rule)))?;
    field("job", Some(format!("{} on {}", schedule.spec.kind, schedule.spec.queue)))?;
    field("payload", Some(String::from_utf8_lossy(&schedule.spec.payload.bytes).into_owned()))?;
    field("start", schedule.start.map(|time| time.to_string()))?;
    field("end", schedule.end.map(|time| time.to_string()))?;
    field("limit", schedule.limit.map(|limit| format!("{} of {limit} fired", schedule.fired)))?;
    field("overlap", Some(word(json!(schedule.overlap))))?;
    field("catch up", Some(word(json!(schedule.catch_up))))?;
    field("paused", schedule.paused.then(|| "yes".to_owned()))?;
    field("last tick", schedule.last_tick.map(|tick| format!("{tick} ({})", relative_time(tick, now))))?;
    field("last job", schedule.last_job.map(|job| job.to_string()))?;
    for tick in &next {
        field("next", Some(format!("{tick} ({})", relative_time(*tick, now))))?;
    }
    if next.is_empty() { field("next", Some("never again".to_owned())) } else { Ok(()) }
}
