//! Runs: executions of workflows. A run is advanced like a job is worked: claimed under a lease, decided about outside of
//! the store, and changed in one fenced step.
//!
//! The store knows nothing of graphs. It keeps what a run is about (its *definition* and *input*), what it has decided (its
//! *history*), and what has happened to it and is not yet handled (its *inbox*). The end of a job of the run is put into the
//! inbox in the very step that ends the job, so that nothing can be forgotten between the two.

use super::messages::RunMessage;
use super::queue::{check_batch, check_lease_ms, check_max};
use super::run_views::{RunList, RunPage, RunRead, RunView};
use super::wire;
use crate::error::{Error, Result};
use crate::id::{JobId, RunId, Token};
use crate::job::{Due, NewJob, State};
use crate::name::{Kind, WorkerId};
use crate::store::WorkMark;
use crate::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest definition of a run: 16 MiB.
pub const DEFINITION_BYTES_MAX: usize = 16 << 20;
/// The largest input of a run, the largest message to one, and the largest entry of a history: 4 MiB.
pub const RUN_PART_BYTES_MAX: usize = 4 << 20;
/// The longest name and the longest summary of a run, in bytes.
pub const RUN_TEXT_BYTES_MAX: usize = 4_096;
/// The most items of an inbox that a claim hands out at once.
pub const INBOX_ITEMS_MAX: usize = 1_000;
/// How long an ended run is kept when nobody says: 14 days.
pub const RUN_KEPT_MS: u64 = 14 * 24 * 3_600 * 1_000;

/// Runs, from their creation to their removal.
#[async_trait]
pub trait RunStore: Send + Sync + 'static {
    /// Creates runs, each together with its first step. The same run created again is answered the same way.
    async fn create_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>>;

    /// Leases runs that have something to do: items in their inbox, a time that has come, or an engine that vanished.
    async fn claim_runs(&self, request: RunClaim) -> Result<RunsClaimed>;

    /// Extends leases of claimed runs, and returns what has happened to each run since. For decisions that take longer than a
    /// lease.
    async fn renew_runs(&self, renewals: Vec<RunRenewal>) -> Result<Vec<Result<RunRenewed>>>;

    /// Changes runs as their engine decided, each in one step, with the current lease only. A repeated commit is recognised, by its
    /// lease once it has let go of it, and by the length of the history.
    async fn commit_runs(&self, commits: Vec<RunCommit>) -> Result<Vec<Result<RunCommitted>>>;

    /// Puts messages into inboxes.
    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>>;

    /// Looks runs up.
    async fn read_runs(&self, reads: Vec<RunRead>) -> Result<Vec<Option<RunView>>>;

    /// One page of runs, by the order of their creation.
    async fn list_runs(&self, request: RunList) -> Result<RunPage>;

    /// Removes runs that have ended or that are stuck or damaged, with all that is theirs but their jobs.
    async fn remove_runs(&self, runs: Vec<RunId>) -> Result<Vec<Result<()>>>;
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It goes on.
    Running,
    /// It went well.
    Succeeded,
    /// It did not.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl RunState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// True when it has ended.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Running)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A run to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRun {
    /// Its id, made by its creator.
    pub id: RunId,
    /// Which engines can advance it.
    pub kind: Kind,
    /// What people call it.
    pub name: String,
    /// What is run. Runs of the same workflow have the same one.
    #[serde(with = "wire::base64_bytes")]
    pub definition: Bytes,
    /// What this run was given.
    #[serde(with = "wire::base64_bytes")]
    pub input: Bytes,
    /// How long it is kept when it has ended; [`RUN_KEPT_MS`] when nobody says.
    pub keep_ms: Option<u64>,
    /// Its first step.
    pub step: RunStep,
}

impl NewRun {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_bytes("definition", self.definition.len(), DEFINITION_BYTES_MAX)?;
        check_bytes("input", self.input.len(), RUN_PART_BYTES_MAX)?;
        check_bytes("name", self.name.len(), RUN_TEXT_BYTES_MAX)?;
        self.step.check(self.id)
    }

    /// Tells definitions apart.
    pub fn definition_hash(&self) -> [u8; 16] {
        half(&blake3::hash(&self.definition))
    }

    /// Tells two contents under the same id apart. The first step follows from the content, but for the ids of its jobs, which
    /// are chosen anew by whoever repeats it.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint_with(&self.definition_hash())
    }

    /// The same, for whoever knows [`definition_hash`](Self::definition_hash) already: definitions are long.
    pub fn fingerprint_with(&self, definition_hash: &[u8; 16]) -> u64 {
        let mut hash = blake3::Hasher::new();
        for part in [self.kind.as_str().as_bytes(), self.name.as_bytes(), definition_hash, &self.input] {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hash.update(&self.keep_ms.unwrap_or(RUN_KEPT_MS).to_le_bytes());
        u64::from_le_bytes(half(&hash.finalize())[..8].try_into().unwrap_or_default())
    }
}

fn half(hash: &blake3::Hash) -> [u8; 16] {
    hash.as_bytes()[..16].try_into().unwrap_or_default()
}

pub(super) fn check_bytes(field: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(Error::limit(field, max as u64, len as u64));
    }
    Ok(())
}

/// What an engine decided about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStep {
    /// What is added to the history.
    #[serde(default, with = "wire::base64_list")]
    pub history: Vec<Bytes>,
    /// Jobs of the run to enqueue, all or none. They name the run, and have neither a dedup key nor an id of their own
    /// choosing. A queue's maximum length does not count for them: it holds off new work, and this is work that has begun.
    #[serde(default)]
    pub jobs: Vec<NewJob>,
    /// Jobs of the run to cancel, after `jobs` were enqueued; those that have ended are left alone.
    #[serde(default)]
    pub cancel: Vec<JobId>,
    /// Messages to other runs; those that are not there or have ended get none.
    #[serde(default)]
    pub messages: Vec<RunMessage>,
    /// When the run has something to do even if nothing happens to it.
    pub wake: Option<Due>,
    /// Where it stands then.
    pub state: RunState,
    /// Why nobody can advance it: it rests until a message opens it again.
    pub stuck: Option<String>,
    /// A short text for listings.
    #[serde(default)]
    pub summary: String,
}

impl RunStep {
    /// A step that decides nothing.
    pub fn nothing() -> Self {
        Self {
            history: Vec::new(),
            jobs: Vec::new(),
            cancel: Vec::new(),
            messages: Vec::new(),
            wake: None,
            state: RunState::Running,
            stuck: None,
            summary: String::new(),
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self, run: RunId) -> Result<()> {
        check_batch(self.history.len().max(self.jobs.len()).max(self.cancel.len()).max(self.messages.len()))?;
        check_bytes("summary", self.summary.len(), RUN_TEXT_BYTES_MAX)?;
        if let Some(stuck) = &self.stuck {
            check_bytes("stuck", stuck.len(), RUN_TEXT_BYTES_MAX)?;
        }
        for entry in &self.history {
            check_bytes("an entry of the history", entry.len(), RUN_PART_BYTES_MAX)?;
        }
        self.wake.map_or(Ok(()), Due::check)?;
        self.messages.iter().try_for_each(RunMessage::check)?;
        if self.state.is_terminal() && !self.jobs.is_empty() {
            return Err(Error::invalid("jobs", "a step that ends its run starts none"));
        }
        self.jobs.iter().try_for_each(|job| {
            if job.spec.run != Some(run) {
                return Err(Error::invalid("run", format!("a job of a step names its run, which is {run}")));
            }
            if job.spec.dedup.is_some() || job.spec.custom_id.is_some() {
                return Err(Error::invalid("dedup", "a job of a run has neither a dedup key nor a custom id"));
            }
            job.check()
        })
    }
}

/// What became of a run to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCreated {
    /// It is there now.
    Created,
    /// The very same run was there already.
    Existing,
}

/// An engine asks for runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaim {
    /// Who asks.
    pub engine: WorkerId,
    /// Which runs it can advance.
    pub kinds: Vec<Kind>,
    /// This one, if nobody holds it, whether or not it has something to do.
    pub run: Option<RunId>,
    /// How many at most.
    pub max: u32,
    /// For how long.
    pub lease_ms: u64,
}

impl RunClaim {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_max("max", self.max)?;
        check_lease_ms(self.lease_ms)?;
        if self.kinds.is_empty() {
            return Err(Error::invalid("kinds", "is empty; name at least one kind of run"));
        }
        check_batch(self.kinds.len())
    }
}

/// The proof of an exclusive claim of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunLease {
    /// The run.
    pub run: RunId,
    /// Random; whoever has it may speak for the run.
    pub token: Token,
}

/// The answer to a claim of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsClaimed {
    /// The runs.
    #[serde(default)]
    pub runs: Vec<ClaimedRun>,
    /// The store's clock.
    pub now: Timestamp,
    /// When, as far as is known, there will be more without anybody's doing.
    pub next_at: Option<Timestamp>,
    /// What this claim has seen, for the next wait.
    pub mark: WorkMark,
}

/// A run and the lease on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedRun {
    /// The proof of the claim.
    pub lease: RunLease,
    /// When the lease ends.
    pub expires_at: Timestamp,
    /// Which engines can advance it.
    pub kind: Kind,
    /// What people call it.
    pub name: String,
    /// Tells definitions apart: an engine that knows it need not read it again.
    #[serde(with = "wire::hash")]
    pub definition_hash: [u8; 16],
    /// The number of the run in its store. A run that is created again under the same id has another one.
    pub number: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// Entries of its history.
    pub history_len: u64,
    /// What has happened to it and is not yet handled, oldest first; not always all of it.
    #[serde(default)]
    pub inbox: Vec<RunItem>,
    /// To be told by the commit that has handled these.
    pub inbox_to: u64,
    /// How many items that commit takes from the inbox. More than `inbox` has when some of them cannot be read.
    pub inbox_taken: u64,
    /// The time has come that it wanted to be woken at.
    #[serde(default)]
    pub woken: bool,
}

/// Something that has happened to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum RunItem {
    /// One of its jobs has ended.
    JobEnded(JobEnd),
    /// Somebody has something to say; only engines understand it.
    Message {
        /// When it came.
        at: Timestamp,
        /// What it says.
        body: String,
    },
}

/// The end of a job of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// The job.
    pub job: JobId,
    /// How it ended; `None` when it was removed before it could.
    pub state: Option<State>,
    /// Attempts spent.
    pub attempt: u32,
    /// When it was last claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub at: Timestamp,
    /// What went wrong last, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Named values for whoever comes after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
}

/// Extends the lease of a claimed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRenewal {
    /// The proof of the claim.
    pub lease: RunLease,
    /// The lease ends this long after the call.
    pub lease_ms: u64,
    /// The number of the first inbox item to return: the `inbox_to` of the claim or of the last renewal.
    pub inbox_from: u64,
}

impl RunRenewal {
    /// Rejects a lease that is too short or too long.
    pub fn check(&self) -> Result<()> {
        check_lease_ms(self.lease_ms)
    }
}

/// The answer to a renewal of a run's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRenewed {
    /// When the lease ends.
    pub expires_at: Timestamp,
    /// The inbox items from `inbox_from` on, oldest first. With many or large items not all of them: the next renewal returns more.
    #[serde(default)]
    pub inbox: Vec<RunItem>,
    /// The number behind the last returned item, for the commit that handles the items and for the next renewal.
    pub inbox_to: u64,
    /// The number of items that were passed. Greater than the length of `inbox` if some of them cannot be read.
    pub inbox_taken: u64,
}

/// A step of a run, to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommit {
    /// The proof.
    pub lease: RunLease,
    /// How long the history was when the step was thought out.
    pub history_len: u64,
    /// Up to where the inbox was handled: the `inbox_to` of the claim or of the last renewal, or 0 when nothing of it was.
    pub inbox_to: u64,
    /// The lease is kept for so long, because there is more to come; `None` lets go of it.
    pub lease_ms: Option<u64>,
    /// What was decided.
    pub step: RunStep,
}

impl RunCommit {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        self.lease_ms.map_or(Ok(()), check_lease_ms)?;
        if self.lease_ms.is_some() && (self.step.state.is_terminal() || self.step.stuck.is_some()) {
            return Err(Error::invalid("lease_ms", "nobody keeps the lease of a run that has ended or is stuck"));
        }
        let starts = !self.step.jobs.is_empty() || !self.step.messages.is_empty();
        if self.lease_ms.is_some() && starts && self.step.history.is_empty() {
            let why = "a step that keeps the lease and starts jobs or sends messages adds an entry, by which its repetition is recognised";
            return Err(Error::invalid("history", why));
        }
        self.step.check(self.lease.run)
    }
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommitted {
    /// How long the history is.
    pub history_len: u64,
    /// It had been made before.
    pub repeated: bool,
}
