//! Runs: executions of workflows. A run is advanced like a job is worked: claimed under a lease, decided about outside of
//! the store, and changed in one fenced step.
//!
//! The store knows nothing of graphs. It keeps what a run is about (its *definition* and *input*), what it has decided (its
//! *history*), and what has happened to it and is not yet handled (its *inbox*). The end of a job of the run is put into the
//! inbox in the very step that ends the job, so that nothing can be forgotten between the two.

use super::messages::RunMessage;
use super::queue::{check_batch, check_lease_ms, check_max};
use super::run_items::InboxItem;
use super::run_steps::{RunCommit, RunCommitted, RunStep, check_labels};
use super::run_views::{RunList, RunPage, RunRead, RunView};
use super::wire;
use crate::error::{Error, Result};
use crate::id::{RunId, Token};
use crate::name::{Kind, WorkerId};
use crate::store::WorkMark;
use crate::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest definition of a run: 16 MiB.
pub const DEFINITION_BYTES_MAX: usize = 16 << 20;
/// The largest input of a run and the largest message to one: 4 MiB.
pub const RUN_PART_BYTES_MAX: usize = 4 << 20;
/// The largest entry of a history, in bytes: a message or a result with what is recorded about it.
pub const RUN_ENTRY_BYTES_MAX: usize = RUN_PART_BYTES_MAX + (64 << 10);
/// The longest name and the longest summary of a run, in bytes.
pub const RUN_TEXT_BYTES_MAX: usize = 4_096;
/// The most messages that a run is created with.
pub const NEW_RUN_MESSAGES_MAX: usize = 16;
/// The most bytes of input and history that a claim hands out with one run.
pub const CLAIM_HISTORY_BYTES_MAX: u32 = 1 << 20;
/// The most bytes of input and history that a claim hands out with all its runs.
pub const CLAIM_HISTORIES_BYTES_MAX: u64 = 4 << 20;
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
    /// It took longer than it may.
    TimedOut,
    /// A message ended it, whatever its engine was doing.
    Terminated,
}

impl RunState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled, Self::TimedOut, Self::Terminated];

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
            Self::TimedOut => "timed_out",
            Self::Terminated => "terminated",
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
    /// The run that created it. It gets the end of this run as an item of its inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Labels, by which runs are listed: at most [`RUN_LABELS_MAX`](super::RUN_LABELS_MAX).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What to do when a run of this id has ended.
    #[serde(default, skip_serializing_if = "RunReuse::is_never")]
    pub reuse: RunReuse,
    /// Tells a repeated call from another start under the same id: two starts with different nonces are different runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Token>,
    /// The ends of its jobs come with the results of the jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job_results: bool,
    /// Messages that the run has in its inbox from the beginning: at most [`NEW_RUN_MESSAGES_MAX`], [`RUN_PART_BYTES_MAX`] bytes
    /// together, each with an id and without any effect beside. If a run of this id goes on, whoever started it, they are
    /// delivered to it, and the call is answered [`RunCreated::Existing`]; so it is, too, if all of them have been delivered before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<RunMessage>,
    /// Its first step.
    pub step: RunStep,
}

/// What to do when a run is created under the id of one that has ended. A run that was terminated has ended when an engine has
/// handled its last item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunReuse {
    /// The id is taken.
    #[default]
    Never,
    /// The run starts again, however it ended.
    IfEnded,
    /// The run starts again unless it succeeded.
    IfNotSucceeded,
}

impl RunReuse {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    const fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// True when a run in this state may start again.
    pub fn allows(self, state: RunState) -> bool {
        match self {
            Self::Never => false,
            Self::IfEnded => state.is_terminal(),
            Self::IfNotSucceeded => state.is_terminal() && state != RunState::Succeeded,
        }
    }
}

impl NewRun {
    /// A run without a name, a definition and an input, whose first step decides nothing.
    pub fn new(id: RunId, kind: Kind) -> Self {
        Self {
            id,
            kind,
            name: String::new(),
            definition: Bytes::new(),
            input: Bytes::new(),
            keep_ms: None,
            parent: None,
            labels: BTreeMap::new(),
            reuse: RunReuse::Never,
            nonce: None,
            job_results: false,
            messages: Vec::new(),
            step: RunStep::nothing(),
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_bytes("definition", self.definition.len(), DEFINITION_BYTES_MAX)?;
        check_bytes("input", self.input.len(), RUN_PART_BYTES_MAX)?;
        check_bytes("name", self.name.len(), RUN_TEXT_BYTES_MAX)?;
        check_labels(&self.labels)?;
        if self.parent == Some(self.id) {
            return Err(Error::invalid("parent", "is the run itself; a run is created by another one"));
        }
        if self.step.state == RunState::Terminated {
            return Err(Error::terminated_only(false));
        }
        if self.step.segment.is_some() {
            return Err(Error::invalid("segment", "the first step of a run begins its first segment; leave it out"));
        }
        self.check_messages()?;
        self.step.check(self.id)
    }

    fn check_messages(&self) -> Result<()> {
        let count = self.messages.len();
        if count > NEW_RUN_MESSAGES_MAX {
            return Err(Error::limit("messages", NEW_RUN_MESSAGES_MAX as u64, count as u64));
        }
        if count > 0 && self.step.state.is_terminal() {
            return Err(Error::invalid("messages", "a run that ends with its first step gets none"));
        }
        for message in &self.messages {
            message.check()?;
            if message.run != self.id {
                return Err(Error::invalid("messages", "the messages of a new run are for the run itself"));
            }
            if !message.needs_room() || message.id.is_none() {
                let why = "a message of a new run has an id, and neither interrupts nor opens nor terminates the run";
                return Err(Error::invalid("messages", why));
            }
        }
        let bytes = self.messages.iter().map(|message| message.body.len()).sum();
        check_bytes("messages, in bytes,", bytes, RUN_PART_BYTES_MAX)
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
        // What most runs do not have is left out, so that they have the fingerprints of earlier versions.
        let rare = (self.parent, &self.labels, self.nonce, self.job_results);
        if rare != (None, &BTreeMap::new(), None, false) {
            hash.update(&serde_json::to_vec(&rare).unwrap_or_default());
        }
        u64::from_le_bytes(half(&hash.finalize())[..8].try_into().unwrap_or_default())
    }
}

pub(super) fn half(hash: &blake3::Hash) -> [u8; 16] {
    hash.as_bytes()[..16].try_into().unwrap_or_default()
}

pub(super) fn check_bytes(field: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(Error::limit(field, max as u64, len as u64));
    }
    Ok(())
}

/// What became of a run to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCreated {
    /// It is there now.
    Created,
    /// The very same run was there already, or a run of this id goes on and has been given the messages.
    Existing,
    /// A run of this id had ended, and has started again.
    Restarted,
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
    /// Also if the run that is named by `run` is stuck. It stays stuck until a commit changes that. For what an operator does to a
    /// stuck run, such as a message that is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_stuck: bool,
    /// How many at most.
    pub max: u32,
    /// For how long.
    pub lease_ms: u64,
    /// Hands out the input of a run and the history of its segment with the claim, if they are at most so many bytes together
    /// and the last commit of the run was not made by this engine. At most [`CLAIM_HISTORY_BYTES_MAX`]; 0 for none. All runs of
    /// one claim have [`CLAIM_HISTORIES_BYTES_MAX`] together; the others come without.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub history_bytes_max: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RunClaim {
    /// A claim of one run for 30 seconds, without its history.
    pub fn new(engine: WorkerId, kinds: Vec<Kind>) -> Self {
        Self { engine, kinds, run: None, even_stuck: false, max: 1, lease_ms: 30_000, history_bytes_max: 0 }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_max("max", self.max)?;
        check_lease_ms(self.lease_ms)?;
        check_bytes("history_bytes_max", self.history_bytes_max as usize, CLAIM_HISTORY_BYTES_MAX as usize)?;
        if self.even_stuck && self.run.is_none() {
            return Err(Error::invalid("even_stuck", "claims one run; name it in `run`"));
        }
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
    pub inbox: Vec<InboxItem>,
    /// To be told by the commit that has handled these.
    pub inbox_to: u64,
    /// How many items that commit takes from the inbox. More than `inbox` has when some of them cannot be read.
    pub inbox_taken: u64,
    /// The time has come that it wanted to be woken at.
    #[serde(default)]
    pub woken: bool,
    /// Running, or terminated when only its remains have to be cleaned up.
    #[serde(default = "running")]
    pub state: RunState,
    /// Why nobody could advance it. It stays stuck until a commit changes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// The run that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Leases that have run out since its last commit.
    #[serde(default)]
    pub stall_count: u32,
    /// The number of the first entry of its segment.
    #[serde(default)]
    pub segment_from: u64,
    /// Its input, if the claim asked for it; see [`RunClaim::history_bytes_max`].
    #[serde(default, with = "wire::base64_option", skip_serializing_if = "Option::is_none")]
    pub input: Option<Bytes>,
    /// All entries of its segment if there is an `input`, else none.
    #[serde(default, with = "wire::base64_list", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Bytes>,
}

const fn running() -> RunState {
    RunState::Running
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
    pub inbox: Vec<InboxItem>,
    /// The number behind the last returned item, for the commit that handles the items and for the next renewal.
    pub inbox_to: u64,
    /// The number of items that were passed. Greater than the length of `inbox` if some of them cannot be read.
    pub inbox_taken: u64,
}
