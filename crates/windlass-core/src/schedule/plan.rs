//! What a schedule whose tick has come is to do: pure, so that every process comes to the same answer.

use super::rule::Ticks;
use super::{CatchUp, Overlap, Schedule};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, NewJob};
use crate::name::CustomId;
use crate::store::{DueSchedule, Fire};
use crate::time::Timestamp;
use std::collections::VecDeque;

/// How late a tick may be and still not count as missed: a restart or a change of the process that looks takes less.
pub const CATCH_UP_GRACE_MS: u64 = 60_000;
/// The entry of a job's metadata that names its schedule.
pub const METADATA_SCHEDULE: &str = "windlass.schedule";
/// The entry of a job's metadata that names its tick, as RFC 3339. A job that was fired out of turn has none.
pub const METADATA_TICK: &str = "windlass.tick";

/// So many ticks are walked through before the latest ones are looked for from the end.
const WALK_MAX: usize = 1_000;

/// Plans what a schedule is to do now: which jobs, and when to look again. `None` when its tick has not come.
pub fn plan(due: &DueSchedule) -> Result<Option<Fire>> {
    let (schedule, now) = (&due.schedule, due.now);
    let Some(expected) = schedule.next_tick.filter(|tick| *tick <= now) else { return Ok(None) };
    // Any tick of an interval tells where its others lie.
    let ticks = schedule.rule.ticks(schedule.start.unwrap_or(expected))?;
    let fired = ticks_to_fire(schedule, &ticks, expected, now)?;
    let next = ticks.next_after(now)?.filter(|tick| schedule.allows(*tick));
    // A job that is not created, because the last one runs or another stands for it, does not count. Only the store can
    // tell, so that such a schedule is looked at once more.
    let certain = schedule.overlap == Overlap::Allow && schedule.spec.dedup.is_none();
    let used_up = certain && fired.len() as u64 >= schedule.room();
    Ok(Some(Fire {
        name: schedule.name.clone(),
        expected_tick: Some(expected),
        revision: schedule.revision,
        jobs: fired.into_iter().map(|tick| job_of(schedule, tick)).collect::<Result<_>>()?,
        next_tick: next.filter(|_| !used_up),
        skip_if_running: schedule.overlap == Overlap::Skip,
    }))
}

fn ticks_to_fire(schedule: &Schedule, ticks: &Ticks, expected: Timestamp, now: Timestamp) -> Result<Vec<Timestamp>> {
    if schedule.paused {
        return Ok(Vec::new());
    }
    let (floor, most) = match schedule.catch_up {
        CatchUp::Skip => (expected.max(now.minus_ms(CATCH_UP_GRACE_MS)), WALK_MAX as u64),
        CatchUp::Latest => (expected, 1),
        CatchUp::All { max } => (expected, u64::from(max).min(WALK_MAX as u64)),
    };
    // The second of two jobs would meet the first one, which has not ended.
    let at_once = if schedule.overlap == Overlap::Skip { 1 } else { u64::MAX };
    let most = usize::try_from(most.min(at_once).min(schedule.room())).unwrap_or(WALK_MAX);
    let first = if floor == expected { Some(expected) } else { ticks.next_after(floor.minus_ms(1))? };
    let last = schedule.end.map_or(now, |end| end.min(now));
    match first.filter(|first| *first <= last && most > 0) {
        Some(first) => latest(ticks, first, last, most),
        None => Ok(Vec::new()),
    }
}

/// The latest ticks, at most `most`, from `first`, which is one, to `last`; oldest first.
fn latest(ticks: &Ticks, first: Timestamp, last: Timestamp, most: usize) -> Result<Vec<Timestamp>> {
    let mut found = VecDeque::from([first]);
    let mut tick = first;
    for _ in 0..WALK_MAX {
        match ticks.next_after(tick)?.filter(|next| *next <= last) {
            Some(next) => tick = next,
            None => return Ok(found.into()),
        }
        if found.len() == most {
            found.pop_front();
        }
        found.push_back(tick);
    }
    found.clear();
    let mut limit = last.plus_ms(1);
    while found.len() < most
        && let Some(tick) = ticks.last_before(limit, first)?
    {
        found.push_front(tick);
        limit = tick;
    }
    Ok(found.into())
}

/// The job of a tick. Its id is made of both, so that it cannot be created twice, even by a schedule that was restored
/// from a backup.
fn job_of(schedule: &Schedule, tick: Timestamp) -> Result<NewJob> {
    let mut spec = spec_of(schedule);
    spec.metadata.insert(METADATA_TICK.to_owned(), tick.to_string());
    let id = JobId::named(&spec.queue, spec.group.as_ref(), &tick_id(schedule.name.as_str(), tick)?);
    Ok(NewJob::new(id, spec))
}

/// The template, marked with the schedule's name.
pub(super) fn spec_of(schedule: &Schedule) -> JobSpec {
    let mut spec = schedule.spec.clone();
    spec.metadata.insert(METADATA_SCHEDULE.to_owned(), schedule.name.to_string());
    spec
}

/// A name for the pair, within the bounds of a custom id however long the schedule's name is.
fn tick_id(name: &str, tick: Timestamp) -> Result<CustomId> {
    match CustomId::new(format!("schedule:{name}:{tick}")) {
        Err(Error::Limit { .. }) => {
            CustomId::new(format!("schedule-hash:{}:{tick}", blake3::hash(name.as_bytes()).to_hex()))
        }
        other => other,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
