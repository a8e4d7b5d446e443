//! The tables of the memory store: maps, and ordered sets as indexes.

use super::jobs::Jobs;
use super::rest::Rest;
use super::runs::Runs;
use crate::engine::{
    ClaimMemo, DedupRow, Extra, Fresh, Group, GroupId, Lane, LaneId, NumberMap, Ord64, Parked, Position, Queue,
    QueueId, Record, ReportMemo, Row, Sub, Tables, Walk, Worker,
};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, State};
use crate::name::{GroupName, Kind, Labels, QueueName, ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::store::{FeedEntry, LogLine, MinuteMetrics};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// All of it.
#[derive(Debug, Default)]
pub struct MemoryTables {
    seq: u64,
    queues: NumberMap<QueueId, Queue>,
    queue_names: HashMap<QueueName, QueueId>,
    lanes: NumberMap<LaneId, Lane>,
    queue_lanes: BTreeMap<QueueId, BTreeSet<LaneId>>,
    lane_names: HashMap<(QueueId, Kind, Labels), LaneId>,
    groups: NumberMap<GroupId, Group>,
    group_names: BTreeMap<QueueId, BTreeMap<GroupName, GroupId>>,
    parked: BTreeSet<(QueueId, GroupId)>,
    wakes: BTreeSet<(QueueId, Timestamp, GroupId)>,
    subs: NumberMap<(LaneId, GroupId), Sub>,
    rings: BTreeSet<(LaneId, u64, GroupId)>,
    group_lanes: BTreeSet<(GroupId, LaneId)>,
    jobs: Jobs,
    pub(super) runs: Runs,
    rest: Rest,
}

fn gone(what: &str, number: u64) -> Error {
    Error::missing_record(what, number)
}

impl Tables for MemoryTables {
    fn next_seq(&mut self) -> Result<u64> {
        self.seq += 1;
        Ok(self.seq)
    }

    fn queues(&mut self) -> Result<Vec<QueueId>> {
        Ok(self.queue_lanes.keys().copied().collect())
    }

    fn find_queue(&mut self, name: &QueueName) -> Result<Option<QueueId>> {
        Ok(self.queue_names.get(name).copied())
    }

    fn insert_queue(&mut self, queue: Queue) -> Result<()> {
        self.queue_names.insert(queue.name.clone(), queue.id);
        self.queue_lanes.insert(queue.id, BTreeSet::new());
        self.queues.insert(queue.id, queue);
        Ok(())
    }

    fn queue(&mut self, id: QueueId) -> Result<&Queue> {
        self.queues.get(&id).ok_or_else(|| gone("queue", id.0))
    }

    fn queue_mut(&mut self, id: QueueId) -> Result<&mut Queue> {
        self.queues.get_mut(&id).ok_or_else(|| gone("queue", id.0))
    }

    fn remove_queue(&mut self, id: QueueId) -> Result<()> {
        for lane in self.lanes(id)? {
            self.remove_lane(lane)?;
        }
        let groups: Vec<GroupId> =
            self.groups.values().filter(|group| group.queue == id).map(|group| group.id).collect();
        for group in groups {
            self.remove_group(group)?;
        }
        self.queue_lanes.remove(&id);
        self.group_names.remove(&id);
        self.rest.minutes.retain(|(queue, _), _| *queue != id);
        if let Some(queue) = self.queues.remove(&id) {
            self.queue_names.remove(&queue.name);
        }
        Ok(())
    }

    fn lanes(&mut self, queue: QueueId) -> Result<Vec<LaneId>> {
        Ok(self.queue_lanes.get(&queue).map_or_else(Vec::new, |lanes| lanes.iter().copied().collect()))
    }

    fn find_lane(&mut self, queue: QueueId, kind: &Kind, labels: &Labels) -> Result<Option<LaneId>> {
        // The names are cheap to clone: two counts.
        Ok(self.lane_names.get(&(queue, kind.clone(), labels.clone())).copied())
    }

    fn insert_lane(&mut self, lane: Lane) -> Result<()> {
        self.lane_names.insert((lane.queue, lane.kind.clone(), lane.labels.clone()), lane.id);
        self.queue_lanes.entry(lane.queue).or_default().insert(lane.id);
        self.lanes.insert(lane.id, lane);
        Ok(())
    }

    fn lane(&mut self, id: LaneId) -> Result<&Lane> {
        self.lanes.get(&id).ok_or_else(|| gone("lane", id.0))
    }

    fn lane_mut(&mut self, id: LaneId) -> Result<&mut Lane> {
        self.lanes.get_mut(&id).ok_or_else(|| gone("lane", id.0))
    }

    fn remove_lane(&mut self, id: LaneId) -> Result<()> {
        if let Some(lane) = self.lanes.remove(&id) {
            self.lane_names.remove(&(lane.queue, lane.kind, lane.labels));
            if let Some(lanes) = self.queue_lanes.get_mut(&lane.queue) {
                lanes.remove(&id);
            }
        }
        Ok(())
    }

    fn find_group(&mut self, queue: QueueId, name: &GroupName) -> Result<Option<GroupId>> {
        Ok(self.group_names.get(&queue).and_then(|names| names.get(name)).copied())
    }

    fn insert_group(&mut self, group: Group) -> Result<()> {
        if let Some(name) = &group.name {
            self.group_names.entry(group.queue).or_default().insert(name.clone(), group.id);
        }
        self.groups.insert(group.id, group);
        Ok(())
    }

    fn group(&mut self, id: GroupId) -> Result<&Group> {
        self.groups.get(&id).ok_or_else(|| gone("group", id.0))
    }

    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group> {
        self.groups.get_mut(&id).ok_or_else(|| gone("group", id.0))
    }

    fn park_group(&mut self, id: GroupId, parked: Parked, wake_at: Option<Timestamp>) -> Result<()> {
        let group = self.groups.get_mut(&id).ok_or_else(|| gone("group", id.0))?;
        if let Some(at) = group.wake_at {
            self.wakes.remove(&(group.queue, at, id));
        }
        if let Some(at) = wake_at {
            self.wakes.insert((group.queue, at, id));
        }
        if parked == Parked::No {
            self.parked.remove(&(group.queue, id));
        } else {
            self.parked.insert((group.queue, id));
        }
        group.parked = parked;
        group.wake_at = wake_at;
        Ok(())
    }

    fn remove_group(&mut self, id: GroupId) -> Result<()> {
        self.park_group(id, Parked::No, None)?;
        if let Some(group) = self.groups.remove(&id)
            && let Some(name) = group.name
            && let Some(names) = self.group_names.get_mut(&group.queue)
        {
            names.remove(&name);
        }
        Ok(())
    }

    fn groups(&mut self, queue: QueueId, after: Option<&GroupName>, limit: usize) -> Result<Vec<GroupId>> {
        let Some(names) = self.group_names.get(&queue) else { return Ok(Vec::new()) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(names.range::<GroupName, _>((from, Bound::Unbounded)).take(limit).map(|(_, id)| *id).collect())
    }

    fn parked_groups(&mut self, queue: QueueId) -> Result<Vec<GroupId>> {
        let of_queue = self.parked.range((queue, GroupId(0))..=(queue, GroupId(u64::MAX)));
        Ok(of_queue.map(|(_, group)| *group).collect())
    }

    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<GroupId>> {
        let waking =
            self.wakes.range((queue, Timestamp::from_ms(i64::MIN), GroupId(0))..=(queue, until, GroupId(u64::MAX)));
        Ok(waking.take(limit).map(|(.., group)| *group).collect())
    }

    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        let wakes = self.wakes.range((queue, Timestamp::from_ms(i64::MIN), GroupId(0))..);
        Ok(wakes.take(1).find(|(of, ..)| *of == queue).map(|(_, at, _)| *at))
    }

    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub> {
        Ok(self.subs.get(&(lane, group)).copied().unwrap_or_default())
    }

    fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) -> Result<()> {
        let before = if sub.ready == 0 {
            self.group_lanes.remove(&(group, lane));
            self.subs.remove(&(lane, group))
        } else {
            let before = self.subs.insert((lane, group), sub);
            if before.is_none() {
                self.group_lanes.insert((group, lane));
            }
            before
        };
        let old = before.and_then(|before| before.vtime);
        let new = sub.vtime.filter(|_| sub.ready > 0);
        if old != new {
            if let Some(vtime) = old {
                self.rings.remove(&(lane, vtime, group));
            }
            if let Some(vtime) = new {
                self.rings.insert((lane, vtime, group));
            }
        }
        Ok(())
    }

    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, limit: usize) -> Result<Vec<(u64, GroupId)>> {
        let from = match after {
            Some((vtime, group)) => Bound::Excluded((lane, vtime, group)),
            None => Bound::Included((lane, 0, GroupId(0))),
        };
        let to = Bound::Included((lane, u64::MAX, GroupId(u64::MAX)));
        Ok(self.rings.range((from, to)).take(limit).map(|(_, vtime, group)| (*vtime, *group)).collect())
    }

    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>> {
        let of_group = self.group_lanes.range((group, LaneId(0))..=(group, LaneId(u64::MAX)));
        Ok(of_group.map(|(_, lane)| *lane).collect())
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Row>> {
        Ok(self.jobs.find(id))
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
        self.jobs.spec(row)
    }

    fn extra(&mut self, row: Row) -> Result<Extra> {
        Ok(self.jobs.extra(row))
    }

    fn insert_job(&mut self, fresh: Fresh) -> Result<()> {
        self.jobs.insert(fresh);
        Ok(())
    }

    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()> {
        self.jobs.update(before, after)
    }

    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.jobs.put_spec(row, spec)
    }

    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        self.jobs.put_extra(row, extra)
    }

    fn remove_job(&mut self, record: &Record) -> Result<()> {
        self.jobs.remove(record);
        Ok(())
    }

    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>> {
        Ok(self.jobs.ready(lane, group, after, limit))
    }

    fn due(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        Ok(self.jobs.due(queue, until, limit))
    }

    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        Ok(self.jobs.next_due(queue))
    }

    fn expired(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        Ok(self.jobs.expired(until, limit))
    }

    fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.jobs.next_expiry())
    }

    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>> {
        Ok(self.jobs.cancelling(worker))
    }

    fn removable(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        Ok(self.jobs.removable(until, limit))
    }

    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, limit: usize) -> Result<Vec<Row>> {
        let lanes = self.lanes(queue)?;
        Ok(self.jobs.ended(&lanes, state, until, limit))
    }

    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        Ok(self.jobs.walk(walk))
    }

    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        Ok(self.rest.dedup(key))
    }

    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
        self.rest.put_dedup(key, row);
        Ok(())
    }

    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
        Ok(self.rest.expired_dedup(until, limit))
    }

    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>> {
        Ok(self.rest.memos.get(worker).and_then(|memo| memo.claim.clone()))
    }

    fn put_claim_memo(&mut self, worker: &WorkerId, claim: ClaimMemo, now: Timestamp) -> Result<()> {
        let memo = self.rest.memo(worker, now);
        memo.claim = Some(claim);
        Ok(())
    }

    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo> {
        Ok(self.rest.memos.get(worker).map_or_else(Vec::new, |memo| memo.report.clone()))
    }

    fn put_report_memo(&mut self, worker: &WorkerId, report: ReportMemo, now: Timestamp) -> Result<()> {
        self.rest.memo(worker, now).report = report;
        Ok(())
    }

    fn prune_memos(&mut self, before: Timestamp, limit: usize) -> Result<u64> {
        Ok(self.rest.prune_memos(before, limit))
    }

    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics> {
        Ok(self.rest.minute_mut(queue, minute))
    }

    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>> {
        Ok(self.rest.minutes.range((queue, from)..=(queue, to)).map(|(_, metrics)| *metrics).collect())
    }

    fn prune_minutes(&mut self, before: i64, limit: usize) -> Result<u64> {
        Ok(self.rest.prune_minutes(before, limit))
    }

    fn feed_end(&mut self) -> Result<u64> {
        Ok(self.rest.feed_end)
    }

    fn feed_begin(&mut self) -> Result<u64> {
        Ok(self.rest.feed.front().map_or(self.rest.feed_end + 1, |entry| entry.cursor.0))
    }

    fn append_feed(&mut self, entry: FeedEntry) -> Result<()> {
        self.rest.append_feed(entry);
        Ok(())
    }

    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        Ok(self.rest.feed_after(after, limit))
    }

    fn trim_feed(&mut self, events_min: u64) -> Result<()> {
        self.rest.trim_feed(events_min);
        Ok(())
    }

    fn feed_events(&mut self) -> Result<Option<u64>> {
        Ok(self.rest.feed_events_min)
    }

    fn set_feed_events(&mut self, events: u64) -> Result<()> {
        self.rest.feed_events_min = Some(events);
        Ok(())
    }

    fn log_range(&mut self, row: Row) -> Result<(u64, u64)> {
        Ok(self.jobs.log_range(row))
    }

    fn append_log(&mut self, row: Row, _first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()> {
        self.jobs.append_log(row, attempt, lines)
    }

    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>> {
        Ok(self.jobs.log(row, from, limit))
    }

    fn trim_log(&mut self, row: Row, before: u64) -> Result<()> {
        self.jobs.trim_log(row, before)
    }

    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>> {
        Ok(self.rest.workers.get(id).cloned())
    }

    fn put_worker(&mut self, worker: Worker) -> Result<()> {
        self.rest.workers.insert(worker.id().clone(), worker);
        Ok(())
    }

    fn remove_worker(&mut self, id: &WorkerId) -> Result<()> {
        self.rest.workers.remove(id);
        Ok(())
    }

    fn workers(&mut self) -> Result<Vec<Worker>> {
        Ok(self.rest.workers.values().cloned().collect())
    }

    fn schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>> {
        Ok(self.rest.schedules.get(name).cloned())
    }

    fn put_schedule(&mut self, schedule: Schedule) -> Result<()> {
        self.rest.schedules.insert(schedule.name.clone(), schedule);
        Ok(())
    }

    fn remove_schedule(&mut self, name: &ScheduleName) -> Result<()> {
        self.rest.schedules.remove(name);
        Ok(())
    }

    fn schedules(&mut self) -> Result<Vec<Schedule>> {
        Ok(self.rest.schedules.values().cloned().collect())
    }

    fn due_schedules(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Schedule>> {
        Ok(self.rest.due_schedules(until, limit))
    }
}
