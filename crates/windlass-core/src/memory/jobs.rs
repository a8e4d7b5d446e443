//! Job records and the indexes over them.

use super::ids::Ids;
use super::paged::Paged;
use crate::engine::{Extra, Fresh, GroupId, LaneId, Ord64, Position, QueueId, Record, Row, Walk};
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
    pub(super) fn find(&self, id: JobId) -> Option<Row> {
        let is_it = |row| self.record(row).is_some_and(|record| record.id == id);
        self.active.find(id, is_it).or_else(|| self.ids.find(id, is_it))
    }

    pub(super) fn record(&self, row: Row) -> Option<&Record> {
        self.entries.get(row).map(|entry| &entry.record)
    }

    fn entry(&mut self, row: Row) -> Result<&mut Entry> {
        let entry = self.entries.get_mut(row);
        entry.ok_or_else(|| Error::corrupt(format!("job row {} is not there", row.0)))
    }

    pub(super) fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>> {
        self.entry(row).map(|entry| Arc::clone(&entry.spec))
    }

    pub(super) fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.entry(row).map(|entry| entry.spec = spec)
    }

    pub(super) fn extra(&self, row: Row) -> Extra {
        let extra = self.entries.get(row).and_then(|entry| entry.extra.as_deref());
        extra.cloned().unwrap_or_default()
    }

    pub(super) fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        self.entry(row).map(|entry| entry.extra = Some(Box::new(extra)))
    }

    pub(super) fn insert(&mut self, fresh: Fresh) {
        let Fresh { record, spec } = fresh;
        self.ids.insert(record.id, record.row);
        self.index(&record);
        self.entries.insert(record.row, Entry { record, spec, extra: None, log: None });
    }

    pub(super) fn update(&mut self, before: &Record, after: &Record) -> Result<()> {
        self.unindex(before);
        self.index(after);
        self.entry(after.row)?.record.clone_from(after);
        Ok(())
    }

    pub(super) fn remove(&mut self, record: &Record) {
        self.unindex(record);
        self.ids.remove(record.id, record.row);
        self.entries.remove(record.row);
    }

    fn index(&mut self, record: &Record) {
        let (row, life) = (record.row, &record.life);
        match life.state {
            State::Scheduled => drop(self.due.insert((record.queue, life.due_at.unwrap_or(HELD), row))),
            State::Ready => {
                if let Some(group) = record.group {
                    self.ready.insert((record.lane, group, record.ord), row);
                }
            }
            State::Active => {
                self.active.insert(record.id, row);
                if let Some(held) = &life.held {
                    self.leases.insert((held.expires_at, row));
                    if life.cancel_requested {
                        self.cancelling.insert((held.worker.clone(), row));
                    }
                }
            }
            State::Succeeded | State::Failed | State::Cancelled => {
                self.ended.insert((record.lane, life.state, life.finished_at.unwrap_or_default(), row));
                if let Some(at) = record.remove_at {
                    self.removable.insert((at, row));
                }
            }
        }
    }

    fn unindex(&mut self, record: &Record) {
        let (row, life) = (record.row, &record.life);
        match life.state {
            State::Scheduled => drop(self.due.remove(&(record.queue, life.due_at.unwrap_or(HELD), row))),
            State::Ready => {
                if let Some(group) = record.group {
                    self.ready.remove(&(record.lane, group, record.ord));
                }
            }
            State::Active => {
                self.active.remove(record.id, row);
                if let Some(held) = &life.held {
                    self.leases.remove(&(held.expires_at, row));
                    if life.cancel_requested {
                        self.cancelling.remove(&(held.worker.clone(), row));
                    }
                }
            }
            State::Succeeded | State::Failed | State::Cancelled => {
                self.ended.remove(&(record.lane, life.state, life.finished_at.unwrap_or_default(), row));
                if let Some(at) = record.remove_at {
                    self.removable.remove(&(at, row));
                }
            }
        }
    }

    pub(super) fn ready(&self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Vec<(Ord64, Row)> {
        let from = match after {
            Some(ord) => Bound::Excluded((lane, group, ord)),
            None => Bound::Included((lane, group, Ord64(i64::MIN))),
        };
        let to = Bound::Included((lane, group, Ord64(i64::MAX)));
        self.ready.range((from, to)).take(limit).map(|((_, _, ord), row)| (*ord, *row)).collect()
    }

    pub(super) fn due(&self, queue: QueueId, until: Timestamp, limit: usize) -> Vec<Row> {
        let until = until.min(HELD.minus_ms(1));
        let range = (queue, Timestamp::from_ms(i64::MIN), Row(0))..=(queue, until, Row(u64::MAX));
        self.due.range(range).take(limit).map(|(_, _, row)| *row).collect()
    }

    pub(super) fn next_due(&self, queue: QueueId) -> Option<Timestamp> {
        let range = (queue, Timestamp::from_ms(i64::MIN), Row(0))..(queue, HELD, Row(0));
        self.due.range(range).next().map(|(_, at, _)| *at)
    }

    pub(super) fn expired(&self, until: Timestamp, limit: usize) -> Vec<Row> {
        self.leases.range(..=(until, Row(u64::MAX))).take(limit).map(|(_, row)| *row).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.leases.first().map(|(at, _)| *at)
    }

    pub(super) fn cancelling(&self, worker: &WorkerId) -> Vec<JobId> {
        let range = (worker.clone(), Row(0))..=(worker.clone(), Row(u64::MAX));
        self.cancelling.range(range).filter_map(|(_, row)| self.record(*row)).map(|record| record.id).collect()
    }

    pub(super) fn removable(&self, until: Timestamp, limit: usize) -> Vec<Row> {
        self.removable.range(..=(until, Row(u64::MAX))).take(limit).map(|(_, row)| *row).collect()
    }

    pub(super) fn ended(&self, lanes: &[LaneId], state: State, until: Timestamp, limit: usize) -> Vec<Row> {
        let mut found = Vec::new();
        for lane in lanes {
            let range = (*lane, state, Timestamp::from_ms(i64::MIN), Row(0))..=(*lane, state, until, Row(u64::MAX));
            let plain = self
                .ended
                .range(range)
                .filter(|(.., row)| self.record(*row).is_some_and(|record| record.remove_at.is_none()));
            found.extend(plain.take(limit).map(|(_, _, at, row)| (*at, *row)));
        }
        found.sort_unstable();
        found.truncate(limit);
        found.into_iter().map(|(_, row)| row).collect()
    }

    pub(super) fn walk(&self, walk: Walk<'_>) -> Vec<(Position, Row)> {
        let mut found = match walk.state {
            State::Scheduled => self.walk_scheduled(walk),
            State::Ready => self.walk_ready(walk),
            State::Active => self.walk_active(walk),
            State::Succeeded | State::Failed | State::Cancelled => self.walk_ended(walk),
        };
        found.sort_unstable_by(|a, b| if walk.descending { b.cmp(a) } else { a.cmp(b) });
        found.truncate(walk.limit);
        found
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

    pub(super) fn log_range(&self, row: Row) -> (u64, u64) {
        match self.entries.get(row).and_then(|entry| entry.log.as_ref()) {
            Some(log) => (log.begin, log.begin + log.lines.len() as u64),
            None => (0, 0),
        }
    }

    pub(super) fn append_log(&mut self, row: Row, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        let log = self.entry(row)?.log.get_or_insert_default();
        log.lines.extend(lines.into_iter().map(|line| (attempt, line)));
        Ok(())
    }

    pub(super) fn log(&self, row: Row, from: u64, limit: usize) -> Vec<(u32, LogLine)> {
        let Some(log) = self.entries.get(row).and_then(|entry| entry.log.as_ref()) else {
            return Vec::new();
        };
        let skip = usize::try_from(from.saturating_sub(log.begin)).unwrap_or(usize::MAX);
        log.lines.iter().skip(skip).take(limit).cloned().collect()
    }

    pub(super) fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        if let Some(log) = &mut self.entry(row)?.log {
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
