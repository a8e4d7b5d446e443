//! Kinds of runs: what an engine needs to advance the runs of one kind.

use super::calls::{Calls, Stop};
use super::retry::retried;
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use windlass_core::id::{Ids, JobId};
use windlass_core::job::Job;
use windlass_core::name::Kind;
use windlass_core::store::{
    ClaimedRun, InboxItem, RunCommit, RunRead, RunRenewal, RunRenewed, RunState, RunStep, RunView, Store,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// How runs of one kind are advanced. An [`Engine`](super::Engine) claims runs, rebuilds the state of each from its history,
/// lets its kind decide, and commits the steps.
///
/// A kind has four duties: it decodes a definition, replays history into a state, decides from what has happened, and
/// summarizes the state for people. Everything that later decisions depend on has to be in the history: any process may make
/// the next decision, from a state that it has rebuilt.
///
/// A run is stuck, with the reason, when a method returns an error or panics. It stays stuck until a message opens it again. An
/// error that is [retryable](windlass_core::Error::is_retryable) is an exception: the run is decided about again when its lease
/// has ended.
pub trait RunKind: Send + Sync + 'static {
    /// A decoded definition. Runs with the same definition share it.
    type Definition: Send + Sync + 'static;
    /// The state of one run. An engine keeps it in memory between decisions, as long as there is room.
    type State: Send + 'static;

    /// Whether [`replay`](Self::replay) can add entries to a state that has already decided. If not, the engine rebuilds a state when
    /// another engine has continued the run.
    const REPLAYS_PARTS: bool = true;

    /// The kind that the runs have in the store.
    fn kind(&self) -> Result<Kind>;

    /// Decodes a definition. A run whose definition is refused is stuck.
    fn decode(&self, definition: &[u8]) -> Result<Self::Definition>;

    /// The state of a claimed run before the first entry of its segment.
    fn begin(&self, run: &ClaimedRun, definition: &Arc<Self::Definition>, input: &[u8]) -> Result<Self::State>;

    /// Applies history entries in order.
    fn replay(&self, state: &mut Self::State, entries: &[Bytes]) -> Result<()>;

    /// Decides what follows from what has happened. Returns the steps to commit, at least one; the last one contains the state
    /// of the run and its next wake-up. Afterwards `state` is the state as if all of them had been committed.
    ///
    /// Only the last step takes items from the inbox. If the process dies between two steps, the next decision starts from the
    /// history of the first and gets the same items again, so it has to recognise those that were handled. A step before the last
    /// that starts jobs or sends messages needs an entry in the history.
    ///
    /// A kind may commit steps of its own in the middle of a decision with [`Turn::commit`]. After a commit that released the lease
    /// it returns no step.
    ///
    /// It may take longer than the lease of the run, which the engine renews meanwhile. It may be dropped at any await and made
    /// again by another process. It must not block its thread.
    fn decide(&self, state: &mut Self::State, turn: &mut Turn) -> impl Future<Output = Result<Vec<RunStep>>> + Send;

    /// Cleans up after a terminated run: returns steps that cancel its open jobs, at least one. Each of them keeps the state
    /// [`Terminated`](windlass_core::store::RunState::Terminated). By default nothing is left to clean up.
    fn clean_up(
        &self,
        _state: &mut Self::State,
        _turn: &mut Turn,
    ) -> impl Future<Output = Result<Vec<RunStep>>> + Send {
        std::future::ready(Ok(vec![RunStep { state: RunState::Terminated, ..RunStep::nothing() }]))
    }

    /// A short text for listings. What is longer than 4,096 bytes is cut off.
    fn summarize(&self, state: &Self::State) -> String;

    /// Whether an inbox can belong to a run in this state. If not, the engine rebuilds the state from history. A store that fails
    /// over may lose an acknowledged commit; another commit may then have taken its place in the history.
    fn accepts(&self, _state: &Self::State, _inbox: &[InboxItem]) -> bool {
        true
    }

    /// Whether the kind can decide now. Runs of a kind that cannot are left to other engines.
    fn is_ready(&self) -> bool {
        true
    }

    /// About how much memory a state takes, in bytes.
    fn size(&self, _state: &Self::State) -> usize {
        1_024
    }
}

/// What a commit takes from the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Everything that the decision has read, with what could not be read.
    AllRead,
    /// The items of these numbers, which rise.
    Items(Vec<u64>),
}

/// A step that a kind commits in the middle of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnCommit {
    /// The step.
    pub step: RunStep,
    /// What it takes from the inbox.
    pub takes: Takes,
    /// Whether the decision goes on. Else the commit releases the lease.
    pub keeps_lease: bool,
    /// Refuses the commit as [`Error::UnreadMessages`] if it would leave messages in the inbox.
    pub requires_read_messages: bool,
}

/// What a decision is made from.
pub struct Turn {
    calls: Calls,
    ids: Ids,
    claimed: ClaimedRun,
    now: Timestamp,
    arrivals: Arc<Arrivals>,
    is_busy: Arc<AtomicBool>,
    inbox_to: u64,
    history_len: u64,
    /// Whether the run goes on after the commit that has released the lease.
    released: Option<bool>,
    drops_state: bool,
}

impl Turn {
    pub(super) fn new(calls: Calls, ids: Ids, claimed: ClaimedRun, now: Timestamp) -> Self {
        let (inbox_to, history_len) = (claimed.inbox_to, claimed.history_len);
        Self {
            calls,
            ids,
            claimed,
            now,
            arrivals: Arc::default(),
            is_busy: Arc::default(),
            inbox_to,
            history_len,
            released: None,
            drops_state: false,
        }
    }

    /// The run as it was claimed, with the oldest items of its inbox.
    pub fn claimed(&self) -> &ClaimedRun {
        &self.claimed
    }

    /// The items of the claim. Afterwards [`claimed`](Self::claimed) has none.
    pub fn take_inbox(&mut self) -> Vec<InboxItem> {
        std::mem::take(&mut self.claimed.inbox)
    }

    /// The time of the claim, by the store's clock.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The store of the run.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.calls.store
    }

    /// Makes ids of jobs.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Waits for items that arrive in the inbox after the claim. The commit of this decision takes what was returned here from
    /// the inbox, too. Nothing is lost if the returned future is dropped.
    pub async fn arrivals(&mut self) -> Arrived {
        let (arrived, inbox_to) = self.arrivals.next().await;
        self.inbox_to = self.inbox_to.max(inbox_to);
        arrived
    }

    /// Commits a step before the decision is made, together with commits of other runs that are made at the same time. After a
    /// commit that has released the lease nothing can be committed any more.
    ///
    /// After [`Error::UnreadMessages`] the lease is still held; [`renew`](Self::renew) returns the messages.
    pub async fn commit(&mut self, commit: TurnCommit) -> Result<()> {
        if self.released.is_some() {
            return Err(Error::LeaseLost);
        }
        let TurnCommit { step, takes, keeps_lease, requires_read_messages } = commit;
        let goes_on = !step.state.is_terminal();
        let (inbox_to, inbox_taken) = match takes {
            Takes::AllRead => (self.inbox_to, Vec::new()),
            Takes::Items(items) => (0, items),
        };
        let lease_ms = keeps_lease.then_some(self.calls.lease_ms);
        let commit = RunCommit::new(self.claimed.lease, self.history_len, step);
        let commit = RunCommit { inbox_to, inbox_taken, requires_read_messages, lease_ms, ..commit };
        // A stopping engine would otherwise release the run while the commit is on its way.
        let was_busy = self.is_busy.swap(true, Ordering::SeqCst);
        let committed = self.calls.commit_with_others(commit).await;
        self.is_busy.store(was_busy, Ordering::SeqCst);
        let committed = committed?;
        self.history_len = committed.history_len;
        if !keeps_lease {
            self.released = Some(goes_on);
        }
        Ok(())
    }

    /// While `busy` is true, a stopping engine waits for the decision as long as its drain time lasts, and does not drop it. For
    /// work that should not be done twice.
    pub fn set_busy(&mut self, busy: bool) {
        self.is_busy.store(busy, Ordering::SeqCst);
    }

    /// The engine stops. A busy decision should release the run when its work is done, and begin no more of it.
    pub fn is_stopping(&self) -> bool {
        *self.calls.stop.borrow() > Stop::No
    }

    /// Reads the run from the store. A call that fails is repeated.
    pub async fn read(&self, read: RunRead) -> Result<Option<RunView>> {
        Ok(self.calls.read(vec![read]).await?.pop().flatten())
    }

    /// Reads jobs from the store. A call that fails is repeated.
    pub(crate) async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        retried(|| self.calls.store.get(ids.to_vec())).await
    }

    /// A commit has released the lease.
    pub fn has_released(&self) -> bool {
        self.released.is_some()
    }

    /// Whether [`arrivals`](Self::arrivals) would return at once.
    pub fn has_arrivals(&self) -> bool {
        self.arrivals.unread.lock().is_some()
    }

    /// Renews the lease at once. Returns what has arrived in the inbox since the claim or the last call; items that
    /// [`arrivals`](Self::arrivals) has returned may be among them.
    pub async fn renew(&mut self) -> Result<Arrived> {
        let renewal =
            RunRenewal { lease: self.claimed.lease, lease_ms: self.calls.lease_ms, inbox_from: self.inbox_to };
        let renewed = self.calls.renew(renewal).await?;
        self.inbox_to = self.inbox_to.max(renewed.inbox_to);
        Ok(Arrived::of(renewed))
    }

    /// The state of the run is not kept in memory after this decision.
    pub fn drop_state(&mut self) {
        self.drops_state = true;
    }

    /// The build of the workflows in code that this engine executes.
    pub(super) fn build(&self) -> Option<&str> {
        self.calls.build.as_deref()
    }

    /// The most records of a segment of a code run, unless the run has a cap of its own.
    pub(crate) fn history_cap(&self) -> u64 {
        self.calls.history_cap
    }

    /// The length of the history, with what was committed in this decision.
    pub fn history_len(&self) -> u64 {
        self.history_len
    }

    /// Whether the state of the run is worth keeping after the commit that has released the lease; `None` while it is held.
    pub(super) fn released(&self) -> Option<bool> {
        self.released.map(|goes_on| goes_on && !self.drops_state)
    }

    /// Up to where the decision has read the inbox.
    pub(super) fn inbox_to(&self) -> u64 {
        self.inbox_to
    }

    /// True while the decision should not be dropped.
    pub(super) fn shared_busy(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_busy)
    }

    /// Where renewals put what has arrived.
    pub(super) fn shared_arrivals(&self) -> Arc<Arrivals> {
        Arc::clone(&self.arrivals)
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("claimed", &self.claimed).field("now", &self.now).finish_non_exhaustive()
    }
}

/// Items that have arrived in an inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The items, oldest first.
    pub items: Vec<InboxItem>,
    /// How many further items cannot be read. The commit takes them from the inbox, too.
    pub unreadable: u64,
}

impl Arrived {
    fn of(renewed: RunRenewed) -> Self {
        let unreadable = renewed.inbox_taken.saturating_sub(renewed.inbox.len() as u64);
        Self { items: renewed.inbox, unreadable }
    }
}

/// Items that renewals of a lease have returned and that the decision has not read yet, and the number behind the last one.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    unread: Mutex<Option<(Arrived, u64)>>,
    added: Notify,
}

impl Arrivals {
    /// Adds the items of a renewal.
    pub(super) fn add(&self, renewed: RunRenewed) {
        if renewed.inbox_taken == 0 {
            return;
        }
        let mut unread = self.unread.lock();
        let (arrived, inbox_to) = unread.get_or_insert_default();
        *inbox_to = renewed.inbox_to;
        let new = Arrived::of(renewed);
        arrived.unreadable += new.unreadable;
        arrived.items.extend(new.items);
        self.added.notify_one();
    }

    async fn next(&self) -> (Arrived, u64) {
        loop {
            let unread = self.unread.lock().take();
            if let Some(unread) = unread {
                return unread;
            }
            self.added.notified().await;
        }
    }
}
