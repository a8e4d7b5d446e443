//! Schedules: the store's part, which is to fence. The layout is in `lua/put_schedule.lua`.

use super::RedisStore;
use super::change::event;
use super::enqueue::{add_jobs, enqueued};
use crate::link::Command;
use crate::reply::{Items, maybe_one, maybe_time, number, odd, one, state, text};
use crate::scripts::AT;
use async_trait::async_trait;
use windlass_core::engine::Prepared;
use windlass_core::name::ScheduleName;
use windlass_core::schedule::Schedule;
use windlass_core::store::{BATCH_MAX, DueSchedule, FeedEvent, Fire, FireOutcome, ScheduleStore, check_max};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// A stored schedule: what the scripts keep of it stands before its JSON.
fn schedule(stored: &str) -> Result<Schedule> {
    let damaged = |why: &str| Error::corrupt(format!("a schedule cannot be read: {why}"));
    let (line, json) = stored.split_once('\n').ok_or_else(|| damaged("it has one line"))?;
    let mut schedule: Schedule = serde_json::from_str(json).map_err(|e| damaged(&e.to_string()))?;
    let parts: Vec<&str> = line.split(' ').collect();
    let [revision, next_tick, paused, last_tick, last_job, fired] = parts[..] else {
        return Err(damaged("its first line is odd"));
    };
    schedule.revision = number(revision)?;
    schedule.next_tick = maybe_time(next_tick)?;
    schedule.paused = paused == "1";
    schedule.last_tick = maybe_time(last_tick)?;
    schedule.last_job = if last_job == "-" { None } else { Some(last_job.parse()?) };
    schedule.fired = number(fired)?;
    Ok(schedule)
}

/// A schedule that can be read; one that cannot is left out until it is put again or removed.
fn readable(stored: &[u8]) -> Option<Schedule> {
    text(stored).and_then(schedule).map_err(|error| tracing::warn!(%error, "a schedule is left out")).ok()
}

fn tick_text(tick: Option<Timestamp>) -> String {
    tick.map_or_else(|| "-".to_owned(), |tick| tick.as_ms().to_string())
}

/// How often a schedule is put again when it changes between the look and the step: at every tick, at most.
const PUT_TRIES: u32 = 10;

impl RedisStore {
    /// Puts a schedule in place of the stored one; false when that has changed since it was read.
    async fn put_over(&self, mut schedule: Schedule, stored: Option<&[u8]>) -> Result<bool> {
        schedule.replace(stored.and_then(readable).as_ref())?;
        let mut call = self.caller.script(AT.put_schedule);
        call.arg(schedule.name.as_str()).arg(tick_text(schedule.next_tick));
        call.arg(if schedule.paused { "1" } else { "0" });
        call.arg(event(&FeedEvent::SchedulePut { schedule: schedule.name.clone() })?);
        call.arg(serde_json::to_vec(&schedule).map_err(|e| odd(&e.to_string()))?);
        call.arg(stored.and_then(|stored| stored.split(|byte| *byte == b'\n').next()).unwrap_or_default());
        Ok(one(self.caller.run_durably(call).await?)? == "ok")
    }
}

#[async_trait]
impl ScheduleStore for RedisStore {
    async fn put_schedule(&self, schedule: Schedule) -> Result<()> {
        schedule.check()?;
        for _ in 0..PUT_TRIES {
            let ask = Command::new("HGET").arg(self.caller.keys.schedules()).arg(schedule.name.as_str());
            let stored = maybe_one(self.caller.link.command(&ask).await?)?;
            if self.put_over(schedule.clone(), stored.as_deref()).await? {
                return Ok(());
            }
        }
        Err(Error::Unavailable { reason: format!("the schedule `{}` changes all the time", schedule.name) })
    }

    async fn remove_schedule(&self, name: ScheduleName) -> Result<bool> {
        let mut call = self.caller.script(AT.remove_schedule);
        call.arg(name.as_str()).arg(event(&FeedEvent::ScheduleRemoved { schedule: name.clone() })?);
        Ok(one(self.caller.run_durably(call).await?)? == "1")
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.caller.signals.check_open()?;
        let stored = self.caller.link.command(&Command::new("HVALS").arg(self.caller.keys.schedules())).await?;
        let found = Items::of(stored)?.all(|items| Ok(readable(&items.bytes()?)))?;
        let mut all: Vec<Schedule> = found.into_iter().flatten().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    async fn due_schedules(&self, max: u32) -> Result<Vec<DueSchedule>> {
        check_max("max", max)?;
        let mut look = max;
        loop {
            let mut call = self.caller.script(AT.due_schedules);
            call.arg_fmt(look);
            let mut items = self.caller.items(call).await?;
            let (now, found) = (items.time()?, items.left() / 3);
            let mut due = Vec::with_capacity(found);
            while items.left() > 0 {
                items.bytes()?;
                let (schedule, last) = (readable(&items.bytes()?), items.text()?);
                let last_job_state = if last.is_empty() { None } else { Some(state(&last)?) };
                due.extend(schedule.map(|schedule| DueSchedule { schedule, now, last_job_state }));
            }
            due.truncate(max as usize);
            // Those that cannot be read stay the most overdue, and must not hide all that comes behind them.
            if due.len() == max as usize || found < look as usize || look as usize >= BATCH_MAX {
                return Ok(due);
            }
            look = look.saturating_mul(2).min(u32::try_from(BATCH_MAX).unwrap_or(u32::MAX));
        }
    }

    async fn fire(&self, fire: Fire) -> Result<FireOutcome> {
        fire.check()?;
        let mut call = self.caller.script(AT.fire);
        call.arg(fire.name.as_str());
        call.arg(fire.expected_tick.map_or_else(|| "*".to_owned(), |tick| tick.as_ms().to_string()));
        call.arg_fmt(fire.revision).arg(tick_text(fire.next_tick)).arg(if fire.skip_if_running { "1" } else { "0" });
        call.arg(serde_json::to_vec(&fire.name).map_err(|e| odd(&e.to_string()))?);
        let jobs: Vec<Prepared> = fire.jobs.into_iter().map(Prepared::of).collect();
        add_jobs(&mut call, &jobs)?;
        let mut items = Items::of(self.caller.run_durably(call).await?)?;
        match items.text()?.as_str() {
            "missing" => Err(Error::schedule_not_found(&fire.name)),
            "corrupt" => Err(Error::corrupt(format!("the schedule `{}` cannot be read", fire.name))),
            "stale" => Ok(FireOutcome::Stale),
            "skipped" => Ok(FireOutcome::Skipped),
            "fired" => Ok(FireOutcome::Fired { jobs: u32::try_from(items.number()?).unwrap_or(u32::MAX) }),
            "refused" => {
                let (why, id) = (items.text()?, items.text()?.parse()?);
                let job = jobs.iter().find(|job| job.id == id).ok_or_else(|| odd("another job was refused"))?;
                Err(enqueued(&why, id, &job.job.spec.queue).err().unwrap_or_else(|| odd(&why)))
            }
            other => Err(odd(other)),
        }
    }
}
