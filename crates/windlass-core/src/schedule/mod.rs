//! Schedules: rules that create jobs. Everything here is computed from what is handed in; the store only fences.
//!
//! A schedule's row is the truth. Its `next_tick` says when somebody must look at it again; whoever looks ([`tick()`])
//! plans what to do ([`plan()`]) and asks the store to do it in one step, which the store refuses when the row has
//! changed meanwhile. So any number of processes may look, and a tick still creates at most one job: the job's id is
//! made of the schedule's name and the tick.

mod cron;
mod pattern;
mod plan;
mod rule;
mod tick;
mod zone;

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, METADATA_MAX};
use crate::name::ScheduleName;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use plan::{CATCH_UP_GRACE_MS, METADATA_SCHEDULE, METADATA_TICK, plan};
pub use rule::{CRON_BYTES_MAX, EVERY_MS_MAX, EVERY_MS_MIN, Rule};
pub use tick::{Ticked, tick, trigger};

/// The most missed ticks that may be made up for at once.
pub const CATCH_UP_MAX: u32 = 1_000;

/// A rule that creates jobs, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// When it ticks.
    pub rule: Rule,
    /// What its jobs are; `custom_id` stays empty, because the tick makes the id.
    pub spec: JobSpec,
    /// No tick before this. `Every` counts from here; without it, from the moment the schedule was made.
    #[serde(default)]
    pub start: Option<Timestamp>,
    /// No tick after this.
    #[serde(default)]
    pub end: Option<Timestamp>,
    /// How many ticks may create a job.
    #[serde(default)]
    pub limit: Option<u64>,
    /// What happens while its last job has not ended.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens to ticks that were missed.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// While set, ticks pass without a job and are not made up for.
    #[serde(default)]
    pub paused: bool,
    /// When it is next to be looked at; `None` when it will not tick again.
    #[serde(default)]
    pub next_tick: Option<Timestamp>,
    /// The last tick that was handled.
    #[serde(default)]
    pub last_tick: Option<Timestamp>,
    /// The last job that it created.
    #[serde(default)]
    pub last_job: Option<JobId>,
    /// How many ticks have created a job.
    #[serde(default)]
    pub fired: u64,
    /// Rises with every change of the schedule.
    #[serde(default)]
    pub revision: u64,
}

/// What happens to a tick while the schedule's last job has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It creates its job all the same.
    #[default]
    Allow,
    /// It creates none.
    Skip,
}

/// What happens to ticks that were missed because nobody looked: no process was up, or the store was away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are lost. A tick up to [`CATCH_UP_GRACE_MS`] old counts as late, not as missed, and creates its job.
    Skip,
    /// One job is created, for the latest of them.
    #[default]
    Latest,
    /// Each creates a job, oldest first; when there are more than `max`, only the latest ones do.
    All {
        /// From 1 to [`CATCH_UP_MAX`].
        max: u32,
    },
}

impl Schedule {
    /// A schedule with all defaults. [`Schedule::arm`] makes it ready to be stored.
    pub fn new(name: ScheduleName, rule: Rule, spec: JobSpec) -> Self {
        Self {
            name,
            rule,
            spec,
            start: None,
            end: None,
            limit: None,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            paused: false,
            next_tick: None,
            last_tick: None,
            last_job: None,
            fired: 0,
            revision: 0,
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        self.rule.check()?;
        self.check_spec()?;
        for (field, time) in [("start", self.start), ("end", self.end)] {
            time.map_or(Ok(()), |time| time.check(field).map(drop))?;
        }
        if self.limit == Some(0) {
            return Err(Error::invalid(
                "limit",
                "is 0 and would never create a job; leave it out or pause the schedule",
            ));
        }
        match self.catch_up {
            CatchUp::All { max: 0 } => {
                return Err(Error::invalid("catch_up.max", "is 0; give 1 or more, or use `skip`"));
            }
            CatchUp::All { max } if max > CATCH_UP_MAX => {
                return Err(Error::limit("catch_up.max", u64::from(CATCH_UP_MAX), u64::from(max)));
            }
            CatchUp::All { .. } | CatchUp::Skip | CatchUp::Latest => {}
        }
        self.check_window()
    }

    fn check_spec(&self) -> Result<()> {
        if self.spec.custom_id.is_some() {
            return Err(Error::invalid("spec.custom_id", "must be empty; each tick makes the id of its job"));
        }
        let own = |key: &&String| [METADATA_SCHEDULE, METADATA_TICK].contains(&key.as_str());
        let (entries, room) = (self.spec.metadata.keys().filter(|key| !own(key)).count(), METADATA_MAX - 2);
        if entries > room {
            let what = "spec.metadata, beside the two entries of the schedule,";
            return Err(Error::limit(what, room as u64, entries as u64));
        }
        self.spec.check()
    }

    /// Refuses a time between start and end in which nothing can happen.
    fn check_window(&self) -> Result<()> {
        let (Some(start), Some(end)) = (self.start, self.end) else { return Ok(()) };
        if end < start {
            return Err(Error::invalid(
                "end",
                format!("{end} is before the start, {start}; swap them or leave one out"),
            ));
        }
        match self.rule.next_after(start.minus_ms(1), start)? {
            Some(first) if first <= end => Ok(()),
            Some(first) => Err(Error::invalid("end", format!("{end} is before the first tick, {first}; set it later"))),
            None => Err(Error::invalid("start", format!("the rule has no tick after {start}; set it earlier"))),
        }
    }

    /// The first tick of a schedule that is made now: `start` itself, or else the first one after `now`.
    pub fn first_tick(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        self.tick_from(now, self.start.unwrap_or(now))
    }

    fn tick_from(&self, now: Timestamp, anchor: Timestamp) -> Result<Option<Timestamp>> {
        let after = self.start.filter(|start| *start >= now).map_or(now, |start| start.minus_ms(1));
        let tick = self.rule.next_after(after, anchor)?;
        Ok(tick.filter(|tick| self.allows(*tick)))
    }

    /// Checks the schedule and sets its next tick: what is done before it is stored. `stored` is the schedule of this
    /// name that is there already.
    ///
    /// A program that puts its schedules at every start must not set them back. So when rule and start are those of
    /// `stored`, its next tick stays, overdue or not; but the ticks that passed while it was paused are gone.
    pub fn arm(mut self, stored: Option<&Self>, now: Timestamp) -> Result<Self> {
        self.check()?;
        if let Some(stored) = stored {
            self.last_tick = stored.last_tick;
            self.last_job = stored.last_job;
            self.fired = stored.fired;
            self.revision = stored.revision;
        }
        let same = stored.filter(|stored| stored.rule == self.rule && stored.start == self.start);
        let waiting = same.filter(|stored| !stored.paused || self.paused).and_then(|stored| stored.next_tick);
        self.next_tick = match waiting.filter(|tick| self.allows(*tick)) {
            Some(tick) => Some(tick),
            None => {
                // Any tick of an interval tells where its others lie.
                let beat = same.and_then(|stored| stored.next_tick.or(stored.last_tick));
                self.tick_from(now, self.start.or(beat).unwrap_or(now))?
            }
        };
        Ok(self)
    }

    /// Takes over the history of the schedule that it replaces in a store: what a store does with one that is put.
    ///
    /// When this one was made without that history, from an older copy or from none, ticks that `stored` has handled do not
    /// come back. A copy that has it may set the next tick back.
    pub fn replace(&mut self, stored: Option<&Self>) -> Result<()> {
        let is_current = stored.is_none_or(|stored| (self.last_tick, self.fired) == (stored.last_tick, stored.fired));
        self.last_tick = stored.and_then(|stored| stored.last_tick);
        self.last_job = stored.and_then(|stored| stored.last_job);
        self.fired = stored.map_or(0, |stored| stored.fired);
        let (Some(stored), Some(last)) = (stored, self.last_tick) else { return Ok(()) };
        if is_current || self.next_tick.is_none_or(|tick| tick > last) {
            return Ok(());
        }
        let same = stored.rule == self.rule && stored.start == self.start;
        let next = match stored.next_tick.filter(|tick| same && *tick > last) {
            Some(next) => Some(next),
            None => self.rule.next_after(last, self.start.unwrap_or(last))?,
        };
        self.next_tick = next.filter(|tick| self.allows(*tick));
        Ok(())
    }

    /// True when it will not create a job again: its ticks are over or its limit is reached.
    pub fn is_over(&self) -> bool {
        self.next_tick.is_none_or(|tick| !self.allows(tick))
    }

    /// True when end and limit allow a job at `tick`.
    fn allows(&self, tick: Timestamp) -> bool {
        self.end.is_none_or(|end| tick <= end) && self.room() > 0
    }

    /// How many more ticks may create a job.
    fn room(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.fired))
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
