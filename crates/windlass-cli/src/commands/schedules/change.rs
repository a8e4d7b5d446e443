//! `windlass schedules pause`, `resume`, `run` and `remove`.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use serde_json::json;
use windlass::core::name::ScheduleName;
use windlass::core::schedule::{Schedule, trigger};
use windlass::core::store::FireOutcome;
use windlass_operate::enqueue::ids;
use windlass_operate::names::find_schedule;

// Arguments of `pause` and `resume`, which are described where they are listed.
#[derive(Debug, Args)]
pub(crate) struct SetPaused<const PAUSED: bool> {
    /// The schedule
    name: ScheduleName,
}

impl<const PAUSED: bool> SetPaused<PAUSED> {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let (stored, now) = (find_schedule(store.as_ref(), &self.name).await?, store.now().await?);
        let (name, before) = (&self.name, stored.paused);
        let changed = Schedule { paused: PAUSED, ..stored.clone() }.arm(Some(&stored), now)?;
        if before != PAUSED {
            store.put_schedule(changed.clone()).await?;
        }
        if app.ui.json {
            app.ui.json(
                &json!({ "schedule": name, "paused": PAUSED, "before": before, "next_tick": changed.next_tick }),
            )?;
        } else {
            let state = if PAUSED { "paused" } else { "running" };
            let text =
                if before == PAUSED { format!("`{name}` was {state} already") } else { format!("`{name}` is {state}") };
            let next = changed.next_tick.filter(|_| !PAUSED).map_or(String::new(), |tick| format!("; next at {tick}"));
            app.ui.line(format_args!("{text}{next}"))?;
        }
        Ok(())
    }
}

/// Create a job of a schedule now, out of turn; its ticks are left alone.
#[derive(Debug, Args)]
#[command(after_help = "Prints the job's id.\n\nExamples:\n  windlass schedules run nightly")]
pub(crate) struct Run {
    /// The schedule
    name: ScheduleName,
}

impl Run {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
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
        Ok(())
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
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        app.ui.confirm(format_args!("remove the schedule `{}`", self.name), self.yes)?;
        // Not looked up before: one that cannot be read is removed in this way, too.
        if !store.remove_schedule(self.name.clone()).await? {
            return Err(Failure::not_found(format!("there is no schedule `{}`", self.name)));
        }
        app.ui.result(&json!({ "schedule": self.name, "removed": true }), format_args!("`{}` is removed", self.name))
    }
}
