//! The engine of the embedded stores: the whole contract, over plain tables.
//!
//! A [`Step`] is one atomic step. It reads and writes [`Tables`], asks the pure machine what a job becomes, and pushes
//! every change of a job through one function ([`Step::apply`]), which keeps counters, groups, metrics and the feed. So
//! none of them can drift from the records. The host of the tables makes the step atomic and durable, and tells the
//! waiters afterwards.

mod apply;
mod change;
mod claim;
mod dedup;
mod embedded;
mod enqueue;
mod explain;
mod feed_log;
mod groups;
mod list;
mod logs;
mod many;
mod numbers;
mod quarantine;
mod queue_map;
mod report;
mod rows;
mod runs;
mod scan;
mod schedules;
mod select;
mod settings;
mod signals;
mod status;
mod sweep;
mod tables;
mod workers;

use crate::error::Result;
use crate::id::{JobId, RunId};
use crate::name::QueueName;
use crate::random::Random;
use crate::store::{FeedCursor, FeedEntry, FeedEvent};
use crate::time::Timestamp;

pub use embedded::Host;
pub use enqueue::Prepared;
pub use feed_log::{decode_events, encode_events};
pub use numbers::{NumberHasher, NumberMap};
pub use queue_map::QueueMap;
pub use rows::{
    ClaimMemo, DedupRow, Extra, Fresh, Group, GroupId, GroupLimits, Lane, LaneId, Ord64, Parked, Queue, QueueId,
    Record, ReportMemo, Row, RunRow, RunValue, Sub, Worker,
};
pub use runs::{PreparedCommit, PreparedRun};
pub use scan::{Cursor, CursorPosition, JobScan, SCAN_MAX, question, spec_contains};
pub use signals::Signals;
pub use tables::{
    DedupTables, FeedTables, GroupTables, JobTables, LogTables, MetricTables, Position, QueueTables, RunTables,
    RunWalk, ScheduleTables, Tables, Walk, WorkerTables,
};

/// How many of the oldest feed entries one step forgets at most, so that a step after the feed's length was lowered stays
/// short. More than one, so that the feed becomes shorter with every step.
pub const FEED_TRIM_MAX: usize = 1_000;

/// What a step did that somebody may be waiting for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Queues on which something may be claimed that could not be before.
    pub work: Vec<QueueName>,
    /// A run may be claimed that could not be before.
    pub runs: bool,
    /// Jobs and runs that ended or are gone.
    pub ended: Vec<Ended>,
    /// The feed's end, if it moved.
    pub feed: Option<FeedCursor>,
}

/// A job or a run whose end can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// A job.
    Job(JobId),
    /// A run.
    Run(RunId),
}

impl Effects {
    /// Adds those of a later step.
    pub fn merge(&mut self, later: Self) {
        for queue in later.work {
            if !self.work.contains(&queue) {
                self.work.push(queue);
            }
        }
        self.runs |= later.runs;
        self.ended.extend(later.ended);
        self.feed = later.feed.or(self.feed);
    }
}

/// One atomic step over the tables of a store.
pub struct Step<'t, T> {
    tables: &'t mut T,
    random: &'t dyn Random,
    now: Timestamp,
    events: Vec<FeedEvent>,
    effects: Effects,
}

impl<'t, T: Tables> Step<'t, T> {
    /// Begins a step. All of it happens at `now`.
    pub fn new(tables: &'t mut T, random: &'t dyn Random, now: Timestamp) -> Self {
        Self { tables, random, now, events: Vec::new(), effects: Effects::default() }
    }

    /// The store's time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Ends the step: writes its one entry into the feed.
    pub fn finish(mut self) -> Result<Effects> {
        if !self.events.is_empty() {
            let cursor = FeedCursor(self.tables.feed_end()?.saturating_add(1));
            let entry = FeedEntry { cursor, at: self.now, events: std::mem::take(&mut self.events) };
            self.tables.append_feed(entry)?;
            let events_min = self.feed_events()?;
            self.tables.trim_feed(events_min)?;
            self.effects.feed = Some(cursor);
        }
        Ok(self.effects)
    }

    /// Something may be claimed on `queue` that could not be before.
    fn ring(&mut self, queue: &QueueName) {
        if !self.effects.work.contains(queue) {
            self.effects.work.push(queue.clone());
        }
    }
}

impl<T> std::fmt::Debug for Step<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step").field("now", &self.now).finish_non_exhaustive()
    }
}
