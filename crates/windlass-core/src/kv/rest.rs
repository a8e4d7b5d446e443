//! Dedup keys and schedules.

use super::db::Db;
use super::keys::{Table, parts};
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
                if parts::<(Timestamp, ScheduleName)>(Table::Tick, &key)?.1 == *name {
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
        let end = |row: DedupRow| row.until.map(|until| keys::dedup_end(until, key));
        self.db.move_entry(before.and_then(end), row.and_then(end))?;
        self.db.set(&keys::dedup(key), row.as_ref())
    }

    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
        let ends = keys::dedup_ends().under().through(&keys::dedup_ends_at(until));
        let ends: Vec<(Timestamp, [u8; 16])> = self.db.keys(Table::DedupEnd, ends, limit)?;
        Ok(ends.into_iter().map(|(_, key)| key).collect())
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
        self.db.values(keys::schedules().under(), usize::MAX)
    }

    fn due_schedules(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Schedule>> {
        let ticks = keys::ticks().under().through(&keys::ticks_at(until));
        let ticks: Vec<(Timestamp, ScheduleName)> = self.db.keys(Table::Tick, ticks, limit)?;
        let missing = |at: Timestamp| Error::missing_record("the schedule of a tick at", at.as_ms().unsigned_abs());
        ticks.into_iter().map(|(at, name)| self.schedule(&name)?.ok_or_else(|| missing(at))).collect()
    }
}
