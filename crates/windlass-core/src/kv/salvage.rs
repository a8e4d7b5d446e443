//! A record that cannot be read: what the indexes know about it.
//!
//! They know enough: its queue, lane, group and state, which the counters depend on.
//! Finding them means looking through the indexes, which is slow, and over when the record is set aside.

use super::codec::decode;
use super::db::Db;
use super::jobs::{ActiveParts, DueParts, EndedParts, HELD, Place, ReadyParts, TimedParts};
use super::keys::{Key, Table, parts};
use super::tables::KvTables;
use super::{Entry, OrderedKv, keys};
use crate::engine::{DedupRow, GroupId, JobTables, LaneId, Ord64, QueueId, QueueTables, Record, Row};
use crate::error::{Error, Result};
use crate::id::{JobId, Token};
use crate::job::{Held, Life, State};
use crate::name::WorkerId;
use crate::time::Timestamp;

/// The record at `row`, or what can be known of it. `None` when there is none or no index names it.
pub(super) fn salvage(tables: &mut KvTables<impl OrderedKv>, row: Row) -> Result<Option<Record>> {
    match tables.record(row) {
        Err(Error::Corrupt { .. }) => {}
        other => return other,
    }
    let Some(place) = place_of(tables, row)? else {
        return Ok(None);
    };
    let id = find(&mut tables.db, &keys::job_ids(), |(key, value)| {
        let of_row = decode::<Row>(value)? == row;
        of_row.then(|| parts(Table::JobId, key)).transpose()
    })?;
    // An id that is lost gets one by which the row can be named and removed.
    let id = id.unwrap_or(JobId::from_parts(u16::MAX, u128::from(row.0)));
    let mut salvaged = blank(row, id);
    salvaged.dedup = find(&mut tables.db, &keys::all_dedup(), |(key, value)| {
        let held: DedupRow = decode(value)?;
        let concerned = held.owner == id || held.successor == Some(id);
        concerned.then(|| parts(Table::Dedup, key)).transpose()
    })?;
    match place {
        Place::Due(queue, at, lane) => {
            (salvaged.queue, salvaged.lane) = (queue, lane);
            salvaged.life.due_at = Some(at).filter(|at| *at != HELD);
        }
        Place::Ready(lane, group, ord) => {
            salvaged.queue = tables.lane(lane)?.queue;
            (salvaged.lane, salvaged.group, salvaged.ord) = (lane, Some(group), ord);
            salvaged.life.state = State::Ready;
        }
        Place::Active(queue, (lane, group), expires_at) => {
            (salvaged.queue, salvaged.lane, salvaged.group) = (queue, lane, Some(group));
            salvaged.life.state = State::Active;
            // Who held it is not known; nobody's token is this one.
            let worker = WorkerId::new("?")?;
            salvaged.life.held = Some(Held { token: Token::from_bits(0), worker, expires_at });
        }
        Place::Ended(lane, state, at) => {
            salvaged.queue = tables.lane(lane)?.queue;
            salvaged.lane = lane;
            (salvaged.life.state, salvaged.life.finished_at) = (state, Some(at));
        }
    }
    Ok(Some(salvaged))
}

/// Writes a salvaged record over what could not be read, and takes the job out of every index, whichever of them names
/// it: the update that follows gives it its new place.
pub(super) fn mend(db: &mut Db<impl OrderedKv>, record: &Record) -> Result<()> {
    for (table, index) in [
        (Table::Ready, keys::all_ready()),
        (Table::Due, keys::all_due()),
        (Table::Lease, keys::leases()),
        (Table::Active, keys::all_active()),
        (Table::Cancelling, keys::all_cancelling()),
        (Table::Ended, keys::all_ended()),
        (Table::Removable, keys::all_removable()),
    ] {
        let mut places = Vec::new();
        let visit = |(key, value): Entry| {
            if row_of(table, &key, &value).is_ok_and(|row| row == record.row) {
                places.push(key);
            }
            Ok(true)
        };
        db.visit(index.under(), visit, usize::MAX)?;
        places.iter().try_for_each(|key| db.delete_bytes(key))?;
    }
    db.put(&keys::job_id(record.id), &record.row)?;
    db.put(&keys::record(record.row), record)
}

/// The row that an entry of an index names.
fn row_of(table: Table, key: &[u8], value: &[u8]) -> Result<Row> {
    match table {
        Table::Ready => decode(value),
        Table::Due => parts(table, key).map(|(.., row): DueParts| row),
        Table::Active => parts(table, key).map(|(_, row): ActiveParts| row),
        Table::Ended => parts(table, key).map(|(.., row): EndedParts| row),
        Table::Cancelling => parts(table, key).map(|(_, row): (WorkerId, Row)| row),
        table => parts(table, key).map(|(_, row): TimedParts| row),
    }
}

/// The first answer that an entry below `key` gives. An entry that cannot be read gives none.
fn find<T>(
    db: &mut Db<impl OrderedKv>,
    key: &Key,
    mut ask: impl FnMut(&Entry) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut found = None;
    let visit = |entry: Entry| {
        found = ask(&entry).unwrap_or_default();
        Ok(found.is_none())
    };
    db.visit(key.under(), visit, usize::MAX)?;
    Ok(found)
}

fn place_of(tables: &mut KvTables<impl OrderedKv>, row: Row) -> Result<Option<Place>> {
    let queues = tables.queues()?;
    let db = &mut tables.db;
    for queue in queues {
        if let Some((_, value)) = db.first(keys::active(queue, row).under())? {
            let at = find(db, &keys::leases(), |(key, _)| {
                let (at, of): TimedParts = parts(Table::Lease, key)?;
                Ok((of == row).then_some(at))
            })?;
            return Ok(Some(Place::Active(queue, decode(&value)?, at.unwrap_or_default())));
        }
    }
    let ready = find(db, &keys::all_ready(), |(key, value)| {
        let (lane, group, ord): ReadyParts = parts(Table::Ready, key)?;
        Ok((decode::<Row>(value)? == row).then_some(Place::Ready(lane, group, ord)))
    })?;
    if ready.is_some() {
        return Ok(ready);
    }
    let due = find(db, &keys::all_due(), |(key, value)| {
        let (queue, at, of): DueParts = parts(Table::Due, key)?;
        if of == row { Ok(Some(Place::Due(queue, at, decode(value)?))) } else { Ok(None) }
    })?;
    if due.is_some() {
        return Ok(due);
    }
    find(db, &keys::all_ended(), |(key, _)| {
        let (lane, state, at, of): EndedParts = parts(Table::Ended, key)?;
        Ok((of == row).then_some(Place::Ended(lane, state, at)))
    })
}

/// A record of which nothing is known.
fn blank(row: Row, id: JobId) -> Record {
    let never = Timestamp::from_ms(0);
    Record {
        row,
        id,
        queue: QueueId(0),
        lane: LaneId(0),
        group: None::<GroupId>,
        grouped: false,
        priority: 0,
        lifo: false,
        ord: Ord64(0),
        life: Life::new(None, never, 1, 0),
        created_at: never,
        ready_at: never,
        fingerprint: 0,
        dedup: None,
        keeps_itself: false,
        remove_at: None,
        quarantined: false,
        run: None,
    }
}
