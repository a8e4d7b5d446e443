//! Dedup keys and schedules.

use super::codec::decode;
use super::db::Db;
use super::keys::{Parts, Table};
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{DedupRow, DedupTables, ScheduleTables};
use crate::error::{Error, Result};
use crate::name::ScheduleName;
use crate::schedule::Schedule;
use crate::time::Timestamp;

fn tick(schedule: &Schedule) -> Option<Timestamp> {
    schedule.next_tick.filter(|_| !schedule.paused)
}

fn tick_parts(key: &[u8]) -> Result<(Timestamp, ScheduleName)> {
    let mut parts = Parts::of(Table::Tick, key)?;
    Ok((parts.take()?, parts.take()?))
}

/// Takes a schedule out of the order of ticks.
fn unindex(db: &mut Db<impl OrderedKv>, name: &ScheduleName) -> Result<()> {
    match db.get(&keys::schedule(name.clone())) {
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

impl<K: OrderedKv> DedupTables for KvTables<K> {
    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        self.db.get(&keys::dedup(key))
    }

    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
        let before: Option<DedupRow> = self.db.get(&keys::dedup(key))?;
        let (old, new) = (before.and_then(|row| row.until), row.and_then(|row| row.until));
        if let Some(until) = old.filter(|_| old != new) {
            self.db.delete(&keys::dedup_end(until, key))?;
        }
        if let Some(until) = new.filter(|_| old != new) {
            self.db.put(&keys::dedup_end(until, key), &())?;
        }
        match row {
            Some(row) => self.db.put(&keys::dedup(key), &row),
            None => self.db.delete(&keys::dedup(key)),
        }
    }

    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
        let ends = keys::dedup_ends().under().through(&keys::dedup_ends_at(until));
        let key = |bytes: &[u8]| {
            let mut parts = Parts::of(Table::DedupEnd, bytes)?;
            parts.take::<Timestamp>()?;
            parts.take()
        };
        self.db.some(ends, limit)?.iter().map(|(bytes, _)| key(bytes)).collect()
    }
}

impl<K: OrderedKv> ScheduleTables for KvTables<K> {
    fn schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>> {
        self.db.get(&keys::schedule(name.clone()))
    }

    fn put_schedule(&mut self, schedule: Schedule) -> Result<()> {
        unindex(&mut self.db, &schedule.name)?;
        if let Some(at) = tick(&schedule) {
            self.db.put(&keys::tick(at, schedule.name.clone()), &())?;
        }
        self.db.put(&keys::schedule(schedule.name.clone()), &schedule)
    }

    fn remove_schedule(&mut self, name: &ScheduleName) -> Result<()> {
        unindex(&mut self.db, name)?;
        self.db.delete(&keys::schedule(name.clone()))
    }

    fn schedules(&mut self) -> Result<Vec<Schedule>> {
        self.db.all(keys::schedules().under())?.iter().map(|(_, value)| decode(value)).collect()
    }

    fn due_schedules(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Schedule>> {
        let ticks = self.db.some(keys::ticks().under().through(&keys::ticks_at(until)), limit)?;
        let mut found = Vec::with_capacity(ticks.len());
        for (key, _) in ticks {
            let (at, name) = tick_parts(&key)?;
            found.push(
                self.schedule(&name)?
                    .ok_or_else(|| Error::missing_record("the schedule of a tick at", at.as_ms().unsigned_abs()))?,
            );
        }
        Ok(found)
    }
}
