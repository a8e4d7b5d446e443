//! `windlass schedules pause`, `resume`, `run` and `remove`.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use windlass::core::name::ScheduleName;
use windlass::core::schedule::{Schedule, trigger};
use windlass::core::store::FireOutcome;
use windlass_operate::enqueue::ids;
use windlass_operate::names::find_schedule;

/// Pause a schedule: its ticks pass without a job and are not made up for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass schedules pause nightly")]
pub(crate) struct Pause {
    /// The schedule
    name: ScheduleName,
}

/// Resume a schedule with its next tick.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass schedules resume nightly")]
pub(crate) struct Resume {
    /// The schedule
    name: ScheduleName,
}

impl Pause {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        set_paused(app, &self.name, true).await
    }
}

impl Resume {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        set_paused(app, &self.name, false).await
    }
}

async fn set_paused(app: &App, name: &ScheduleName, paused: bool) -> Result<ExitCode, Failure> {
    let store = app.existing()?;
    let (stored, now) = (find_schedule(store.as_ref(), name).await?, store.now().await?);
    let before = stored.paused;
    let changed = Schedule { paused, ..stored.clone() }.arm(Some(&stored), now)?;
    if before != paused {
        store.put_schedule(changed.clone()).await?;
    }
    if app.ui.json {
        app.ui
            .json(&json!({ "schedule": name, "paused": paused, "before": before, "next_tick": changed.next_tick }))?;
    } else {
        let state = if paused { "paused" } else { "running" };
        let text =
            if before == paused { format!("`{name}` was {state} already") } else { format!("`{name}` is {state}") };
        let next = changed.next_tick.filter(|_| !paused).map_or(String::new(), |tick| format!("; next at {tick}"));
        app.ui.line(format_args!("{text}{next}"))?;
    }
    store.close().await?;
    Ok(ExitCode::SUCCESS)
}

/// Create a job of a schedule now, out of turn; its ticks are left alone.
#[derive(Debug, Args)]
#[command(after_help = "Prints the job's id.\n\nExamples:\n  windlass schedules run nightly")]
pub(crate) struct Run {
    /// The schedule
    name: ScheduleName,
}

impl Run {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let name = find_schedule(store.as_ref(), &self.name).await?.name;
        let id = ids().next();
        match trigger(store.as_ref(), &name, id).await? {
            FireOutcome::Fired { jobs } => {
                // Another job may stand for it, by its dedup key.
                let last = find_schedule(store.as_ref(), &name).await?.last_job.filter(|_| jobs == 0);
                let id = last.unwrap_or(id);
                if app.ui.json {
                    app.ui.json(&json!({ "schedule": name, "id": id, "created": jobs > 0 }))?;
                } else {
                    if jobs == 0 {
                        app.ui.note("note: another job with its dedup key stands for it; this is its id");
                    }
                    app.ui.line(id)?;
                }
            }
            FireOutcome::Skipped => {
                return Err(Failure::conflict(format!(
                    "the last job of `{name}` has not ended, and it must not overlap"
                ))
                .hint(format!("wait for it; windlass schedules show {name} names it")));
            }
            FireOutcome::Stale => {
                return Err(Failure::conflict(format!("`{name}` is being changed all the time")).hint("try again"));
            }
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Remove a schedule; the jobs that it created stay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass schedules remove nightly --yes")]
pub(crate) struct Remove {
    /// The schedule
    name: ScheduleName,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Remove {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        app.ui.confirm(format_args!("remove the schedule `{}`", self.name), self.yes)?;
        // Not looked up before: one that cannot be read is removed in this way, too.
        if !store.remove_schedule(self.name.clone()).await? {
            return Err(Failure::not_found(format!("there is no schedule `{}`", self.name)));
        }
        if app.ui.json {
            app.ui.json(&json!({ "schedule": self.name, "removed": true }))?;
        } else {
            app.ui.line(format_args!("`{}` is removed", self.name))?;
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}
