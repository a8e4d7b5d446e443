//! The trait, method by method, handed to the part of the tables that knows.

use super::jobs::Jobs;

use super::{SqliteTables, rest, specs};
use crate::db::Source;

use std::sync::Arc;
use windlass_core::Result;
use windlass_core::engine::{
    ClaimMemo, DedupRow, Extra, Fresh, Group, GroupId, Lane, LaneId, Ord64, Parked, Position, Queue, QueueId, Record,
    ReportMemo, Row, Sub, Tables, Walk, Worker,
};
use windlass_core::id::JobId;
use windlass_core::job::{JobSpec, State};
use windlass_core::name::{GroupName, Kind, Labels, QueueName, ScheduleName, WorkerId};
use windlass_core::schedule::Schedule;
use windlass_core::store::{FeedEntry, LogLine, MinuteMetrics};
use windlass_core::time::Timestamp;

impl<C: Source> SqliteTables<C> {
    fn jobs(&mut self) -> Jobs<'_, C> {
        Jobs { db: &mut self.db, recent: &mut self.recent, ids: &mut self.ids, moves: &mut self.moves }
    }

    /// For whoever asks the tables of the states.
    fn settled_jobs(&mut self) -> Result<Jobs<'_, C>> {
        self.moves.settle(&mut self.db)?;
        Ok(self.jobs())
    }
}

impl<C: Source> Tables for SqliteTables<C> {
    fn next_seq(&mut self) -> Result<u64> {
        self.meta.next_seq(&mut self.db)
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
        self.groups.remove_of_queue(&mut self.db, id)?;
        self.minutes.forget_queue(id);
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
        self.groups.find(&mut self.db, queue, name)
    }

    fn insert_group(&mut self, group: Group) -> Result<()> {
        self.groups.insert(group);
        Ok(())
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
        self.groups.parked(&mut self.db, queue)
    }

    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<GroupId>> {
        self.groups.waking(&mut self.db, queue, until, limit)
    }

    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        self.groups.next_wake(&mut self.db, queue)
    }

    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub> {
        self.groups.sub(&mut self.db, lane, group)
    }

    fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) -> Result<()> {
        self.groups.put_sub(lane, group, sub);
        Ok(())
    }

    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, limit: usize) -> Result<Vec<(u64, GroupId)>> {
        self.groups.ring(&mut self.db, lane, after, limit)
    }

    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>> {
        self.groups.lanes(&mut self.db, group)
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Row>> {
        self.jobs().find(id)
    }

    fn record(&mut self, row: Row) -> Result<Option<Record>> {
        self.jobs().record(row)
    }

    fn salvage(&mut self, row: Row) -> Result<Option<Record>> {
        self.jobs().salvage(row)
    }

    fn mend(&mut self, record: &Record) -> Result<()> {
        self.jobs().mend(record)
    }

    fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>> {
        let jobs = Jobs { db: &mut self.db, recent: &mut self.recent, ids: &mut self.ids, moves: &mut self.moves };
        specs::get(jobs, &mut self.queues, row)
    }

    fn extra(&mut self, row: Row) -> Result<Extra> {
        specs::extra(&mut self.db, row)
    }

    fn insert_job(&mut self, fresh: Fresh) -> Result<()> {
        self.jobs().insert(fresh);
        Ok(())
    }

    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()> {
        self.jobs().update(before, after)
    }

    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.recent.forget_spec(row);
        self.moves.settle(&mut self.db)?;
        specs::replace(&mut self.db, row, &spec)
    }

    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        specs::put_extra(&mut self.db, row, &extra)
    }

    fn remove_job(&mut self, record: &Record) -> Result<()> {
        self.jobs().remove(record)
    }

    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>> {
        self.settled_jobs()?.ready((lane, group), after, limit)
    }

    fn due(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        self.settled_jobs()?.due(queue, until, limit)
    }

    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        self.settled_jobs()?.next_due(queue)
    }

    fn expired(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        self.settled_jobs()?.expired(until, limit)
    }

    fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        self.settled_jobs()?.next_expiry()
    }

    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>> {
        self.settled_jobs()?.cancelling(worker)
    }

    fn removable(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        self.settled_jobs()?.removable(until, limit)
    }

    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let lanes = self.queues.lanes(&mut self.db, queue)?;
        self.settled_jobs()?.ended(&lanes, state, until, limit)
    }

    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        self.settled_jobs()?.walk(walk)
    }

    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        rest::dedup(&mut self.db, key)
    }

    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
        rest::put_dedup(&mut self.db, key, row)
    }

    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
        rest::expired_dedup(&mut self.db, until, limit)
    }

    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>> {
        rest::claim_memo(&mut self.db, worker)
    }

    fn put_claim_memo(&mut self, worker: &WorkerId, memo: ClaimMemo, now: Timestamp) -> Result<()> {
        rest::put_claim_memo(&mut self.db, worker, &memo, now)
    }

    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo> {
        rest::report_memo(&mut self.db, worker)
    }

    fn put_report_memo(&mut self, worker: &WorkerId, memo: ReportMemo, now: Timestamp) -> Result<()> {
        rest::put_report_memo(&mut self.db, worker, &memo, now)
    }

    fn prune_memos(&mut self, before: Timestamp, limit: usize) -> Result<u64> {
        rest::prune_memos(&mut self.db, before, limit)
    }

    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics> {
        self.minutes.get_mut(&mut self.db, queue, minute)
    }

    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>> {
        self.minutes.range(&mut self.db, queue, (from, to))
    }

    fn prune_minutes(&mut self, before: i64, limit: usize) -> Result<u64> {
        self.minutes.prune(&mut self.db, before, limit)
    }

    fn feed_end(&mut self) -> Result<u64> {
        self.meta.feed_end(&mut self.db)
    }

    fn feed_begin(&mut self) -> Result<u64> {
        self.meta.feed_begin(&mut self.db)
    }

    fn append_feed(&mut self, entry: FeedEntry) -> Result<()> {
        self.meta.append(&mut self.db, &entry)
    }

    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        self.meta.read(&mut self.db, after, limit)
    }

    fn trim_feed(&mut self, events_min: u64) -> Result<()> {
        self.meta.trim(events_min);
        Ok(())
    }

    fn feed_events(&mut self) -> Result<Option<u64>> {
        self.meta.feed_events(&mut self.db)
    }

    fn set_feed_events(&mut self, events: u64) -> Result<()> {
        self.meta.set_feed_events(&mut self.db, events)
    }

    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        specs::log_range(&mut self.db, row)
    }

    fn append_log(&mut self, row: Row, first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        specs::append_log(&mut self.db, row, (first, attempt), lines)
    }

    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
        specs::log(&mut self.db, row, from, limit)
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        specs::trim_log(&mut self.db, row, before)
    }

    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>> {
        rest::worker(&mut self.db, id)
    }

    fn put_worker(&mut self, worker: Worker) -> Result<()> {
        rest::put_worker(&mut self.db, &worker)
    }

    fn remove_worker(&mut self, id: &WorkerId) -> Result<()> {
        rest::remove_worker(&mut self.db, id)
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
