//! Job records and the indexes over them.

use super::ids::Ids;
use super::paged::Paged;
use super::tables::MemoryTables;
use crate::engine::{
    Extra, Fresh, GroupId, JobTables, LaneId, LogTables, Ord64, Position, QueueId, QueueTables, Record, Row, Walk,
};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, State};
use crate::name::WorkerId;
use crate::store::LogLine;
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The time of a job that waits behind another.
const HELD: Timestamp = Timestamp::from_ms(i64::MAX);

#[derive(Debug)]
struct Entry {
    record: Record,
    spec: Arc<JobSpec>,
    extra: Option<Box<Extra>>,
    log: Option<Box<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    begin: u64,
    lines: VecDeque<(u32, LogLine)>,
}

/// Jobs by row, and where they stand.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    entries: Paged<Entry>,
    ids: Ids,
    /// The ids of the active jobs once more: few enough to stay warm, and every outcome asks for one.
    active: Ids,
    ready: BTreeMap<(LaneId, GroupId, Ord64), Row>,
    due: BTreeSet<(QueueId, Timestamp, Row)>,
    leases: BTreeSet<(Timestamp, Row)>,
    cancelling: BTreeSet<(WorkerId, Row)>,
    ended: BTreeSet<(LaneId, State, Timestamp, Row)>,
    removable: BTreeSet<(Timestamp, Row)>,
}

impl Jobs {
    fn record(&self, row: Row) -> Option<&Record> {
        self.entries.get(row).map(|entry| &entry.record)
    }

    fn log(&self, row: Row) -> Option<&Log> {
        self.entries.get(row).and_then(|entry| entry.log.as_deref())
    }

    fn entry(&mut self, row: Row) -> Result<&mut Entry> {
        let entry = self.entries.get_mut(row);
        entry.ok_or_else(|| Error::corrupt(format!("job row {} is not there", row.0)))
    }

    /// Puts a job into the indexes, or takes it out of them.
    fn index(&mut self, record: &Record, is_in: bool) {
        fn set<T: Ord>(index: &mut BTreeSet<T>, entry: T, is_in: bool) {
            if is_in {
                index.insert(entry);
            } else {
                index.remove(&entry);
            }
        }
        let (row, life) = (record.row, &record.life);
        match life.state {
            State::Scheduled => set(&mut self.due, (record.queue, life.due_at.unwrap_or(HELD), row), is_in),
            State::Ready => {
                if let Some(place) = record.group.map(|group| (record.lane, group, record.ord)) {
                    if is_in {
                        self.ready.insert(place, row)
                    } else {
                        self.ready.remove(&place)
                    };
                }
            }
            State::Active => {
                if is_in {
                    self.active.insert(record.id, row);
                } else {
                    self.active.remove(record.id, row);
                }
                if let Some(held) = &life.held {
                    set(&mut self.leases, (held.expires_at, row), is_in);
                    if life.cancel_requested {
                        set(&mut self.cancelling, (held.worker.clone(), row), is_in);
                    }
                }
            }
            State::Succeeded | State::Failed | State::Cancelled => {
                let finished_at = life.finished_at.unwrap_or_default();
                set(&mut self.ended, (record.lane, life.state, finished_at, row), is_in);
                if let Some(at) = record.remove_at {
                    set(&mut self.removable, (at, row), is_in);
                }
            }
        }
    }

    fn is_of(&self, walk: Walk<'_>, row: Row) -> bool {
        let record = self.record(row);
        record.is_some_and(|record| record.queue == walk.queue && walk.lanes.binary_search(&record.lane).is_ok())
    }

    fn walk_scheduled(&self, walk: Walk<'_>) -> Vec<(Position, Row)> {
        let place = |[at, row, _]: Position| (walk.queue, Timestamp::from_ms(at), Row(row.cast_unsigned()));
        let ends = ((walk.queue, Timestamp::from_ms(i64::MIN), Row(0)), (walk.queue, HELD, Row(u64::MAX)));
        let range = self.due.range(beyond(walk, ends, place));
        let places = range.map(|(_, at, row)| ([at.as_ms(), number(row.0), 0], *row));
        in_direction(walk, places, |(_, row)| self.is_of(walk, *row))
    }

    fn walk_ready(&self, walk: Walk<'_>) -> Vec<(Position, Row)> {
        let mut found = Vec::new();
        for lane in walk.lanes {
            let place = |[lane, group, ord]: Position| {
                (LaneId(lane.cast_unsigned()), GroupId(group.cast_unsigned()), Ord64(ord))
            };
            match walk.after.map(place) {
                Some((reached, ..)) if walk.descending && reached < *lane => continue,
                Some((reached, ..)) if !walk.descending && reached > *lane => continue,
                _ => {}
            }
            // A start in another lane does not bound this one.
            let after = walk.after.filter(|after| place(*after).0 == *lane);
            let ends = ((*lane, GroupId(0), Ord64(i64::MIN)), (*lane, GroupId(u64::MAX), Ord64(i64::MAX)));
            let range = self.ready.range(beyond(Walk { after, ..walk }, ends, place));
            let places = range.map(|((lane, group, ord), row)| ([number(lane.0), number(group.0), ord.0], *row));
            found.extend(in_direction(walk, places, |_| true));
        }
        found
    }

    /// All of a queue's: there are never more than its workers have slots for.
    fn walk_active(&self, walk: Walk<'_>) -> Vec<(Position, Row)> {
        let reached = walk.after.map(|[row, ..]| Row(row.cast_unsigned()));
        let ahead = |row: &Row| match reached {
            Some(reached) if walk.descending => *row < reached,
            Some(reached) => *row > reached,
            None => true,
        };
        let rows = self.leases.iter().map(|(_, row)| *row).filter(|row| ahead(row) && self.is_of(walk, *row));
        rows.map(|row| ([number(row.0), 0, 0], row)).collect()
    }

    fn walk_ended(&self, walk: Walk<'_>) -> Vec<(Position, Row)> {
        let mut found = Vec::new();
        for lane in walk.lanes {
            let place = |[at, row, _]: Position| (*lane, walk.state, Timestamp::from_ms(at), Row(row.cast_unsigned()));
            let (first, last) = (Timestamp::from_ms(i64::MIN), Timestamp::from_ms(i64::MAX));
            let ends = ((*lane, walk.state, first, Row(0)), (*lane, walk.state, last, Row(u64::MAX)));
            let range = self.ended.range(beyond(walk, ends, place));
            let places = range.map(|(_, _, at, row)| ([at.as_ms(), number(row.0), 0], *row));
            found.extend(in_direction(walk, places, |_| true));
        }
        found
    }
}

impl JobTables for MemoryTables {
    fn find_job(&mut self, id: JobId) -> Result<Option<Row>> {
        let jobs = &self.jobs;
        let is_it = |row| jobs.record(row).is_some_and(|record| record.id == id);
        Ok(jobs.active.find(id, is_it).or_else(|| jobs.ids.find(id, is_it)))
    }

    fn record(&mut self, row: Row) -> Result<Option<Record>> {
        Ok(self.jobs.record(row).cloned())
    }

    fn salvage(&mut self, row: Row) -> Result<Option<Record>> {
        self.record(row)
    }

    fn mend(&mut self, _record: &Record) -> Result<()> {
        Ok(())
    }

    fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>> {
        self.jobs.entry(row).map(|entry| Arc::clone(&entry.spec))
    }

    fn extra(&mut self, row: Row) -> Result<Extra> {
        let extra = self.jobs.entries.get(row).and_then(|entry| entry.extra.as_deref());
        Ok(extra.cloned().unwrap_or_default())
    }

    fn insert_job(&mut self, Fresh { record, spec }: Fresh) -> Result<()> {
        self.jobs.ids.insert(record.id, record.row);
        self.jobs.index(&record, true);
        self.jobs.entries.insert(record.row, Entry { record, spec, extra: None, log: None });
        Ok(())
    }

    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()> {
        self.jobs.index(before, false);
        self.jobs.index(after, true);
        self.jobs.entry(after.row)?.record.clone_from(after);
        Ok(())
    }

    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.jobs.entry(row).map(|entry| entry.spec = spec)
    }

    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        self.jobs.entry(row).map(|entry| entry.extra = Some(Box::new(extra)))
    }

    fn remove_job(&mut self, record: &Record) -> Result<()> {
        self.jobs.index(record, false);
        self.jobs.ids.remove(record.id, record.row);
        self.jobs.entries.remove(record.row);
        Ok(())
    }

    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>> {
        let from = match after {
            Some(ord) => Bound::Excluded((lane, group, ord)),
            None => Bound::Included((lane, group, Ord64(i64::MIN))),
        };
        let to = Bound::Included((lane, group, Ord64(i64::MAX)));
        Ok(self.jobs.ready.range((from, to)).take(limit).map(|((_, _, ord), row)| (*ord, *row)).collect())
    }

    fn due(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let until = until.min(HELD.minus_ms(1));
        let range = (queue, Timestamp::from_ms(i64::MIN), Row(0))..=(queue, until, Row(u64::MAX));
        Ok(self.jobs.due.range(range).take(limit).map(|(_, _, row)| *row).collect())
    }

    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        let range = (queue, Timestamp::from_ms(i64::MIN), Row(0))..(queue, HELD, Row(0));
        Ok(self.jobs.due.range(range).next().map(|(_, at, _)| *at))
    }

    fn expired(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        Ok(self.jobs.leases.range(..=(until, Row(u64::MAX))).take(limit).map(|(_, row)| *row).collect())
    }

    fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.jobs.leases.first().map(|(at, _)| *at))
    }

    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>> {
        let range = (worker.clone(), Row(0))..=(worker.clone(), Row(u64::MAX));
        let records = self.jobs.cancelling.range(range).filter_map(|(_, row)| self.jobs.record(*row));
        Ok(records.map(|record| record.id).collect())
    }

    fn removable(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        Ok(self.jobs.removable.range(..=(until, Row(u64::MAX))).take(limit).map(|(_, row)| *row).collect())
    }

    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        for lane in self.lanes(queue)? {
            let range = (lane, state, Timestamp::from_ms(i64::MIN), Row(0))..=(lane, state, until, Row(u64::MAX));
            let is_plain = |row: &Row| self.jobs.record(*row).is_some_and(|record| record.remove_at.is_none());
            let plain = self.jobs.ended.range(range).filter(|(.., row)| is_plain(row));
            found.extend(plain.take(limit).map(|(_, _, at, row)| (*at, *row)));
        }
        found.sort_unstable();
        found.truncate(limit);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        let mut found = match walk.state {
            State::Scheduled => self.jobs.walk_scheduled(walk),
            State::Ready => self.jobs.walk_ready(walk),
            State::Active => self.jobs.walk_active(walk),
            State::Succeeded | State::Failed | State::Cancelled => self.jobs.walk_ended(walk),
        };
        found.sort_unstable_by(|a, b| if walk.descending { b.cmp(a) } else { a.cmp(b) });
        found.truncate(walk.limit);
        Ok(found)
    }
}

impl LogTables for MemoryTables {
    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        let log = self.jobs.log(row);
        Ok(log.map_or((0, 0), |log| (log.begin, log.begin + log.lines.len() as u64)))
    }

    fn append_log(&mut self, row: Row, _first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        let log = self.jobs.entry(row)?.log.get_or_insert_default();
        log.lines.extend(lines.into_iter().map(|line| (attempt, line)));
        Ok(())
    }

    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
        let Some(log) = self.jobs.log(row) else { return Ok(Vec::new()) };
        let skip = usize::try_from(from.saturating_sub(log.begin)).unwrap_or(usize::MAX);
        Ok(log.lines.iter().skip(skip).take(limit).cloned().collect())
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        if let Some(log) = &mut self.jobs.entry(row)?.log {
            while log.begin < before && log.lines.pop_front().is_some() {
                log.begin += 1;
            }
        }
        Ok(())
    }
}

/// A number of ours, as a part of a position; they never reach the sign.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The part of an index that lies beyond a walk's start.
fn beyond<K: Copy>(walk: Walk<'_>, ends: (K, K), place: impl Fn(Position) -> K) -> (Bound<K>, Bound<K>) {
    let (first, last) = (Bound::Included(ends.0), Bound::Included(ends.1));
    match walk.after.map(place) {
        Some(after) if walk.descending => (first, Bound::Excluded(after)),
        Some(after) => (Bound::Excluded(after), last),
        None => (first, last),
    }
}

/// As many places as a walk wants, from its end of the index.
fn in_direction(
    walk: Walk<'_>,
    places: impl DoubleEndedIterator<Item = (Position, Row)>,
    wanted: impl Fn(&(Position, Row)) -> bool,
) -> Vec<(Position, Row)> {
    if walk.descending {
        places.rev().filter(wanted).take(walk.limit).collect()
    } else {
        places.filter(wanted).take(walk.limit).collect()
    }
}
