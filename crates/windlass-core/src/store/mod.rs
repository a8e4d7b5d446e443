//! The storage contract.
//!
//! Everything is batched: results come in the order of the input, one per item. An error of the whole call means that
//! nothing is known about any item; an error of an item means that this item changed nothing. Every change is atomic per
//! item, and every change that needs a lease checks its token in the same atomic step.

mod changes;
mod contract;
mod feed;
mod logs;
mod messages;
mod queue;
mod run_items;
mod run_steps;
mod run_views;
mod runs;
mod schedules;
mod settings;
mod status;
mod wire;
mod workers;

use crate::error::Result;
use crate::id::{JobId, RunId};
use crate::name::{QueueName, WorkerId};
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use changes::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, Changed, ChangedMany, Filter, JobPage, LIST_MAX, ListOrder, ListRequest,
};
pub use contract::{Answer, Call, CallStore, HandleCall, Method, Wrap, Wrapped};
pub use feed::{
    FEED_EVENTS_DEFAULT, FEED_EVENTS_MAX, FEED_EVENTS_MIN, Feed, FeedCursor, FeedEntry, FeedEvent, FeedPage,
    FeedRequest, Transition, check_feed_events,
};
pub use logs::{LOG_LINE_BYTES_MAX, LOG_LINES_MAX, LogAppend, LogLine, LogPage, LogRequest, LogSink, LogStream};
pub use messages::{
    MESSAGE_IDS_KEPT, RUN_CHANGED, RUN_NOT_CLEANED_UP, RUN_NOT_ENDED, RUN_NOT_STUCK, RUN_TERMINATED, RunMessage,
    UNREAD_MESSAGES_MAX,
};
pub use queue::{
    BATCH_MAX, ClaimRequest, Claimed, ClaimedJob, EnqueueRequest, Enqueued, JobQueue, Kinds, Outcome, OutcomeKind,
    RenewRequest, Renewal, Renewed, ReportRequest, Reported, ReportedAndClaimed, WorkMark, check_batch, check_max,
};
pub use run_items::{INBOX_ITEMS_MAX, InboxItem, JobEnd, RunEnd, RunItem, child_refused};
pub use run_steps::{
    PUBLISHED_BYTES_MAX, PUBLISHED_MAX, RUN_LABEL_NAME_BYTES_MAX, RUN_LABEL_VALUE_BYTES_MAX, RUN_LABELS_MAX, RunCommit,
    RunCommitted, RunSegment, RunStep,
};
pub use run_views::{RUN_READ_BYTES_MAX, RUN_SCAN_MAX, Run, RunChange, RunLabel, RunList, RunPage, RunRead, RunView};
pub use runs::{
    CLAIM_HISTORIES_BYTES_MAX, CLAIM_HISTORY_BYTES_MAX, ClaimedRun, DEFINITION_BYTES_MAX, NEW_RUN_MESSAGES_MAX, NewRun,
    RUN_ENTRY_BYTES_MAX, RUN_KEPT_MS, RUN_PART_BYTES_MAX, RUN_TEXT_BYTES_MAX, RunClaim, RunCreated, RunLease,
    RunRenewal, RunRenewed, RunReuse, RunState, RunStore, RunsClaimed,
};
pub use schedules::{DueSchedule, Fire, FireOutcome, ScheduleStore};
pub(crate) use settings::check_cap;
pub use settings::{GroupSettings, QueueSettings, Retention, RetentionRule, Setting, WEIGHT_MAX};
pub use status::{
    Explanation, GroupPage, GroupStatus, GroupsRequest, MINUTES_KEPT, MetricsRequest, MinuteMetrics, QueueCounts,
    QueueStatus, Reason, Sweep, SweepKind, Swept, WORKER_KEPT_MS,
};
pub use workers::{Beat, BeatAnswer, WorkerRegistry, WorkerStatus};

/// What survives which accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing survives the end of the process: for tests.
    None,
    /// Acknowledged work survives a crash of our processes, not a power cut.
    Process,
    /// Acknowledged work survives a power cut.
    Power,
    /// Acknowledged work survives a power cut of one server; a failover may lose the last of it.
    FailoverBestEffort,
}

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Which store: `memory`, `sqlite`, …
    pub store: String,
    /// The version of the layout it keeps.
    pub layout: u32,
    /// What it promises, checked against its live settings.
    pub durability: Durability,
    /// Settings worth showing.
    #[serde(default, with = "wire::named_values")]
    pub details: Vec<(String, String)>,
}

impl StoreInfo {
    /// Adds the length of the feed to the details.
    #[must_use]
    pub fn with_feed_events(mut self, events: u64) -> Self {
        self.details.push(("feed events".to_owned(), events.to_string()));
        self
    }
}

/// Something to wait for. A wait only shortens the time until the next look; nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Work on one of these queues that the claim which gave `mark` had not seen.
    Work {
        /// The queues.
        queues: Vec<QueueName>,
        /// From the last claim.
        mark: WorkMark,
    },
    /// The end or removal of a job.
    Job(JobId),
    /// The end or removal of a run.
    Run(RunId),
    /// A run with something to do that the claim which gave this mark had not seen.
    Runs(WorkMark),
    /// An entry of the feed after this one.
    Feed(FeedCursor),
}

/// The answer of [`Store::claim_maintenance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaintenanceClaim {
    /// The caller does the maintenance until its `ttl_ms` has passed since the call.
    Granted,
    /// Another process does the maintenance.
    HeldByOther {
        /// When to ask again.
        retry_after_ms: u64,
    },
}

impl MaintenanceClaim {
    /// True when the caller does the maintenance.
    pub fn is_granted(self) -> bool {
        self == Self::Granted
    }
}

/// All of the contract: what a program holds as `Arc<dyn Store>`.
#[async_trait]
pub trait Store: JobQueue + LogSink + WorkerRegistry + ScheduleStore + RunStore + Feed {
    /// What kind of store this is and what it promises.
    async fn info(&self) -> Result<StoreInfo>;

    /// The store's clock.
    async fn now(&self) -> Result<Timestamp>;

    /// Returns when what it waits for may have happened, and perhaps earlier. Callers bound it by a time of their own and
    /// look again in any case.
    async fn wait(&self, target: WaitFor) -> Result<()>;

    /// Asks whether the caller does the maintenance for the next `ttl_ms`: whether it is the process that reaps, promotes, prunes
    /// and ticks. A hint, so that one of a hundred idle processes sweeps and the others rest. Correctness does not depend
    /// on it: any number of processes may sweep at once. A store whose sweeps cost next to nothing answers
    /// [`MaintenanceClaim::Granted`] to every caller.
    ///
    /// The holder renews the hint by the same call, which is safe to repeat after a lost answer. `ttl_ms` of 0 gives the
    /// hint up; the answer is then never `Granted`, except from a store that gives it to every caller.
    async fn claim_maintenance(&self, worker: WorkerId, ttl_ms: u64) -> Result<MaintenanceClaim>;

    /// Lets go of everything. Safe to call twice; calls that come later answer `Unavailable`.
    async fn close(&self) -> Result<()>;
}
