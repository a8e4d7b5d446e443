//! Looking at the schedules that are due. Any number of processes may do it at once: the store lets one of them through.

use super::plan::{plan, spec_of};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::NewJob;
use crate::name::ScheduleName;
use crate::store::{BATCH_MAX, DueSchedule, Fire, FireOutcome, ScheduleStore};

/// How often an out-of-turn job is tried again when the schedule changes under it.
const TRIGGER_TRIES: u32 = 5;

/// What became of the schedules that were due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// How many schedules moved on to their next tick.
    pub handled: u64,
    /// How many jobs they created.
    pub jobs: u64,
    /// Those that could not be handled, and why. They stay due.
    pub failed: Vec<(ScheduleName, Error)>,
}

/// Handles up to `max` schedules that are due, from 1 to [`BATCH_MAX`]. One that cannot be handled does not stop the others.
///
/// Only a store that is away is an error of the whole.
pub async fn tick(store: &dyn ScheduleStore, max: u32) -> Result<Ticked> {
    let most = u32::try_from(BATCH_MAX).unwrap_or(u32::MAX);
    let mut look = max;
    loop {
        let due = store.due_schedules(look).await?;
        let full = due.len() >= look as usize;
        let ticked = handle(store, &due).await?;
        // What failed is still the most overdue. It must not hide all that comes behind it.
        if !full || ticked.handled > 0 || ticked.failed.is_empty() || look >= most {
            return Ok(ticked);
        }
        look = look.saturating_mul(2).min(most);
    }
}

async fn handle(store: &dyn ScheduleStore, due: &[DueSchedule]) -> Result<Ticked> {
    let mut ticked = Ticked::default();
    for one in due {
        let outcome = match plan(one) {
            Ok(Some(fire)) => store.fire(fire).await,
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(FireOutcome::Fired { jobs }) => {
                ticked.handled += 1;
                ticked.jobs += u64::from(jobs);
            }
            Ok(FireOutcome::Skipped) => ticked.handled += 1,
            Ok(FireOutcome::Stale) => {}
            Err(error) if error.is_outcome_unknown() || matches!(error, Error::Unavailable { .. }) => {
                return Err(error);
            }
            Err(error) => ticked.failed.push((one.schedule.name.clone(), error)),
        }
    }
    Ok(ticked)
}

/// Creates a job of a schedule out of turn, paused or not; its ticks are left alone. The same id again creates nothing.
///
/// `Skipped` when the schedule has [`Overlap::Skip`](super::Overlap::Skip) and its last job has not ended.
pub async fn trigger(store: &dyn ScheduleStore, name: &ScheduleName, id: JobId) -> Result<FireOutcome> {
    for _ in 0..TRIGGER_TRIES {
        let all = store.schedules().await?;
        let Some(schedule) = all.into_iter().find(|schedule| schedule.name == *name) else {
            return Err(Error::not_found(format!("schedule {name}")));
        };
        // No time is noted in the job: a repeated trigger must ask for the very same job.
        let fire = Fire {
            name: name.clone(),
            expected_tick: None,
            revision: schedule.revision,
            jobs: vec![NewJob::new(id, spec_of(&schedule))],
            next_tick: None,
            skip_if_running: schedule.overlap == super::Overlap::Skip,
        };
        match store.fire(fire).await? {
            FireOutcome::Stale => {}
            outcome => return Ok(outcome),
        }
    }
    Ok(FireOutcome::Stale)
}

#[cfg(test)]
#[path = "tick_tests.rs"]
mod tests;
