//! Dedup keys, workers, schedules.

use super::codec::decode;
use super::db::Db;
use super::keys::{Parts, Table};
use super::tables::gone;
use super::{OrderedKv, keys};
use crate::engine::{DedupRow, Worker};
use crate::error::{Error, Result};
use crate::name::ScheduleName;
use crate::schedule::Schedule;
use crate::time::Timestamp;

pub(super) fn put_dedup(db: &mut Db<impl OrderedKv>, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
    let before: Option<DedupRow> = db.get(&keys::dedup(key))?;
    let (old, new) = (before.and_then(|row| row.until), row.and_then(|row| row.until));
    if let Some(until) = old.filter(|_| old != new) {
        db.delete(&keys::dedup_end(until, key))?;
    }
    if let Some(until) = new.filter(|_| old != new) {
        db.put(&keys::dedup_end(until, key), &())?;
    }
    match row {
        Some(row) => db.put(&keys::dedup(key), &row),
        None => db.delete(&keys::dedup(key)),
    }
}

pub(super) fn expired_dedup(db: &mut Db<impl OrderedKv>, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
    let ends = keys::dedup_ends().under().through(&keys::dedup_ends_at(until));
    let key = |bytes: &[u8]| {
        let mut parts = Parts::of(Table::DedupEnd, bytes)?;
        parts.take::<Timestamp>()?;
        parts.take()
    };
    db.some(ends, limit)?.iter().map(|(bytes, _)| key(bytes)).collect()
}

pub(super) fn workers(db: &mut Db<impl OrderedKv>) -> Result<Vec<Worker>> {
    db.all(keys::workers().under())?.iter().map(|(_, value)| decode(value)).collect()
}

pub(super) fn schedule(db: &mut Db<impl OrderedKv>, name: &ScheduleName) -> Result<Option<Schedule>> {
    db.get(&keys::schedule(name.clone()))
}

fn tick(schedule: &Schedule) -> Option<Timestamp> {
    schedule.next_tick.filter(|_| !schedule.paused)
}

fn tick_parts(key: &[u8]) -> Result<(Timestamp, ScheduleName)> {
    let mut parts = Parts::of(Table::Tick, key)?;
    Ok((parts.take()?, parts.take()?))
}

/// Takes a schedule out of the order of ticks.
fn unindex(db: &mut Db<impl OrderedKv>, name: &ScheduleName) -> Result<()> {
    match schedule(db, name) {
        Ok(before) => match before.as_ref().and_then(tick) {
            Some(at) => db.delete(&keys::tick(at, name.clone())),
            None => Ok(()),
        },
        // Its time is lost, and with it its place: whoever replaces a damaged schedule must be rid of it.
        Err(Error::Corrupt { .. }) => {
            for (key, _) in db.all(keys::ticks().under())? {
                if tick_parts(&key)?.1 == *name {
                    db.delete_bytes(&key)?;
                }
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

pub(super) fn put_schedule(db: &mut Db<impl OrderedKv>, schedule: &Schedule) -> Result<()> {
    unindex(db, &schedule.name)?;
    if let Some(at) = tick(schedule) {
        db.put(&keys::tick(at, schedule.name.clone()), &())?;
    }
    db.put(&keys::schedule(schedule.name.clone()), schedule)
}

pub(super) fn remove_schedule(db: &mut Db<impl OrderedKv>, name: &ScheduleName) -> Result<()> {
    unindex(db, name)?;
    db.delete(&keys::schedule(name.clone()))
}

pub(super) fn schedules(db: &mut Db<impl OrderedKv>) -> Result<Vec<Schedule>> {
    db.all(keys::schedules().under())?.iter().map(|(_, value)| decode(value)).collect()
}

pub(super) fn due_schedules(db: &mut Db<impl OrderedKv>, until: Timestamp, limit: usize) -> Result<Vec<Schedule>> {
    let ticks = db.some(keys::ticks().under().through(&keys::ticks_at(until)), limit)?;
    let mut found = Vec::with_capacity(ticks.len());
    for (key, _) in ticks {
        let (at, name) = tick_parts(&key)?;
        found.push(schedule(db, &name)?.ok_or_else(|| gone("the schedule of a tick at", at.as_ms().unsigned_abs()))?);
    }
    Ok(found)
}
