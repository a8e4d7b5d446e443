//! Schedules: the row is the truth. Policy is computed by [`crate::schedule`]; the store only fences.

use super::queue::BATCH_MAX;
use crate::error::{Error, Result};
use crate::job::{NewJob, State};
use crate::name::ScheduleName;
use crate::schedule::Schedule;
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Rules that create jobs.
#[async_trait]
pub trait ScheduleStore: Send + Sync + 'static {
    /// Makes or changes a schedule. `next_tick` of the given one counts, and its history is kept from the stored one. A tick
    /// that was handled after the given one was read does not come back ([`Schedule::replace`]).
    async fn put_schedule(&self, schedule: Schedule) -> Result<()>;

    /// Removes a schedule; false when there was none. Jobs that it created stay.
    async fn remove_schedule(&self, name: ScheduleName) -> Result<bool>;

    /// All schedules, by name.
    async fn schedules(&self) -> Result<Vec<Schedule>>;

    /// Schedules that are not paused and whose next tick has come by the store's clock, the most overdue first.
    async fn due_schedules(&self, max: u32) -> Result<Vec<DueSchedule>>;

    /// Handles a tick in one step: creates its jobs and moves on to the next one, if the schedule still expects it.
    async fn fire(&self, fire: Fire) -> Result<FireOutcome>;
}

/// A schedule whose tick has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueSchedule {
    /// The schedule.
    pub schedule: Schedule,
    /// The store's clock.
    pub now: Timestamp,
    /// The state of the last job that it created, if that still exists.
    pub last_job_state: Option<State>,
}

/// A tick to handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fire {
    /// Of this schedule.
    pub name: ScheduleName,
    /// The tick that the schedule must still be waiting for; `None` fires it out of turn and leaves its ticks alone.
    pub expected_tick: Option<Timestamp>,
    /// The revision that the schedule must still have.
    pub revision: u64,
    /// The jobs to create.
    #[serde(default)]
    pub jobs: Vec<NewJob>,
    /// The next tick; `None` when there is none. Ignored when fired out of turn.
    pub next_tick: Option<Timestamp>,
    /// Create no job if the last one has not ended.
    #[serde(default)]
    pub skip_if_running: bool,
}

impl Fire {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if self.jobs.len() > BATCH_MAX {
            return Err(Error::limit("jobs", BATCH_MAX as u64, self.jobs.len() as u64));
        }
        self.jobs.iter().try_for_each(|job| job.spec.check_outside().and_then(|()| job.check()))
    }
}

/// What became of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FireOutcome {
    /// Handled; so many jobs were created.
    Fired {
        /// How many.
        jobs: u32,
    },
    /// Handled, without a job, because the last one has not ended.
    Skipped,
    /// Somebody else has handled it or changed the schedule.
    Stale,
}
