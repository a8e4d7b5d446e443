//! One error type for every store, so that callers decide by what happened and not by where.

use crate::id::{JobId, RunId};
use crate::job::{State, Verb};
use crate::name::{QueueName, ScheduleName};
use crate::store::{ClaimRequest, RunState};
use serde::{Deserialize, Serialize};

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The first seven concern the store or the whole call, the others one job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be reached or is busy; nothing was applied.
    #[error("the store is unavailable: {reason}; nothing was applied, try again")]
    Unavailable {
        /// What the store said.
        reason: String,
    },
    /// The call broke off; it may or may not have been applied.
    #[error("the store's answer was lost: {reason}; repeat the call with the same ids to learn its outcome")]
    Unknown {
        /// What broke.
        reason: String,
    },
    /// No answer in time; it may or may not have been applied.
    #[error("no answer in time: {reason}; repeat the call with the same ids to learn its outcome")]
    Timeout {
        /// Which limit ran out.
        reason: String,
    },
    /// No room: the queue is at its maximum length, or the store's disk or memory is full.
    #[error("full: {what}; work something off, raise the limit, or try later")]
    Full {
        /// What is full.
        #[serde(rename = "reason")]
        what: String,
    },
    /// Stored bytes cannot be read.
    #[error("stored data is damaged: {what}")]
    Corrupt {
        /// Which data, and how it is damaged.
        #[serde(rename = "reason")]
        what: String,
    },
    /// The store was written by another program or by a newer version.
    #[error("the store does not fit this program: {what}")]
    Incompatible {
        /// What does not fit, and what to do.
        #[serde(rename = "reason")]
        what: String,
    },
    /// The request makes no sense; nothing was applied.
    #[error("invalid {field}: {reason}")]
    Invalid {
        /// The field at fault.
        field: String,
        /// Why, and what would be right.
        reason: String,
    },
    /// There is no such job, schedule, queue or worker.
    #[error("not found: {what}")]
    NotFound {
        /// What was looked for.
        #[serde(rename = "subject")]
        what: String,
    },
    /// The lease is not the current one: it expired, or the job was given to another worker or ended.
    #[error("the lease is lost; stop working on this job, its outcome is not wanted any more")]
    LeaseLost,
    /// The job's state does not allow this.
    #[error("a job that is {from} cannot {verb}")]
    IllegalTransition {
        /// The state the job is in.
        from: State,
        /// What was asked of it.
        verb: Verb,
    },
    /// The id is taken by a job with another content.
    #[error("the id {id} is taken by a job with another content")]
    Duplicate {
        /// The id that is taken.
        id: JobId,
    },
    /// The job's dedup key is held by another one that has not ended.
    #[error("the dedup key of this job is held by the job {by}; let that one end first")]
    KeyTaken {
        /// The job that holds it.
        by: JobId,
    },
    /// There is another run under this id.
    #[error("another run has the id {run}; choose another id")]
    RunTaken {
        /// The id that is taken.
        run: RunId,
    },
    /// The run is not in a state in which this can be done.
    #[error("the run {run} {why}")]
    RunRefused {
        /// The run.
        run: RunId,
        /// Why not, and what to do.
        #[serde(rename = "reason")]
        why: String,
    },
    /// A commit that requires read messages would leave some in the inbox. The lease stays held, and nothing was changed.
    #[error("{unread} messages of the run {run} are not read yet; read them with a renewal, then commit again")]
    UnreadMessages {
        /// The run.
        run: RunId,
        /// The messages that the commit would leave in the inbox.
        unread: u64,
    },
    /// A bound of the contract was exceeded.
    #[error("{what} is {got}, at most {max} is allowed")]
    Limit {
        /// What exceeds its bound.
        what: String,
        /// The bound.
        max: u64,
        /// What was asked for.
        got: u64,
    },
}

/// How `Limit::what` ends when a queue has no room for another lane.
pub const LANES_OF_A_QUEUE: &str = "of the queue";

impl Error {
    /// A request that makes no sense.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// A bound that was exceeded.
    pub fn limit(what: impl Into<String>, max: u64, got: u64) -> Self {
        Self::Limit { what: what.into(), max, got }
    }

    /// A job that would bring its queue more lanes than it may have, `got` in all.
    pub fn too_many_lanes(has_labels: bool, max: u64, got: u64) -> Self {
        let what = match has_labels {
            true => "number of lanes with labels (kinds and sets of labels)",
            false => "number of kinds without labels",
        };
        Self::limit(format!("with this job the {what} {LANES_OF_A_QUEUE}"), max, got)
    }

    /// Something that is not there.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound { what: what.into() }
    }

    /// Stored bytes that cannot be read.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// A job that is not there.
    pub fn job_not_found(id: JobId) -> Self {
        Self::not_found(format!("the job {id}"))
    }

    /// A run that is not there.
    pub fn run_not_found(run: RunId) -> Self {
        Self::not_found(format!("the run {run}"))
    }

    /// A queue that is not there.
    pub fn queue_not_found(queue: &QueueName) -> Self {
        Self::not_found(format!("the queue `{queue}`"))
    }

    /// A schedule that is not there.
    pub fn schedule_not_found(name: &ScheduleName) -> Self {
        Self::not_found(format!("the schedule `{name}`"))
    }

    /// A queue that has no room for another job.
    pub fn queue_full(queue: &QueueName, max: u64) -> Self {
        Self::Full { what: format!("the queue `{queue}` is at its maximum length of {max}") }
    }

    /// A change of a quarantined job, other than its removal.
    pub fn job_quarantined(id: JobId) -> Self {
        Self::corrupt(format!("the job {id} is quarantined; look at it, then remove it"))
    }

    /// A record that another one refers to is missing. `what` is the kind of the record.
    pub fn missing_record(what: &str, number: u64) -> Self {
        Self::corrupt(format!("{what} {number} is not there"))
    }

    /// A job of an atomic batch that would have been accepted by itself.
    pub fn batch_refused() -> Self {
        Self::invalid("atomic", "another job of the batch was refused; nothing was enqueued")
    }

    /// A cursor that this listing did not return.
    pub fn wrong_cursor() -> Self {
        Self::invalid("cursor", "is not one of this listing; begin without a cursor")
    }

    /// A claim with the request id of another claim.
    pub fn request_id_reused() -> Self {
        Self::invalid("request_id", "was used before for another claim; take a new one")
    }

    /// A claim with a lower request id than the worker's last claim.
    pub fn request_id_too_low(request: &ClaimRequest, last: u64) -> Self {
        let ClaimRequest { request_id: got, worker, .. } = request;
        let rule = "count upwards, and give every process and every start a worker id of its own";
        Self::invalid("request_id", format!("is {got} after {last}; {rule} (this one is `{worker}`)"))
    }

    /// An append of log lines that would leave a gap.
    pub fn log_gap(first: u64, next: u64) -> Self {
        Self::invalid("first", format!("is {first}, but the next line is {next}"))
    }

    /// An unforced obliteration of a queue with active jobs.
    pub fn jobs_active(count: u64) -> Self {
        let reason = format!("{count} jobs are active; wait for them, or force it and let their workers lose them");
        Self::invalid("force", reason)
    }

    /// A commit or a renewal of a run with an inbox number greater than that of the last item. `field` contains the number.
    pub fn beyond_inbox(field: &'static str) -> Self {
        Self::invalid(field, "is beyond the inbox; give that of the claim or of the last renewal")
    }

    /// A run whose state does not allow a call.
    pub fn run_refused(run: RunId, why: impl Into<String>) -> Self {
        Self::RunRefused { run, why: why.into() }
    }

    /// The removal of a run that has not ended.
    pub fn run_not_removed(run: RunId) -> Self {
        Self::run_refused(run, "has not ended; cancel it first")
    }

    /// A message to a run that has ended.
    pub fn run_ended(run: RunId, state: RunState) -> Self {
        Self::run_refused(run, format!("has ended: {}", state.name()))
    }

    /// A message to a run that is stuck for the reason `stuck`.
    pub fn run_stuck(run: RunId, stuck: &str) -> Self {
        Self::run_refused(run, format!("is stuck ({stuck}); open it again first"))
    }

    /// A message to a run whose inbox holds `max` unread messages.
    pub fn inbox_full(run: RunId, max: u64) -> Self {
        Self::Full { what: format!("the run {run} has {max} unread messages") }
    }

    /// A commit that ends a run as terminated, or goes on with one that is.
    pub fn terminated_only(is_terminated: bool) -> Self {
        let reason = match is_terminated {
            true => "the run was terminated; its commits have the state terminated, too",
            false => "only a message with `terminates` terminates a run; choose another state",
        };
        Self::invalid("state", reason)
    }

    /// A call to a store that was closed.
    pub fn store_closed() -> Self {
        Self::Unavailable { reason: "the store was closed".to_owned() }
    }

    /// A thread that could not be started.
    pub fn no_thread(error: &std::io::Error) -> Self {
        Self::Unavailable { reason: format!("no thread could be started: {error}") }
    }

    /// An answer to an enqueue that says nothing about some of the jobs.
    pub fn too_few_answers() -> Self {
        Self::Unknown { reason: "the store answered for fewer jobs than it was given".to_owned() }
    }

    /// The kind of error in one word, as in its JSON form: a label for metrics and for programs, never its text.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
            Self::Timeout { .. } => "timeout",
            Self::Full { .. } => "full",
            Self::Corrupt { .. } => "corrupt",
            Self::Incompatible { .. } => "incompatible",
            Self::Invalid { .. } => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::LeaseLost => "lease_lost",
            Self::IllegalTransition { .. } => "illegal_transition",
            Self::Duplicate { .. } => "duplicate",
            Self::KeyTaken { .. } => "key_taken",
            Self::RunTaken { .. } => "run_taken",
            Self::RunRefused { .. } => "run_refused",
            Self::UnreadMessages { .. } => "unread_messages",
            Self::Limit { .. } => "limit",
        }
    }

    /// True when the same call may succeed later. After `Unknown` and `Timeout` repeat it with the same ids.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unknown { .. } | Self::Timeout { .. } | Self::Full { .. })
    }

    /// True when nobody knows whether the call was applied.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Timeout { .. })
    }

    /// True when the worker must stop working on the job.
    pub fn is_lease_lost(&self) -> bool {
        matches!(self, Self::LeaseLost)
    }

    /// True when what was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
