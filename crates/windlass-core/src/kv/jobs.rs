//! Job records, and the indexes over them, which are functions of the record.
//!
//! An index carries what its readers would otherwise have to look up: the lane that a listing filters by, the id that a
//! worker is told, whether a job says itself how long it is kept.

use super::codec::decode;
use super::db::Db;
use super::keys::{Range, Table, parts};
use super::tables::KvTables;
use super::{Entry, OrderedKv, keys, salvage};
use crate::engine::{
    Extra, Fresh, GroupId, JobTables, LaneId, Ord64, Position, QueueId, QueueTables, Record, Row, Walk,
};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, State};
use crate::name::WorkerId;
use crate::time::Timestamp;
use std::sync::Arc;

/// The time of a job that waits behind another, so that one index serves both.
pub(super) const HELD: Timestamp = Timestamp::from_ms(i64::MAX);

/// The place of a job in the index of its state. There always is exactly one.
pub(super) enum Place {
    /// Queue, time and row: lane.
    Due(QueueId, Timestamp, LaneId),
    /// Lane, group and place: row.
    Ready(LaneId, GroupId, Ord64),
    /// Queue and row: lane and group. And the time at which the lease ends.
    Active(QueueId, (LaneId, GroupId), Timestamp),
    /// Lane, state, time and row: whether it says itself how long it is kept.
    Ended(LaneId, State, Timestamp),
}

impl Place {
    /// `None` for a record that the engine would never make.
    fn of(record: &Record) -> Option<Self> {
        let life = &record.life;
        Some(match life.state {
            State::Scheduled => Self::Due(record.queue, life.due_at.unwrap_or(HELD), record.lane),
            State::Ready => Self::Ready(record.lane, record.group?, record.ord),
            State::Active => Self::Active(record.queue, (record.lane, record.group?), life.held.as_ref()?.expires_at),
            State::Succeeded | State::Failed | State::Cancelled => {
                Self::Ended(record.lane, life.state, life.finished_at.unwrap_or_default())
            }
        })
    }
}

pub(super) fn record(db: &mut Db<impl OrderedKv>, row: Row) -> Result<Option<Record>> {
    let found: Option<Record> = db.get(&keys::record(row)).map_err(|error| name_row(error, row))?;
    match found {
        Some(record) if record.row != row => Err(Error::corrupt(format!("job row {} is that of another", row.0))),
        found => Ok(found),
    }
}

/// Says which row it is that cannot be read.
fn name_row(error: Error, row: Row) -> Error {
    match error {
        Error::Corrupt { what } => Error::corrupt(format!("job row {}: {what}", row.0)),
        other => other,
    }
}

/// Puts a job into the indexes, or takes it out of them.
fn index(db: &mut Db<impl OrderedKv>, record: &Record, is_in: bool) -> Result<()> {
    let row = record.row;
    match Place::of(record) {
        Some(Place::Due(queue, at, lane)) => db.set(&keys::due(queue, at, row), is_in.then_some(&lane))?,
        Some(Place::Ready(lane, group, ord)) => db.set(&keys::ready(lane, group, ord), is_in.then_some(&row))?,
        Some(Place::Active(queue, of, at)) => {
            db.set(&keys::active(queue, row), is_in.then_some(&of))?;
            db.set(&keys::lease(at, row), is_in.then_some(&()))?;
        }
        Some(Place::Ended(lane, state, at)) => {
            db.set(&keys::ended(lane, state, at, row), is_in.then_some(&record.remove_at.is_some()))?;
        }
        None => {}
    }
    if let Some(worker) = told(record) {
        db.set(&keys::cancelling(worker, row), is_in.then_some(&record.id))?;
    }
    if let Some(at) = removal(record) {
        db.set(&keys::removable(at, row), is_in.then_some(&()))?;
    }
    Ok(())
}

/// Who is to be told that the job was cancelled.
fn told(record: &Record) -> Option<WorkerId> {
    let life = &record.life;
    let held = life.held.as_ref().filter(|_| life.state == State::Active && life.cancel_requested);
    held.map(|held| held.worker.clone())
}

fn removal(record: &Record) -> Option<Timestamp> {
    record.remove_at.filter(|_| record.state().is_terminal())
}

/// The parts of the keys of the indexes.
pub(super) type ReadyParts = (LaneId, GroupId, Ord64);
pub(super) type DueParts = (QueueId, Timestamp, Row);
pub(super) type ActiveParts = (QueueId, Row);
pub(super) type EndedParts = (LaneId, State, Timestamp, Row);
/// Of an index by time alone.
pub(super) type TimedParts = (Timestamp, Row);

/// Rows of an index by time.
fn timed(db: &mut Db<impl OrderedKv>, table: Table, range: Range, limit: usize) -> Result<Vec<Row>> {
    let found: Vec<TimedParts> = db.keys(table, range, limit)?;
    Ok(found.into_iter().map(|(_, row)| row).collect())
}

/// At most `limit` entries of a range that pass a test.
fn pick(
    db: &mut Db<impl OrderedKv>,
    range: Range,
    limit: usize,
    mut test: impl FnMut(&Entry) -> Result<bool>,
) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    let visit = |entry: Entry| {
        if test(&entry)? {
            found.push(entry);
        }
        Ok(found.len() < limit)
    };
    db.visit(range, visit, limit)?;
    Ok(found)
}

/// The part of a range that the walk has still before it.
fn ahead(range: Range, walk: Walk<'_>, at: impl FnOnce(Position) -> keys::Key) -> Range {
    let range = match walk.after.map(at) {
        Some(after) if walk.descending => range.below(&after),
        Some(after) => range.above(&after),
        None => range,
    };
    if walk.descending { range.backwards() } else { range }
}

fn walk_scheduled(db: &mut Db<impl OrderedKv>, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
    let jobs = ahead(keys::due_of(walk.queue).under(), walk, |[at, row, _]| {
        keys::due(walk.queue, Timestamp::from_ms(at), Row(unsigned(row)))
    });
    let in_lanes = |(_, value): &Entry| Ok(walk.lanes.binary_search(&decode(value)?).is_ok());
    let position = |key: &[u8]| {
        let (_, at, row): DueParts = parts(Table::Due, key)?;
        Ok(([at.as_ms(), signed(row.0), 0], row))
    };
    pick(db, jobs, walk.limit, in_lanes)?.iter().map(|(key, _)| position(key)).collect()
}

/// Positions begin with the lane, so the lanes are walked through one after the other.
fn walk_ready(db: &mut Db<impl OrderedKv>, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
    let mut lanes = walk.lanes.to_vec();
    if walk.descending {
        lanes.reverse();
    }
    let mut found = Vec::new();
    for lane in lanes {
        let jobs = ahead(keys::ready_in_lane(lane).under(), walk, |[of, group, ord]| {
            keys::ready(LaneId(unsigned(of)), GroupId(unsigned(group)), Ord64(ord))
        });
        for (key, value) in db.some(jobs, walk.limit - found.len())? {
            let (lane, group, ord): ReadyParts = parts(Table::Ready, &key)?;
            found.push(([signed(lane.0), signed(group.0), ord.0], decode(&value)?));
        }
        if found.len() >= walk.limit {
            break;
        }
    }
    Ok(found)
}

fn walk_active(db: &mut Db<impl OrderedKv>, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
    let jobs =
        ahead(keys::active_of(walk.queue).under(), walk, |[row, ..]| keys::active(walk.queue, Row(unsigned(row))));
    let in_lanes = |(_, value): &Entry| {
        let (lane, _): (LaneId, GroupId) = decode(value)?;
        Ok(walk.lanes.binary_search(&lane).is_ok())
    };
    let position = |key: &[u8]| parts(Table::Active, key).map(|(_, row): ActiveParts| ([signed(row.0), 0, 0], row));
    pick(db, jobs, walk.limit, in_lanes)?.iter().map(|(key, _)| position(key)).collect()
}

fn walk_ended(db: &mut Db<impl OrderedKv>, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
    let mut found = Vec::new();
    for lane in walk.lanes {
        let jobs = ahead(keys::ended_of(*lane, walk.state).under(), walk, |[at, row, _]| {
            keys::ended(*lane, walk.state, Timestamp::from_ms(at), Row(unsigned(row)))
        });
        for (key, _) in db.some(jobs, walk.limit)? {
            let (_, _, at, row): EndedParts = parts(Table::Ended, &key)?;
            found.push(([at.as_ms(), signed(row.0), 0], row));
        }
    }
    found.sort_unstable_by(|a, b| if walk.descending { b.cmp(a) } else { a.cmp(b) });
    found.truncate(walk.limit);
    Ok(found)
}

/// A number of ours, as a part of a position; they never reach the sign.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

impl<K: OrderedKv> JobTables for KvTables<K> {
    fn find_job(&mut self, id: JobId) -> Result<Option<Row>> {
        self.db.get(&keys::job_id(id))
    }

    fn record(&mut self, row: Row) -> Result<Option<Record>> {
        record(&mut self.db, row)
    }

    fn salvage(&mut self, row: Row) -> Result<Option<Record>> {
        salvage::salvage(self, row)
    }

    fn mend(&mut self, record: &Record) -> Result<()> {
        salvage::mend(&mut self.db, record)
    }

    fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>> {
        let missing = || Error::corrupt(format!("job row {} has no spec", row.0));
        let spec = self.db.get(&keys::spec(row)).map_err(|error| name_row(error, row))?;
        Ok(Arc::new(spec.ok_or_else(missing)?))
    }

    fn extra(&mut self, row: Row) -> Result<Extra> {
        let extra = self.db.get(&keys::extra(row)).map_err(|error| name_row(error, row))?;
        Ok(extra.unwrap_or_default())
    }

    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.db.put(&keys::spec(row), spec.as_ref())
    }

    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        self.db.put(&keys::extra(row), &extra)
    }

    fn insert_job(&mut self, fresh: Fresh) -> Result<()> {
        let record = &fresh.record;
        self.db.put(&keys::job_id(record.id), &record.row)?;
        self.db.put(&keys::record(record.row), record)?;
        index(&mut self.db, record, true)?;
        self.db.put(&keys::spec(record.row), fresh.spec.as_ref())
    }

    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()> {
        index(&mut self.db, before, false)?;
        index(&mut self.db, after, true)?;
        self.db.put(&keys::record(after.row), after)
    }

    fn remove_job(&mut self, record: &Record) -> Result<()> {
        index(&mut self.db, record, false)?;
        let row = record.row;
        self.db.delete(&keys::job_id(record.id))?;
        self.db.delete(&keys::record(row))?;
        self.db.delete(&keys::spec(row))?;
        self.db.delete(&keys::extra(row))?;
        self.db.clear(keys::log(row).under())
    }

    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>> {
        let jobs = keys::ready_of(lane, group).under();
        let jobs = match after {
            Some(ord) => jobs.above(&keys::ready(lane, group, ord)),
            None => jobs,
        };
        let place = |(key, value): &Entry| Ok((parts::<ReadyParts>(Table::Ready, key)?.2, decode(value)?));
        self.db.some(jobs, limit)?.iter().map(place).collect()
    }

    fn due(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let jobs = keys::due_of(queue).under().through(&keys::due_at(queue, until));
        let jobs = jobs.below(&keys::due_at(queue, HELD));
        let due: Vec<DueParts> = self.db.keys(Table::Due, jobs, limit)?;
        Ok(due.into_iter().map(|(.., row)| row).collect())
    }

    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        let due = keys::due_of(queue).under().below(&keys::due_at(queue, HELD));
        let first: Vec<DueParts> = self.db.keys(Table::Due, due, 1)?;
        Ok(first.first().map(|(_, at, _)| *at))
    }

    fn expired(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let leases = keys::leases().under().through(&keys::leases_at(until));
        timed(&mut self.db, Table::Lease, leases, limit)
    }

    fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.db.keys(Table::Lease, keys::leases().under(), 1)?.pop())
    }

    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>> {
        self.db.values(keys::cancelling_of(worker.clone()).under(), usize::MAX)
    }

    fn removable(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let jobs = keys::all_removable().under().through(&keys::removable_at(until));
        timed(&mut self.db, Table::Removable, jobs, limit)
    }

    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        for lane in self.lanes(queue)? {
            let jobs = keys::ended_of(lane, state).under().through(&keys::ended_at(lane, state, until));
            let keeps_itself = |(_, value): &Entry| decode::<bool>(value);
            let plain = pick(&mut self.db, jobs, limit, |entry| Ok(!keeps_itself(entry)?))?;
            for (key, _) in plain {
                let (_, _, at, row): EndedParts = parts(Table::Ended, &key)?;
                found.push((at, row));
            }
        }
        found.sort_unstable();
        found.truncate(limit);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        match walk.state {
            State::Scheduled => walk_scheduled(&mut self.db, walk),
            State::Ready => walk_ready(&mut self.db, walk),
            State::Active => walk_active(&mut self.db, walk),
            State::Succeeded | State::Failed | State::Cancelled => walk_ended(&mut self.db, walk),
        }
    }
}
