//! Jobs: enqueue, claim, renew, report, change, list, explain.

use super::settings::{GroupSettings, QueueSettings, Setting};
use crate::error::Result;
use crate::id::JobId;
use crate::job::{Due, Failure, Job, JobSpec, JobSummary, Lease, NewJob, Progress, Retry, State};
use crate::name::{GroupName, Kind, Label, Labels, QueueName, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most items of one call.
pub const BATCH_MAX: usize = 10_000;
/// The longest page of a listing.
pub const LIST_MAX: u32 = 1_000;

/// Jobs, from enqueue to removal.
#[async_trait]
pub trait JobQueue: Send + Sync + 'static {
    /// Accepts jobs. The same job enqueued again is answered the same way and enqueued once.
    async fn enqueue(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>>;

    /// Leases up to `max` jobs to a worker. The same request id is answered with the same jobs while they are leased.
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed>;

    /// Extends leases, and notes progress.
    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>>;

    /// Ends attempts. A repeated outcome is answered like the first time.
    async fn report(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>>;

    /// Both in one step, for a worker at full speed. When the claim is refused, nothing was reported.
    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed>;

    /// Changes jobs by id, without a lease: what operators and applications do.
    async fn change(&self, changes: Vec<Change>) -> Result<Vec<Result<Changed>>>;

    /// One bounded step of a change to all jobs that match.
    async fn change_many(&self, request: ChangeMany) -> Result<ChangedMany>;

    /// Looks jobs up.
    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>>;

    /// One page of the jobs that match. A page may be short and still carry a cursor.
    async fn list(&self, request: ListRequest) -> Result<JobPage>;

    /// Changes the settings of a queue or a group.
    async fn configure(&self, setting: Setting) -> Result<()>;

    /// All queues, by name.
    async fn queues(&self) -> Result<Vec<QueueStatus>>;

    /// The groups of a queue that have work, a lease, settings, or starts that their rate remembers, by name.
    async fn groups(&self, request: GroupsRequest) -> Result<GroupPage>;

    /// What happened per minute, oldest first; minutes in which nothing happened are left out.
    async fn metrics(&self, request: MetricsRequest) -> Result<Vec<MinuteMetrics>>;

    /// Why a job stands where it stands.
    async fn explain(&self, id: JobId) -> Result<Explanation>;

    /// One bounded step of the work that time brings.
    async fn sweep(&self, sweep: Sweep) -> Result<Swept>;
}

/// Jobs to enqueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnqueueRequest {
    /// The jobs, at most [`BATCH_MAX`].
    pub jobs: Vec<NewJob>,
    /// All or none: nothing is enqueued when any of them would be refused if none of them were deduplicated.
    pub atomic: bool,
}

impl EnqueueRequest {
    /// Each for itself.
    pub fn new(jobs: Vec<NewJob>) -> Self {
        Self { jobs, atomic: false }
    }
}

/// What became of a job to enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Enqueued {
    /// It is there now.
    Created {
        /// Its id.
        id: JobId,
    },
    /// The very same job was there already.
    Existing {
        /// Its id.
        id: JobId,
    },
    /// Its dedup key is held by another job, which stands for it.
    Deduplicated {
        /// The job that stands for it.
        by: JobId,
    },
    /// It took the place of a job with the same dedup key that nobody worked on; that one is gone.
    Replaced {
        /// Its id.
        id: JobId,
        /// The job that is gone.
        old: JobId,
    },
    /// It is there, held behind the active job with the same dedup key.
    Held {
        /// Its id.
        id: JobId,
        /// The job it waits for.
        behind: JobId,
    },
}

impl Enqueued {
    /// The job that does the work.
    pub fn id(&self) -> JobId {
        match *self {
            Self::Created { id } | Self::Existing { id } | Self::Replaced { id, .. } | Self::Held { id, .. } => id,
            Self::Deduplicated { by } => by,
        }
    }
}

/// Which kinds a worker has handlers for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kinds {
    /// All of them: for tools and tests.
    Any,
    /// These, and no others.
    Only(Vec<Kind>),
}

impl Kinds {
    /// True when `kind` is one of them.
    pub fn contain(&self, kind: &Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Only(kinds) => kinds.contains(kind),
        }
    }
}

/// A worker asks for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// Rises with every claim of this worker; the same one again repeats the answer.
    pub request_id: u64,
    /// Where to look, in this order.
    pub queues: Vec<QueueName>,
    /// What the worker has handlers for.
    pub kinds: Kinds,
    /// What the worker offers.
    pub labels: Labels,
    /// How many at most.
    pub max: u32,
    /// For how long.
    pub lease_ms: u64,
}

/// Tells a wait what its caller has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkMark(pub u64);

/// The answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The jobs, in the order in which they should start.
    pub jobs: Vec<ClaimedJob>,
    /// What this claim has seen, for the next wait.
    pub mark: WorkMark,
    /// When, as far as is known, there will be more without anybody's doing: the next due job or freed rate.
    pub next_at: Option<Timestamp>,
}

/// A job and the lease on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedJob {
    /// The proof of the claim.
    pub lease: Lease,
    /// When the lease ends, by the store's clock.
    pub expires_at: Timestamp,
    /// What the job is.
    pub spec: Arc<JobSpec>,
    /// Leases of it that ran out before.
    pub stalls: u32,
    /// When it was enqueued.
    pub created_at: Timestamp,
}

/// A worker speaks for jobs that it still works on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewRequest {
    /// The leases.
    pub renewals: Vec<Renewal>,
}

/// One lease to extend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Which.
    pub lease: Lease,
    /// Counted from now; `None` leaves its end where it is. It is never moved earlier.
    pub lease_ms: Option<u64>,
    /// How far the handler is.
    pub progress: Option<Progress>,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// When the lease ends now.
    pub expires_at: Timestamp,
    /// The job was cancelled: stop its handler and report.
    pub cancel_requested: bool,
}

/// A worker reports what became of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// Who reports.
    pub worker: WorkerId,
    /// The outcomes, at most [`BATCH_MAX`].
    pub outcomes: Vec<Outcome>,
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The attempt.
    pub lease: Lease,
    /// How it ended.
    pub kind: OutcomeKind,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// Well.
    Complete {
        /// What the handler returned.
        result: Option<Payload>,
        /// Named values for whoever comes after it.
        outputs: BTreeMap<String, String>,
    },
    /// Badly.
    Fail {
        /// How; attempt and time are filled in by the store.
        failure: Failure,
        /// What the policy says.
        retry: Retry,
    },
    /// Not at all: the worker gives the job back. It keeps its place in the order.
    Release {
        /// Its handler had begun; then the attempt is spent.
        started: bool,
    },
}

/// The answer to an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The state that it led to.
    pub state: State,
    /// It had been reported before; nothing was changed this time.
    pub repeated: bool,
}

/// The answers to both halves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAndClaimed {
    /// To the report.
    pub reported: Vec<Result<Reported>>,
    /// To the claim.
    pub claimed: Claimed,
}

/// One job to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub id: JobId,
    /// How.
    pub op: ChangeOp,
}

/// How to change a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOp {
    /// End it: at once when it waits, through its handler when it is active. Cancelling twice is fine.
    Cancel,
    /// Make a scheduled job ready now.
    Promote,
    /// Move its time.
    Reschedule(Due),
    /// Change its priority.
    Reprioritise(i16),
    /// Change its input.
    UpdatePayload(Payload),
    /// Give an ended job a new life with all its attempts: without result, outputs and progress, its failures and logs
    /// kept. `Duplicate` names the job that holds its dedup key meanwhile.
    Retry(Due),
    /// Forget it.
    Remove,
}

/// The answer to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The state it led to; `None` when the job is gone.
    pub state: Option<State>,
}

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// On this queue.
    pub queue: Option<QueueName>,
    /// In this state.
    pub state: Option<State>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Of this group.
    pub group: Option<GroupName>,
    /// That require this label.
    pub label: Option<Label>,
    /// With this text in the custom id, the last error, or the payload.
    pub text: Option<String>,
}

/// A change to all jobs that match, one bounded step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeMany {
    /// What to do.
    pub op: ChangeManyOp,
    /// Which jobs; the queue is needed.
    pub filter: Filter,
    /// How many jobs to look at in this step.
    pub max: u32,
    /// Where the last step ended.
    pub cursor: Option<String>,
}

/// What to do with all jobs that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeManyOp {
    /// Remove what waits: ready jobs, and scheduled ones if asked.
    Drain {
        /// Remove scheduled jobs too.
        scheduled: bool,
    },
    /// Remove ended jobs in the filter's state (or in any) that ended at least so long ago.
    Clean {
        /// How long ago.
        older_than_ms: u64,
    },
    /// Remove everything, the queue's settings included. Refused while jobs are active, unless forced, and with a
    /// filter for anything but the queue.
    Obliterate {
        /// Active jobs too; their workers lose their leases.
        force: bool,
    },
    /// Give every failed job a new life.
    RetryFailed,
    /// Make every scheduled job ready.
    PromoteAll,
    /// Cancel every job that has not ended.
    CancelAll,
}

/// The answer to one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedMany {
    /// How many jobs were changed.
    pub changed: u64,
    /// Where to go on; `None` when all is done.
    pub cursor: Option<String>,
}

/// In which direction to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListOrder {
    /// What comes or came first.
    #[default]
    Ascending,
    /// The other way round.
    Descending,
}

/// A page of jobs, please.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Which.
    pub filter: Filter,
    /// In which direction.
    pub order: ListOrder,
    /// From the last page; only with the same filter and order.
    pub cursor: Option<String>,
    /// From 1 to [`LIST_MAX`].
    pub limit: u32,
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobSummary>,
    /// Where to go on; `None` when there is no more.
    pub cursor: Option<String>,
}

/// How many jobs are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the states")]
pub struct QueueCounts {
    pub scheduled: u64,
    pub ready: u64,
    pub active: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl QueueCounts {
    /// From counts in the order of [`State::ALL`].
    pub fn from_array([scheduled, ready, active, succeeded, failed, cancelled]: [u64; 6]) -> Self {
        Self { scheduled, ready, active, succeeded, failed, cancelled }
    }
}

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its name.
    pub name: QueueName,
    /// How many jobs are in which state; maintained, not counted.
    pub counts: QueueCounts,
    /// How it is set.
    pub settings: QueueSettings,
    /// Lanes in use.
    pub lanes: u32,
}

/// A page of groups, please.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupsRequest {
    /// Of this queue.
    pub queue: QueueName,
    /// The last group of the page before.
    pub after: Option<GroupName>,
    /// From 1 to [`LIST_MAX`].
    pub limit: u32,
}

/// A page of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPage {
    /// The groups, by name.
    pub groups: Vec<GroupStatus>,
    /// There may be more after the last one.
    pub more: bool,
}

/// A group as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: GroupName,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Jobs that are being worked on.
    pub active: u64,
    /// How it is set, where it differs from its queue's settings for groups.
    pub settings: GroupSettings,
    /// Out of turn until this time, because of its rate.
    pub rate_limited_until: Option<Timestamp>,
}

/// What happened per minute, please.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsRequest {
    /// On this queue.
    pub queue: QueueName,
    /// From the minute that contains this time.
    pub from: Timestamp,
    /// To the minute that contains this time, itself included.
    pub to: Timestamp,
}

/// What happened on one queue in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinuteMetrics {
    /// The minute's beginning.
    pub minute: Timestamp,
    /// Jobs accepted.
    pub enqueued: u64,
    /// Jobs leased.
    pub claimed: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that ended on request.
    pub cancelled: u64,
    /// Attempts that failed and will be tried again.
    pub retried: u64,
    /// Leases that ran out.
    pub stalled: u64,
    /// Milliseconds that the claimed jobs had been ready; what a delay or a back-off took is not in it.
    pub waited_ms: u64,
    /// Milliseconds that the ended attempts took.
    pub ran_ms: u64,
}

/// Why a job stands where it stands: one exact reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The job.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// The reason.
    pub reason: Reason,
}

/// The reasons. When several hold, the one that must be mended first is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Its time has not come.
    Delayed {
        /// When it comes.
        until: Timestamp,
    },
    /// Its last attempt failed and the next one waits.
    BackingOff {
        /// Until when.
        until: Timestamp,
        /// Attempts spent.
        attempt: u32,
        /// What went wrong.
        error: String,
    },
    /// Its time has come; the next claim or sweep makes it ready.
    Due,
    /// It waits for an active job with the same dedup key.
    HeldBehind {
        /// That job.
        job: JobId,
    },
    /// The queue is paused.
    QueuePaused,
    /// Its kind is paused.
    KindPaused {
        /// The kind.
        kind: Kind,
    },
    /// The queue has as many active jobs as it may.
    QueueAtCap {
        /// How many it may.
        cap: u32,
    },
    /// The queue has started as many jobs as it may for now.
    QueueRateLimited {
        /// Until when.
        until: Timestamp,
    },
    /// Its group has as many active jobs as it may.
    GroupAtCap {
        /// The group.
        group: GroupName,
        /// How many it may.
        cap: u32,
    },
    /// Its group has started as many jobs as it may for now.
    GroupRateLimited {
        /// The group.
        group: GroupName,
        /// Until when.
        until: Timestamp,
    },
    /// No live worker works on this queue.
    NoWorkerForQueue,
    /// Workers are there, but none has a handler for its kind.
    NoWorkerForKind {
        /// The kind.
        kind: Kind,
    },
    /// Workers are there, but none offers what it requires.
    NoWorkerWithLabels {
        /// What the best of them lacks.
        missing: Vec<Label>,
    },
    /// Nothing is in its way; it waits for its turn.
    WaitsItsTurn,
    /// A worker holds it.
    Running {
        /// Who.
        worker: WorkerId,
        /// Until when the lease goes.
        until: Timestamp,
    },
    /// It was cancelled and its handler is being told.
    Cancelling {
        /// Who works on it.
        worker: WorkerId,
    },
    /// Its worker vanished; the next sweep takes the lease away.
    LeaseExpired {
        /// Who held it.
        worker: WorkerId,
    },
    /// It has ended.
    Ended {
        /// What went wrong last, if it failed.
        error: Option<String>,
    },
    /// Its stored form cannot be read; look at it, then remove it.
    Quarantined {
        /// What is wrong with it.
        why: String,
    },
}

/// One bounded step of the work that time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Which work.
    pub kind: SweepKind,
    /// How many items at most.
    pub max: u32,
}

/// The work that time brings. Any number of processes may do it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepKind {
    /// Take back leases that ran out.
    Reap,
    /// Make due jobs ready, and bring groups back whose rate allows it.
    Promote,
    /// Remove what retention lets go: ended jobs, dedup keys, old metrics, old feed entries, dead workers.
    Prune,
}

impl SweepKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reap, Self::Promote, Self::Prune];
}

/// The answer to a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// How many items were handled.
    pub handled: u64,
    /// There may be more to do at once.
    pub more: bool,
}
