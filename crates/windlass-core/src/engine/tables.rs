//! What the engine needs of an embedded store: records by key, and a few ordered indexes over them.
//!
//! Whoever implements this, and [`Host`](super::Host), has a whole store. The rules of the contract are not here.

use super::queue_map::QueueMap;
use super::rows::{
    ClaimMemo, DedupRow, Extra, Fresh, Group, GroupId, Lane, LaneId, Ord64, Parked, Queue, QueueId, Record, ReportMemo,
    Row, RunRow, RunValue, Sub, Worker,
};
use crate::error::Result;
use crate::id::{JobId, RunId};
use crate::job::{JobSpec, State};
use crate::name::{GroupName, Kind, Labels, QueueName, ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::store::{FeedEntry, LogLine, MinuteMetrics, RunItem, RunState};
use crate::time::Timestamp;
use bytes::Bytes;
use std::sync::Arc;

/// A place in the listing of one state: what it is sorted by, as three numbers.
pub type Position = [i64; 3];

/// Which jobs to walk through.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    /// On this queue.
    pub queue: QueueId,
    /// In these lanes of it, by number.
    pub lanes: &'a [LaneId],
    /// In this state.
    pub state: State,
    /// Backwards.
    pub descending: bool,
    /// Beyond this place.
    pub after: Option<Position>,
    /// How many at most.
    pub limit: usize,
}

/// Which runs to walk through.
#[derive(Clone, Copy, Debug)]
pub struct RunWalk {
    /// In this state; `None` for all.
    pub state: Option<RunState>,
    /// Backwards.
    pub descending: bool,
    /// Beyond this place.
    pub after: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// The tables of an embedded store, each trait where its data is. `&mut self` throughout, because an implementation may keep
/// a cache.
///
/// A method that takes `limit` returns at most that many, in the order that it documents. The indexes are functions of
/// the records: [`update_job`](JobTables::update_job) gets the old and the new record and changes the entries that differ.
pub trait Tables:
    QueueTables
    + GroupTables
    + JobTables
    + DedupTables
    + LogTables
    + FeedTables
    + MetricTables
    + WorkerTables
    + ScheduleTables
    + RunTables
{
}

impl<T> Tables for T where
    T: QueueTables
        + GroupTables
        + JobTables
        + DedupTables
        + LogTables
        + FeedTables
        + MetricTables
        + WorkerTables
        + ScheduleTables
        + RunTables
{
}

/// The store's sequence, queues and lanes. An implementation writes the four required methods.
pub trait QueueTables {
    /// The next number of the store's one sequence: rising, never given twice.
    fn next_seq(&mut self) -> Result<u64>;
    /// All queues and lanes: read when they are first asked for, and written back at the end of the step.
    fn queue_map(&mut self) -> Result<&mut QueueMap>;
    /// Removes a queue, its lanes, its groups and its metrics; it has no jobs any more.
    fn remove_queue(&mut self, id: QueueId) -> Result<()>;
    /// Removes a lane that has no jobs any more.
    fn remove_lane(&mut self, id: LaneId) -> Result<()>;

    /// All queues.
    fn queues(&mut self) -> Result<Vec<QueueId>> {
        Ok(self.queue_map()?.all())
    }

    /// The queue of this name.
    fn find_queue(&mut self, name: &QueueName) -> Result<Option<QueueId>> {
        Ok(self.queue_map()?.find(name))
    }

    /// Adds a queue.
    fn insert_queue(&mut self, queue: Queue) -> Result<()> {
        self.queue_map()?.insert(queue);
        Ok(())
    }

    /// A queue that exists.
    fn queue(&mut self, id: QueueId) -> Result<&Queue> {
        self.queue_map()?.get(id)
    }

    /// A queue that exists, to be changed.
    fn queue_mut(&mut self, id: QueueId) -> Result<&mut Queue> {
        self.queue_map()?.get_mut(id)
    }

    /// The lanes of a queue, by number.
    fn lanes(&mut self, queue: QueueId) -> Result<Vec<LaneId>> {
        Ok(self.queue_map()?.lanes(queue))
    }

    /// The lane of this kind and these labels.
    fn find_lane(&mut self, queue: QueueId, kind: &Kind, labels: &Labels) -> Result<Option<LaneId>> {
        Ok(self.queue_map()?.find_lane(queue, kind, labels))
    }

    /// Adds a lane.
    fn insert_lane(&mut self, lane: Lane) -> Result<()> {
        self.queue_map()?.insert_lane(lane);
        Ok(())
    }

    /// A lane that exists.
    fn lane(&mut self, id: LaneId) -> Result<&Lane> {
        self.queue_map()?.lane(id)
    }

    /// A lane that exists, to be changed.
    fn lane_mut(&mut self, id: LaneId) -> Result<&mut Lane> {
        self.queue_map()?.lane_mut(id)
    }
}

/// Groups, and their turns in the lanes.
pub trait GroupTables {
    /// The group of this name.
    fn find_group(&mut self, queue: QueueId, name: &GroupName) -> Result<Option<GroupId>>;
    /// Adds a group.
    fn insert_group(&mut self, group: Group) -> Result<()>;
    /// A group that exists.
    fn group(&mut self, id: GroupId) -> Result<&Group>;
    /// A group that exists, to be changed; not its `parked` and `wake_at`, which are indexed.
    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group>;
    /// Changes whether a group is out of the ring, and when to look at it again.
    fn park_group(&mut self, id: GroupId, parked: Parked, wake_at: Option<Timestamp>) -> Result<()>;
    /// Removes a group that has no ready and no active jobs.
    fn remove_group(&mut self, id: GroupId) -> Result<()>;
    /// Named groups of a queue after `after`, by name.
    fn groups(&mut self, queue: QueueId, after: Option<&GroupName>, limit: usize) -> Result<Vec<GroupId>>;
    /// The groups of a queue that are out of the ring.
    fn parked_groups(&mut self, queue: QueueId) -> Result<Vec<GroupId>>;
    /// Groups of a queue whose `wake_at` is not after `until`, earliest first.
    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<GroupId>>;
    /// The earliest `wake_at` of a queue's groups.
    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>>;

    /// The jobs of one group in one lane; none is `Sub::default()`.
    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub>;
    /// Changes it; one with nothing ready is removed.
    fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) -> Result<()>;
    /// The ring of a lane beyond `after`: by virtual time, then group.
    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, limit: usize) -> Result<Vec<(u64, GroupId)>>;
    /// The lanes in which a group has ready jobs.
    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>>;
}

/// Jobs, and the indexes over them.
pub trait JobTables {
    /// Where the job of this id is kept.
    fn find_job(&mut self, id: JobId) -> Result<Option<Row>>;
    /// A record. `Corrupt` when it cannot be read.
    fn record(&mut self, row: Row) -> Result<Option<Record>>;
    /// What can be read of a record that cannot be read as a whole; its place in the indexes and counters counts.
    /// Changes nothing.
    fn salvage(&mut self, row: Row) -> Result<Option<Record>>;
    /// Writes a salvaged record over what could not be read.
    fn mend(&mut self, record: &Record) -> Result<()>;
    /// What a job that exists was asked to be. `Corrupt` when it cannot be read.
    fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>>;
    /// The rest of a job. `Corrupt` when it cannot be read.
    fn extra(&mut self, row: Row) -> Result<Extra>;
    /// Adds a job.
    fn insert_job(&mut self, fresh: Fresh) -> Result<()>;
    /// Replaces a record, and moves it in the indexes.
    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()>;
    /// Replaces what a job was asked to be.
    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()>;
    /// Replaces the rest of a job.
    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()>;
    /// Removes a job with its spec, its rest, its logs and its places in all indexes.
    fn remove_job(&mut self, record: &Record) -> Result<()>;

    /// Ready jobs of a group in a lane beyond `after`, in order.
    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>>;
    /// Scheduled jobs of a queue that are due by `until`, earliest first.
    fn due(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<Row>>;
    /// The earliest time of a scheduled job of a queue that is not held.
    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>>;
    /// Active jobs whose lease ended by `until`, earliest first.
    fn expired(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>>;
    /// The earliest end of a lease.
    fn next_expiry(&mut self) -> Result<Option<Timestamp>>;
    /// Active jobs of a worker that were cancelled.
    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>>;
    /// Ended jobs that say themselves how long they are kept and have to go by `until`.
    fn removable(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Row>>;
    /// Ended jobs of a queue in one state that ended by `until`, earliest first, without those that say themselves how
    /// long they are kept.
    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, limit: usize) -> Result<Vec<Row>>;
    /// Jobs of one queue and state in listing order: scheduled by time, ready by lane, group and place, active by age,
    /// ended by time.
    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>>;
}

/// Dedup keys.
pub trait DedupTables {
    /// Who holds a dedup key.
    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>>;
    /// Changes or frees it.
    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()>;
    /// Keys whose time ran out by `until`.
    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>>;
}

/// Workers, and the answers that they were given last.
pub trait WorkerTables {
    /// The last claim of a worker.
    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>>;
    /// Keeps it.
    fn put_claim_memo(&mut self, worker: &WorkerId, memo: ClaimMemo, now: Timestamp) -> Result<()>;
    /// The last report of a worker.
    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo>;
    /// Keeps it.
    fn put_report_memo(&mut self, worker: &WorkerId, memo: ReportMemo, now: Timestamp) -> Result<()>;
    /// Forgets what was kept before `before` for workers; answers how many.
    fn prune_memos(&mut self, before: Timestamp, limit: usize) -> Result<u64>;

    /// A worker.
    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>>;
    /// Adds or replaces a worker.
    fn put_worker(&mut self, worker: Worker) -> Result<()>;
    /// Removes a worker.
    fn remove_worker(&mut self, id: &WorkerId) -> Result<()>;
    /// All workers, by id.
    fn workers(&mut self) -> Result<Vec<Worker>>;
}

/// The metrics of queues, by minute.
pub trait MetricTables {
    /// The minute of a queue, made if it is not there.
    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics>;
    /// The minutes of a queue, oldest first.
    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>>;
    /// Forgets minutes before `before`; answers how many.
    fn prune_minutes(&mut self, before: i64, limit: usize) -> Result<u64>;
}

/// The feed.
pub trait FeedTables {
    /// The number of the last feed entry; 0 when there was none.
    fn feed_end(&mut self) -> Result<u64>;
    /// The number of the oldest entry that is kept; one more than the end when there is none.
    fn feed_begin(&mut self) -> Result<u64>;
    /// Adds the entry, whose number is one more than the end's.
    fn append_feed(&mut self, entry: FeedEntry) -> Result<()>;
    /// Entries after `after`, in order.
    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>>;
    /// Forgets the oldest entries while those that stay hold at least `events_min` events: at most
    /// [`FEED_TRIM_MAX`](super::FEED_TRIM_MAX) of them, or of the rows in which they are stored.
    fn trim_feed(&mut self, events_min: u64) -> Result<()>;
    /// The stored length of the feed; `None` when it was never set, or cannot be read. Asked in every step.
    fn feed_events(&mut self) -> Result<Option<u64>>;
    /// Stores the length of the feed.
    fn set_feed_events(&mut self, events: u64) -> Result<()>;
}

/// The log lines of jobs.
pub trait LogTables {
    /// The numbers of a job's first kept line and of its next one.
    fn log_range(&mut self, row: Row) -> Result<(u64, u64)>;
    /// Adds lines from number `first` on.
    fn append_log(&mut self, row: Row, first: u64, attempt: u32, lines: Vec<LogLine>) -> Result<()>;
    /// Lines from number `from` on.
    fn log(&mut self, row: Row, from: u64, limit: usize) -> Result<Vec<(u32, LogLine)>>;
    /// Forgets lines before number `before`.
    fn trim_log(&mut self, row: Row, before: u64) -> Result<()>;
}

/// Schedules.
pub trait ScheduleTables {
    /// A schedule.
    fn schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>>;
    /// Adds or replaces a schedule.
    fn put_schedule(&mut self, schedule: Schedule) -> Result<()>;
    /// Removes a schedule.
    fn remove_schedule(&mut self, name: &ScheduleName) -> Result<()>;
    /// All schedules, by name.
    fn schedules(&mut self) -> Result<Vec<Schedule>>;
    /// Schedules that are not paused and whose next tick is not after `until`, earliest first.
    fn due_schedules(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Schedule>>;
}

/// The tables of runs.
pub trait RunTables {
    /// A run. `Corrupt` when it cannot be read.
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>>;
    /// Adds or replaces a run, and moves it in the indexes.
    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()>;
    /// Removes a run with everything of it, whether or not it can be read.
    fn remove_run(&mut self, id: RunId) -> Result<()>;
    /// Takes a run that cannot be read out of the indexes by which runs are claimed.
    fn set_run_aside(&mut self, id: RunId) -> Result<()>;
    /// Keeps what a run is about: its definition and its input.
    fn put_run_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) -> Result<()>;
    /// Replaces its input.
    fn put_run_input(&mut self, id: RunId, input: Bytes) -> Result<()>;
    /// Replaces a value of it; `None` removes the value.
    fn put_run_value(&mut self, id: RunId, value: RunValue, bytes: Option<Bytes>) -> Result<()>;
    /// A value of it.
    fn run_value(&mut self, id: RunId, value: RunValue) -> Result<Option<Bytes>>;
    /// Keeps the hash of a message id in a slot, in place of what was there.
    fn put_message_id(&mut self, id: RunId, slot: u64, hash: [u8; 16]) -> Result<()>;
    /// True when the hash of a message id is in one of the slots.
    fn has_message_id(&mut self, id: RunId, hash: [u8; 16]) -> Result<bool>;
    /// Its definition.
    fn run_definition(&mut self, id: RunId) -> Result<Option<Bytes>>;
    /// Its input.
    fn run_input(&mut self, id: RunId) -> Result<Option<Bytes>>;
    /// Adds to a run's history from entry `first` on.
    fn append_history(&mut self, id: RunId, first: u64, entries: Vec<Bytes>) -> Result<()>;
    /// Entries of a run's history from entry `from` on.
    fn history(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<Bytes>>;
    /// Adds an item to a run's inbox.
    fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) -> Result<()>;
    /// Items of a run's inbox from number `from` on, by number; `None` for one that cannot be read. Those that are not there
    /// are left out: fewer than `limit` are all that follow.
    fn inbox(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<(u64, Option<RunItem>)>>;
    /// Forgets items from number `from` on and before `to`.
    fn trim_inbox(&mut self, id: RunId, from: u64, to: u64) -> Result<()>;
    /// Forgets single items of a run's inbox.
    fn remove_inbox_items(&mut self, id: RunId, numbers: &[u64]) -> Result<()>;
    /// Runs of a kind that have something to do and that nobody holds, in their order.
    fn ready_runs(&mut self, kind: &Kind, limit: usize) -> Result<Vec<RunId>>;
    /// Runs that time gave something to do by `until`, earliest first.
    fn waking_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>>;
    /// When time gives the next run something to do.
    fn next_run_wake(&mut self) -> Result<Option<Timestamp>>;
    /// Runs in one state beyond `after`, by their place among all runs.
    fn runs(&mut self, walk: RunWalk) -> Result<Vec<(u64, RunId)>>;
    /// Ended runs that have to go by `until`.
    fn removable_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>>;
}
