//! What a store answered, in a form in which two stores can be compared: a token becomes the number of its lease, a
//! cursor and a revision disappear, and of texts that only people read nothing stays but that they are there.

use std::sync::Arc;
use windlass_core::id::JobId;
use windlass_core::job::{FailureClass, Job, JobSpec, JobSummary};
use windlass_core::schedule::Schedule;
use windlass_core::store::{
    Changed, DueSchedule, Enqueued, Explanation, FeedEvent, FireOutcome, GroupStatus, InboxItem, LogPage,
    MinuteMetrics, QueueStatus, Reason, Renewed, Reported, RunCommitted, RunCreated, RunItem, WorkerStatus,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// A job that was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The number of its lease, in the order in which leases were first seen.
    pub(crate) lease: usize,
    pub(crate) job: JobId,
    pub(crate) attempt: u32,
    pub(crate) expires_at: Timestamp,
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) stalls: u32,
    pub(crate) retries: u32,
    pub(crate) created_at: Timestamp,
}

/// What a store answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Nothing,
    Failed(Error),
    Enqueued(Vec<Result<Enqueued>>),
    Claimed(Vec<Granted>),
    Renewed(Vec<Result<Renewed>>),
    Reported(Vec<Result<Reported>>),
    ReportedAndClaimed(Vec<Result<Reported>>, Vec<Granted>),
    Changed(Vec<Result<Changed>>),
    ChangedMany(u64),
    Jobs(Vec<Option<Job>>),
    Page(Vec<JobSummary>),
    Queues(Vec<QueueStatus>),
    Groups(Vec<GroupStatus>),
    Metrics(Vec<MinuteMetrics>),
    Explained(Explanation),
    /// How many, where the contract says what counts.
    Swept(Option<u64>),
    Runs(Vec<Result<RunCreated>>),
    /// What a claim of a run has shown, and what became of the commit.
    RunStepped(Vec<RunItem>, Vec<Result<RunCommitted>>),
    Appended(Vec<Result<u64>>),
    Logs(LogPage),
    CancelledJobs(Vec<JobId>),
    Workers(Vec<WorkerStatus>),
    Removed(bool),
    Schedules(Vec<Schedule>),
    Due(Vec<DueSchedule>),
    Fired(FireOutcome),
    Ticked {
        handled: u64,
        jobs: u64,
        failed: usize,
    },
    Feed(Vec<(Timestamp, FeedEvent)>),
    FeedEvents {
        set: Result<()>,
        now: u64,
    },
    Now(Timestamp),
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self::Failed(plain_error(error))
    }
}

/// The same error without the words.
pub(crate) fn plain_error(error: Error) -> Error {
    let none = String::new;
    match error {
        Error::Unavailable { .. } => Error::Unavailable { reason: none() },
        Error::Full { .. } => Error::Full { what: none() },
        Error::Invalid { field, .. } => Error::Invalid { field, reason: none() },
        Error::NotFound { .. } => Error::NotFound { what: none() },
        Error::Limit { max, got, .. } => Error::Limit { what: none(), max, got },
        // The texts of these are worth a difference: none of them is expected here.
        other => other,
    }
}

pub(crate) fn plain_errors<T>(answers: Vec<Result<T>>) -> Vec<Result<T>> {
    answers.into_iter().map(|answer| answer.map_err(plain_error)).collect()
}

/// The same job without the words that the store itself put there.
pub(crate) fn plain_job(mut job: Job) -> Job {
    for failure in &mut job.failures {
        if matches!(failure.class, FailureClass::Stalled | FailureClass::Released) {
            failure.message.clear();
        }
    }
    job
}

/// The same item without the words that the store itself put there.
pub(crate) fn plain_item(found: InboxItem) -> RunItem {
    let mut item = found.item;
    if let RunItem::JobEnded(end) = &mut item
        && let Some(error) = &mut end.error
        && error != "boom"
    {
        error.clear();
    }
    item
}

pub(crate) fn plain_summary(mut job: JobSummary) -> JobSummary {
    job.last_error = job.last_error.map(|_| String::new());
    job
}

pub(crate) fn plain_explanation(mut explanation: Explanation) -> Explanation {
    if let Reason::BackingOff { error, .. } | Reason::Ended { error: Some(error) } = &mut explanation.reason {
        error.clear();
    }
    explanation
}

/// A revision is the store's own number.
pub(crate) fn plain_schedule(mut schedule: Schedule) -> Schedule {
    schedule.revision = 0;
    schedule
}

/// A store may note a beat late, as long as it knows who lives.
pub(crate) fn plain_worker(mut worker: WorkerStatus) -> WorkerStatus {
    worker.seen_at = worker.since;
    worker
}
