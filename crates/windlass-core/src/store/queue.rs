//! Jobs: enqueue, claim, renew, report, change, list, explain.

use super::changes::{Change, ChangeMany, Changed, ChangedMany, JobPage, ListRequest};
use super::settings::Setting;
use super::status::{Explanation, GroupPage, GroupsRequest, MetricsRequest, MinuteMetrics, QueueStatus, Sweep, Swept};
use super::wire;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{
    Failure, FailureClass, Job, JobSpec, LEASE_MS_MAX, LEASE_MS_MIN, Lease, NewJob, Progress, RESULT_BYTES_MAX, Retry,
    State,
};
use crate::name::{Kind, Labels, QueueName, WORKER_LABELS_MAX, WorkerId};
use crate::payload::Payload;
use crate::retry::RETRY_DELAY_MS_MAX;
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most items of one call.
pub const BATCH_MAX: usize = 10_000;
/// The most queues of one claim.
const QUEUES_MAX: usize = 256;
/// Bits of [`ClaimedJob::claim_number`] that count the claims since the last explicit retry: attempts and stalls are at most
/// 10,000 each.
const CLAIM_BITS: u32 = 20;

/// Jobs, from enqueue to removal.
#[async_trait]
pub trait JobQueue: Send + Sync + 'static {
    /// Accepts jobs. The same job enqueued again, while it is kept, is answered the same way and enqueued once.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnqueueRequest {
    /// The jobs, at most [`BATCH_MAX`].
    pub jobs: Vec<NewJob>,
    /// All or none: nothing is enqueued when any of them would be refused if none of them were deduplicated.
    #[serde(default)]
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

    /// The answer to a call that was repeated because its first answer was lost, for a job whose id was made for this call.
    /// Nobody else has that id, so a job that is there already was created by the first call. A custom id may have been
    /// there before, and stays `Existing`.
    #[must_use]
    pub fn of_repetition(self, job: &NewJob) -> Self {
        match self {
            Self::Existing { id } if job.spec.custom_id.is_none() => Self::Created { id },
            answer => answer,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub labels: Labels,
    /// How many at most.
    pub max: u32,
    /// For how long.
    pub lease_ms: u64,
}

impl ClaimRequest {
    /// One job of any kind from one queue for 30 seconds, by a worker that offers no labels.
    ///
    /// `request_id` counts upwards for as long as the worker id is used: the same number again repeats the last answer.
    /// So give every process, and every start of it, a worker id of its own.
    pub fn new(worker: WorkerId, request_id: u64, queue: QueueName) -> Self {
        let (kinds, labels) = (Kinds::Any, Labels::default());
        Self { worker, request_id, queues: vec![queue], kinds, labels, max: 1, lease_ms: 30_000 }
    }

    /// Refuses what no store can answer.
    pub fn check(&self) -> Result<()> {
        if self.max == 0 {
            return Err(Error::invalid("max", "is 0; ask for at least one job"));
        }
        if self.max as usize > BATCH_MAX {
            return Err(Error::limit("max", BATCH_MAX as u64, u64::from(self.max)));
        }
        check_lease_ms(self.lease_ms)?;
        if self.queues.is_empty() {
            return Err(Error::invalid("queues", "is empty; name at least one queue"));
        }
        if self.queues.len() > QUEUES_MAX {
            return Err(Error::limit("queues", QUEUES_MAX as u64, self.queues.len() as u64));
        }
        if self.labels.len() > WORKER_LABELS_MAX {
            return Err(Error::limit("labels", WORKER_LABELS_MAX as u64, self.labels.len() as u64));
        }
        match &self.kinds {
            Kinds::Only(kinds) if kinds.len() > BATCH_MAX => {
                Err(Error::limit("kinds", BATCH_MAX as u64, kinds.len() as u64))
            }
            Kinds::Any | Kinds::Only(_) => Ok(()),
        }
    }

    /// Tells two claims under the same request id apart.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = blake3::Hasher::new();
        let mut text = |part: &str| {
            hash.update(part.as_bytes()).update(b"\0");
        };
        self.queues.iter().for_each(|queue| text(queue.as_str()));
        text("");
        self.labels.iter().for_each(|label| text(label.as_str()));
        text("");
        match &self.kinds {
            // No kind has an empty name.
            Kinds::Any => text(""),
            Kinds::Only(kinds) => kinds.iter().for_each(|kind| text(kind.as_str())),
        }
        hash.update(&self.max.to_le_bytes()).update(&self.lease_ms.to_le_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

/// Refuses a call with too many items.
pub fn check_batch(len: usize) -> Result<()> {
    if len > BATCH_MAX {
        return Err(Error::limit("the batch", BATCH_MAX as u64, len as u64));
    }
    Ok(())
}

/// Refuses a bound that is 0 or beyond that of a call.
pub fn check_max(field: &'static str, max: u32) -> Result<()> {
    if max == 0 || max as usize > BATCH_MAX {
        return Err(Error::invalid(field, format!("is {max}; give 1 to {BATCH_MAX}")));
    }
    Ok(())
}

/// Refuses a lease that is too short to be renewed or too long to be meant.
pub(crate) fn check_lease_ms(lease_ms: u64) -> Result<()> {
    match lease_ms {
        0..LEASE_MS_MIN => Err(Error::invalid("lease_ms", format!("is {lease_ms}; give at least {LEASE_MS_MIN}"))),
        LEASE_MS_MIN..=LEASE_MS_MAX => Ok(()),
        _ => Err(Error::limit("lease_ms", LEASE_MS_MAX, lease_ms)),
    }
}

/// Tells a wait what its caller has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkMark(#[serde(with = "wire::large_number")] pub u64);

/// The answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The jobs, in the order in which they should start.
    #[serde(default)]
    pub jobs: Vec<ClaimedJob>,
    /// What this claim has seen, for the next wait.
    pub mark: WorkMark,
    /// When, as far as is known, there will be more without anybody's doing: the next due job or freed rate.
    pub next_at: Option<Timestamp>,
    /// When waits are notified of new work: how long the caller can wait before it claims by itself. `None` when they are not,
    /// and the caller claims at its own interval.
    pub poll_after_ms: Option<u64>,
}

/// A job and the lease on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedJob {
    /// The proof of the claim.
    pub lease: Lease,
    /// When the lease ends, by the store's clock.
    pub expires_at: Timestamp,
    /// What the job is.
    pub spec: Arc<JobSpec>,
    /// Leases of it that ran out before.
    #[serde(default)]
    pub stall_count: u32,
    /// Explicit retries of the ended job before.
    #[serde(default)]
    pub retry_count: u32,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Since when it had been ready when it was claimed: after its delay, its back-off or its last lease.
    pub ready_at: Timestamp,
}

impl ClaimedJob {
    /// Orders the claims of a job under which its handler started: a later one has a higher number. The number of the
    /// attempt does not, because a stall gives the attempt back and an explicit retry counts from 1 again.
    pub fn claim_number(&self) -> u64 {
        let claims = u64::from(self.lease.attempt) + u64::from(self.stall_count);
        (u64::from(self.retry_count) << CLAIM_BITS) | claims.min((1 << CLAIM_BITS) - 1)
    }
}

/// A worker speaks for jobs that it still works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// The leases.
    pub renewals: Vec<Renewal>,
}

/// One lease to extend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// Which.
    pub lease: Lease,
    /// Counted from now; `None` leaves its end where it is. It is never moved earlier.
    pub lease_ms: Option<u64>,
    /// How far the handler is.
    pub progress: Option<Progress>,
}

impl Renewal {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if let Some(lease_ms) = self.lease_ms {
            check_lease_ms(lease_ms)?;
        }
        self.progress.as_ref().map_or(Ok(()), Progress::check)
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRequest {
    /// Who reports.
    pub worker: WorkerId,
    /// The outcomes, at most [`BATCH_MAX`].
    pub outcomes: Vec<Outcome>,
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The attempt.
    pub lease: Lease,
    /// How it ended.
    #[serde(rename = "outcome")]
    pub kind: OutcomeKind,
}

impl Outcome {
    /// It went well, and there is nothing to hand on.
    pub fn complete(lease: Lease) -> Self {
        Self { lease, kind: OutcomeKind::Complete { result: None, outputs: BTreeMap::new() } }
    }

    /// It went well; `result` is what the handler returned.
    pub fn complete_with(lease: Lease, result: Payload) -> Self {
        Self { lease, kind: OutcomeKind::Complete { result: Some(result), outputs: BTreeMap::new() } }
    }

    /// It went wrong; `retry` is what the job's policy says.
    pub fn fail(lease: Lease, message: impl Into<String>, retry: Retry) -> Self {
        let failure = Failure::new(FailureClass::Error, message);
        Self { lease, kind: OutcomeKind::Fail { failure, retry } }
    }

    /// It was never begun; it goes back to its place.
    pub fn release(lease: Lease) -> Self {
        Self { lease, kind: OutcomeKind::Release { started: false } }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// Well.
    Complete {
        /// What the handler returned.
        result: Option<Payload>,
        /// Named values for whoever comes after it.
        #[serde(default)]
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

impl OutcomeKind {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Complete { result, outputs } => check_result(result.as_ref(), outputs),
            Self::Fail { retry: Retry::AfterMs(ms), .. } if *ms > RETRY_DELAY_MS_MAX => {
                Err(Error::limit("retry", RETRY_DELAY_MS_MAX, *ms))
            }
            Self::Fail { .. } | Self::Release { .. } => Ok(()),
        }
    }
}

/// The most outputs of a job.
const OUTPUTS_MAX: usize = 1_000;

fn check_result(result: Option<&Payload>, outputs: &BTreeMap<String, String>) -> Result<()> {
    if let Some(result) = result {
        result.check("result", RESULT_BYTES_MAX)?;
    }
    if outputs.len() > OUTPUTS_MAX {
        return Err(Error::limit("outputs", OUTPUTS_MAX as u64, outputs.len() as u64));
    }
    let named = outputs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
    let bytes = named + result.map_or(0, |result| result.bytes.len() as u64);
    if bytes > RESULT_BYTES_MAX {
        return Err(Error::limit("result and outputs, in bytes,", RESULT_BYTES_MAX, bytes));
    }
    match outputs.keys().find(|key| key.is_empty() || key.chars().any(char::is_control)) {
        Some(key) => Err(Error::invalid("outputs", format!("`{}` is no name for an output", key.escape_debug()))),
        None => Ok(()),
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedAndClaimed {
    /// To the report.
    #[serde(with = "wire::items")]
    pub reported: Vec<Result<Reported>>,
    /// To the claim.
    pub claimed: Claimed,
}
