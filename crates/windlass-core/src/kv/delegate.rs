//! The trait, method by method, handed to the part of the tables that knows.

use super::codec::decode;
use super::feed::FeedEnds;
use super::tables::KvTables;
use super::{OrderedKv, feed, groups, jobs, keys, logs, memos, rest, salvage};
use crate::engine::{
    ClaimMemo, DedupRow, Extra, Fresh, Group, GroupId, Lane, LaneId, Ord64, Parked, Position, Queue, QueueId, Record,
    ReportMemo, Row, Sub, Tables, Walk, Worker,
};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, State};
use crate::name::{GroupName, Kind, Labels, QueueName, ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::store::{FeedEntry, LogLine, MinuteMetrics, check_feed_events};
use crate::time::Timestamp;
use std::sync::Arc;

impl<K: OrderedKv> KvTables<K> {
    fn feed_ends(&mut self) -> Result<FeedEnds> {
        if let Some((ends, _)) = self.feed {
            return Ok(ends);
        }
        let ends = FeedEnds::load(&mut self.db)?;
        self.feed = Some((ends, false));
        Ok(ends)
    }
}

impl<K: OrderedKv> Tables for KvTables<K> {
    fn next_seq(&mut self) -> Result<u64> {
        self.take_seq()
    }

    fn queues(&mut self) -> Result<Vec<QueueId>> {
        self.queues.all(&mut self.db)
    }

    fn find_queue(&mut self, name: &QueueName) -> Result<Option<QueueId>> {
        self.queues.find(&mut self.db, name)
    }

    fn insert_queue(&mut self, queue: Queue) -> Result<()> {
        self.queues.insert(&mut self.db, queue)
    }

    fn queue(&mut self, id: QueueId) -> Result<&Queue> {
        self.queues.get(&mut self.db, id)
    }

    fn queue_mut(&mut self, id: QueueId) -> Result<&mut Queue> {
        self.queues.get_mut(&mut self.db, id)
    }

    fn remove_queue(&mut self, id: QueueId) -> Result<()> {
        let queue = self.queues.get(&mut self.db, id)?.clone();
        self.groups.remove_of(&mut self.db, &queue)?;
        self.minutes.remove_of(&mut self.db, id)?;
        self.queues.remove(&mut self.db, id)
    }

    fn lanes(&mut self, queue: QueueId) -> Result<Vec<LaneId>> {
        self.queues.lanes(&mut self.db, queue)
    }

    fn find_lane(&mut self, queue: QueueId, kind: &Kind, labels: &Labels) -> Result<Option<LaneId>> {
        self.queues.find_lane(&mut self.db, &(queue, kind.clone(), labels.clone()))
    }

    fn insert_lane(&mut self, lane: Lane) -> Result<()> {
        self.queues.insert_lane(&mut self.db, lane)
    }

    fn lane(&mut self, id: LaneId) -> Result<&Lane> {
        self.queues.lane(&mut self.db, id)
    }

    fn lane_mut(&mut self, id: LaneId) -> Result<&mut Lane> {
        self.queues.lane_mut(&mut self.db, id)
    }

    fn remove_lane(&mut self, id: LaneId) -> Result<()> {
        self.queues.remove_lane(&mut self.db, id)
    }

    fn find_group(&mut self, queue: QueueId, name: &GroupName) -> Result<Option<GroupId>> {
        self.db.get(&keys::group_name(queue, name.clone()))
    }

    fn insert_group(&mut self, group: Group) -> Result<()> {
        self.groups.insert(&mut self.db, group)
    }

    fn group(&mut self, id: GroupId) -> Result<&Group> {
        self.groups.get(&mut self.db, id)
    }

    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group> {
        self.groups.get_mut(&mut self.db, id)
    }

    fn park_group(&mut self, id: GroupId, parked: Parked, wake_at: Option<Timestamp>) -> Result<()> {
        self.groups.park(&mut self.db, id, (parked, wake_at))
    }

    fn remove_group(&mut self, id: GroupId) -> Result<()> {
        self.groups.remove(&mut self.db, id)
    }

    fn groups(&mut self, queue: QueueId, after: Option<&GroupName>, limit: usize) -> Result<Vec<GroupId>> {
        self.groups.of_queue(&mut self.db, queue, after, limit)
    }

    fn parked_groups(&mut self, queue: QueueId) -> Result<Vec<GroupId>> {
        groups::parked(&mut self.db, queue)
    }

    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<GroupId>> {
        groups::waking(&mut self.db, queue, until, limit)
    }

    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        groups::next_wake(&mut self.db, queue)
    }

    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub> {
        groups::sub(&mut self.db, lane, group)
    }

    fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) -> Result<()> {
        groups::put_sub(&mut self.db, lane, group, sub)
    }

    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, limit: usize) -> Result<Vec<(u64, GroupId)>> {
        groups::ring(&mut self.db, lane, after, limit)
    }

    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>> {
        groups::lanes_of(&mut self.db, group)
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Row>> {
        self.db.get(&keys::job_id(id))
    }

    fn record(&mut self, row: Row) -> Result<Option<Record>> {
        jobs::record(&mut self.db, row)
    }

    fn salvage(&mut self, row: Row) -> Result<Option<Record>> {
        salvage::salvage(&mut self.db, &mut self.queues, row)
    }

    fn mend(&mut self, record: &Record) -> Result<()> {
        salvage::mend(&mut self.db, record)
    }

    fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>> {
        let missing = || Error::corrupt(format!("job row {} has no spec", row.0));
        let spec = self.db.get(&keys::spec(row)).map_err(|error| jobs::name_row(error, row))?;
        Ok(Arc::new(spec.ok_or_else(missing)?))
    }

    fn extra(&mut self, row: Row) -> Result<Extra> {
        let extra = self.db.get(&keys::extra(row)).map_err(|error| jobs::name_row(error, row))?;
        Ok(extra.unwrap_or_default())
    }

    fn insert_job(&mut self, fresh: Fresh) -> Result<()> {
        jobs::insert(&mut self.db, &fresh.record)?;
        self.db.put(&keys::spec(fresh.record.row), fresh.spec.as_ref())
    }

    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()> {
        jobs::update(&mut self.db, before, after)
    }

    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.db.put(&keys::spec(row), spec.as_ref())
    }

    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        self.db.put(&keys::extra(row), &extra)
    }

    fn remove_job(&mut self, record: &Record) -> Result<()> {
        jobs::remove(&mut self.db, record)
    }

    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>> {
        jobs::ready(&mut self.db, (lane, group), after, limit)
    }

    fn due(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        jobs::due(&mut self.db, queue, until, limit)
    }

    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        jobs::next_due(&mut self.db, queue)
    }

    fn expired(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        jobs::expired(&mut self.db, until, limit)
    }

    fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        jobs::next_expiry(&mut self.db)
    }

    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>> {
        jobs::cancelling(&mut self.db, worker)
    }

    fn removable(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        jobs::removable(&mut self.db, until, limit)
    }

    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let lanes = self.queues.lanes(&mut self.db, queue)?;
        jobs::ended(&mut self.db, &lanes, (state, until), limit)
    }

    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        jobs::walk(&mut self.db, walk)
    }

    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        self.db.get(&keys::dedup(key))
    }

    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
        rest::put_dedup(&mut self.db, key, row)
    }

    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
        rest::expired_dedup(&mut self.db, until, limit)
    }

    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>> {
        Ok(memos::get(&mut self.db, worker)?.and_then(|memo| memo.claim))
    }

    fn put_claim_memo(&mut self, worker: &WorkerId, memo: ClaimMemo, now: Timestamp) -> Result<()> {
        memos::change(&mut self.db, worker, now, |kept| kept.claim = Some(memo))
    }

    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo> {
        Ok(memos::get(&mut self.db, worker)?.map_or_else(Vec::new, |memo| memo.report))
    }

    fn put_report_memo(&mut self, worker: &WorkerId, memo: ReportMemo, now: Timestamp) -> Result<()> {
        memos::change(&mut self.db, worker, now, |kept| kept.report = memo)
    }

    fn prune_memos(&mut self, before: Timestamp, limit: usize) -> Result<u64> {
        memos::prune(&mut self.db, before, limit)
    }

    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics> {
        self.minutes.get_mut(&mut self.db, queue, minute)
    }

    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>> {
        self.minutes.range(&mut self.db, queue, (from, to))
    }

    fn prune_minutes(&mut self, before: i64, limit: usize) -> Result<u64> {
        let queues = self.queues.all(&mut self.db)?;
        self.minutes.prune(&mut self.db, &queues, before, limit)
    }

    fn feed_end(&mut self) -> Result<u64> {
        Ok(self.feed_ends()?.end)
    }

    fn feed_begin(&mut self) -> Result<u64> {
        Ok(self.feed_ends()?.begin)
    }

    fn append_feed(&mut self, entry: FeedEntry) -> Result<()> {
        let ends = self.feed_ends()?;
        self.feed = Some((feed::append(&mut self.db, ends, &entry)?, true));
        Ok(())
    }

    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        feed::read(&mut self.db, after, limit)
    }

    fn trim_feed(&mut self, events_min: u64) -> Result<()> {
        let before = self.feed_ends()?;
        let after = feed::trim(&mut self.db, before, events_min)?;
        if after != before {
            self.feed = Some((after, true));
        }
        Ok(())
    }

    fn feed_events(&mut self) -> Result<Option<u64>> {
        if let Some(known) = self.feed_events {
            return Ok(known);
        }
        let stored = self.db.get_bytes(&keys::feed_events())?;
        let events = stored.and_then(|bytes| decode(&bytes).ok()).filter(|events| check_feed_events(*events).is_ok());
        Ok(*self.feed_events.insert(events))
    }

    fn set_feed_events(&mut self, events: u64) -> Result<()> {
        self.db.put(&keys::feed_events(), &events)?;
        self.feed_events = Some(Some(events));
        Ok(())
    }

    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        logs::range(&mut self.db, row)
    }

    fn append_log(&mut self, row: Row, first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        logs::append(&mut self.db, row, (first, attempt), lines)
    }

    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
        logs::read(&mut self.db, row, from, limit)
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        logs::trim(&mut self.db, row, before)
    }

    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>> {
        self.db.get(&keys::worker(id.clone()))
    }

    fn put_worker(&mut self, worker: Worker) -> Result<()> {
        self.db.put(&keys::worker(worker.id().clone()), &worker)
    }

    fn remove_worker(&mut self, id: &WorkerId) -> Result<()> {
        self.db.delete(&keys::worker(id.clone()))
    }

    fn workers(&mut self) -> Result<Vec<Worker>> {
        rest::workers(&mut self.db)
    }

    fn schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>> {
        rest::schedule(&mut self.db, name)
    }

    fn put_schedule(&mut self, schedule: Schedule) -> Result<()> {
        rest::put_schedule(&mut self.db, &schedule)
    }

    fn remove_schedule(&mut self, name: &ScheduleName) -> Result<()> {
        rest::remove_schedule(&mut self.db, name)
    }

    fn schedules(&mut self) -> Result<Vec<Schedule>> {
        rest::schedules(&mut self.db)
    }

    fn due_schedules(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Schedule>> {
        rest::due_schedules(&mut self.db, until, limit)
    }
}
