//! Schedules: the store's part, which is to fence.

use super::Step;
use super::enqueue::Prepared;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::State;
use crate::name::ScheduleName;
use crate::schedule::Schedule;
use crate::store::{DueSchedule, Enqueued, FeedEvent, Fire, FireOutcome, check_max};

impl<T: Tables> Step<'_, T> {
    /// See [`ScheduleStore::put_schedule`](crate::store::ScheduleStore::put_schedule).
    pub fn put_schedule(&mut self, mut schedule: Schedule) -> Result<()> {
        schedule.check()?;
        schedule.revision = self.tables.next_seq()?;
        let known = self.known_schedule(&schedule.name)?;
        schedule.replace(known.as_ref())?;
        self.events.push(FeedEvent::SchedulePut { schedule: schedule.name.clone() });
        self.tables.put_schedule(schedule)
    }

    /// See [`ScheduleStore::remove_schedule`](crate::store::ScheduleStore::remove_schedule).
    pub fn remove_schedule(&mut self, name: &ScheduleName) -> Result<bool> {
        // One that cannot be read is there, too, and this is the way to be rid of it.
        if matches!(self.tables.schedule(name), Ok(None)) {
            return Ok(false);
        }
        self.tables.remove_schedule(name)?;
        self.events.push(FeedEvent::ScheduleRemoved { schedule: name.clone() });
        Ok(true)
    }

    /// A stored schedule; one that cannot be read may be replaced like one that is not there.
    fn known_schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>> {
        match self.tables.schedule(name) {
            Err(Error::Corrupt { .. }) => Ok(None),
            other => other,
        }
    }

    /// See [`ScheduleStore::schedules`](crate::store::ScheduleStore::schedules).
    pub fn schedules(&mut self) -> Result<Vec<Schedule>> {
        self.tables.schedules()
    }

    /// See [`ScheduleStore::due_schedules`](crate::store::ScheduleStore::due_schedules).
    pub fn due_schedules(&mut self, max: u32) -> Result<Vec<DueSchedule>> {
        check_max("max", max)?;
        let mut due = Vec::new();
        for schedule in self.tables.due_schedules(self.now, max as usize)? {
            let last_job_state = self.last_job_state(&schedule)?;
            due.push(DueSchedule { schedule, now: self.now, last_job_state });
        }
        Ok(due)
    }

    fn last_job_state(&mut self, schedule: &Schedule) -> Result<Option<State>> {
        let Some(id) = schedule.last_job else {
            return Ok(None);
        };
        let Some(row) = self.tables.find_job(id)? else {
            return Ok(None);
        };
        Ok(self.look(row)?.map(|(record, _)| record.state()))
    }

    /// See [`ScheduleStore::fire`](crate::store::ScheduleStore::fire).
    pub fn fire(&mut self, mut fire: Fire) -> Result<FireOutcome> {
        fire.check()?;
        let missing = Error::schedule_not_found(&fire.name);
        let mut schedule = self.tables.schedule(&fire.name)?.ok_or(missing)?;
        if schedule.revision != fire.revision
            || fire.expected_tick.is_some() && schedule.next_tick != fire.expected_tick
        {
            return Ok(FireOutcome::Stale);
        }
        let running = self.last_job_state(&schedule)?.is_some_and(|state| !state.is_terminal());
        let skip = fire.skip_if_running && running;
        if let Some(job) = self.drop_known_jobs(&mut fire)? {
            schedule.last_job = Some(job);
        }
        let jobs = Prepared::batch(fire.jobs)?;
        if !skip && let Some(refused) = self.verdicts(&jobs).into_iter().find_map(Result::err) {
            // All or nothing, so that the tick can be repeated as a whole.
            return Err(refused);
        }
        let mut created = 0;
        if !skip {
            for job in jobs {
                let enqueued = self.enqueue_one(job?)?;
                let there_before = matches!(enqueued, Enqueued::Existing { .. } | Enqueued::Deduplicated { .. });
                created += u32::from(!there_before);
                schedule.last_job = Some(enqueued.id());
            }
        }
        if let Some(tick) = fire.expected_tick {
            schedule.last_tick = Some(tick);
            schedule.next_tick = fire.next_tick;
            // A job out of turn is none of a tick, and spends nothing of the limit.
            schedule.fired += u64::from(created);
        }
        let tick = fire.expected_tick.unwrap_or(self.now);
        self.events.push(FeedEvent::ScheduleFired { schedule: fire.name, tick });
        self.tables.put_schedule(schedule)?;
        Ok(if skip { FireOutcome::Skipped } else { FireOutcome::Fired { jobs: created } })
    }

    /// A tick whose job is there has been handled before, whatever the schedule says now: after a clock that jumped back,
    /// or a restore. Answers the last such job.
    fn drop_known_jobs(&mut self, fire: &mut Fire) -> Result<Option<JobId>> {
        let mut known = None;
        if fire.expected_tick.is_some() {
            for job in std::mem::take(&mut fire.jobs) {
                let id = job.effective_id();
                match self.tables.find_job(id)? {
                    Some(_) => known = Some(id),
                    None => fire.jobs.push(job),
                }
            }
        }
        Ok(known)
    }
}
