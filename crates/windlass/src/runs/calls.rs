//! The calls that an engine makes to its store: claims, reads, and the commits of decisions.

use super::commit_queue::{CommitQueue, commit_all};
use super::kind::Turn;
use super::kinds::LoadedRun;
use super::retry::retried;
use crate::durable::stuck_under;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use windlass_core::id::RunId;
use windlass_core::job::Due;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{
    ClaimedRun, RunClaim, RunCommit, RunCommitted, RunLease, RunRead, RunRenewal, RunRenewed, RunState, RunStep,
    RunView, RunsClaimed, Store,
};
use windlass_core::{Error, Result};

/// The longest reason for which a run is stuck, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// Histories up to this size come with the claim, which saves a call.
const HISTORY_BYTES_MAX: u32 = 64 << 10;

/// The most records of a segment of a code run when nobody says.
const HISTORY_CAP: u64 = 100_000;

/// A decision that was made.
pub(super) struct Decided {
    pub(super) loaded: LoadedRun,
    pub(super) turn: Turn,
    pub(super) steps: Result<Vec<RunStep>>,
}

/// Lets the kind of a run decide.
pub(super) async fn decide(mut loaded: LoadedRun, mut turn: Turn) -> Decided {
    let steps = loaded.decide(&mut turn).await;
    Decided { loaded, turn, steps }
}

/// How soon an engine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    No,
    /// When the pending decisions that must not be dropped have ended.
    Drain,
    AtOnce,
}

/// The calls of one engine.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) store: Arc<dyn Store>,
    pub(super) engine: WorkerId,
    /// The lease of a claimed run.
    pub(super) lease_ms: u64,
    /// The build of the workflows in code that the engine executes.
    pub(super) build: Option<Arc<str>>,
    /// The most records of a segment of a code run.
    pub(super) history_cap: u64,
    commits: Arc<CommitQueue>,
    /// How soon the engine stops.
    pub(super) stop: watch::Sender<Stop>,
    /// Notified when a pending decision has released a run with a wake-up: the engine's loop learns it from its next claim.
    pub(super) wake_set: Arc<Notify>,
}

impl Calls {
    pub(super) fn new(store: Arc<dyn Store>, engine: WorkerId, lease_ms: u64) -> Self {
        let commits = Arc::new(CommitQueue::new(Arc::clone(&store)));
        let (build, history_cap) = (None, HISTORY_CAP);
        Self {
            store,
            engine,
            lease_ms,
            build,
            history_cap,
            commits,
            stop: watch::Sender::new(Stop::No),
            wake_set: Arc::default(),
        }
    }

    /// Claims runs of these kinds, or the one run if it is of one of them.
    pub(super) async fn claim(&self, kinds: Vec<Kind>, run: Option<RunId>, max: u32) -> Result<RunsClaimed> {
        let claim = RunClaim::new(self.engine.clone(), kinds);
        let claim = RunClaim { run, max, lease_ms: self.lease_ms, history_bytes_max: HISTORY_BYTES_MAX, ..claim };
        self.store.claim_runs(claim).await
    }

    pub(super) async fn read(&self, reads: Vec<RunRead>) -> Result<Vec<Option<RunView>>> {
        retried(|| self.store.read_runs(reads.clone())).await
    }

    pub(super) async fn definition(&self, run: RunId) -> Result<Bytes> {
        let view = self.read(vec![RunRead { definition: true, ..RunRead::brief(run) }]).await?.pop().flatten();
        view.and_then(|view| view.definition).ok_or_else(|| Error::corrupt("its definition is not there"))
    }

    /// Commits whose answer got lost are repeated as they were.
    pub(super) async fn commit(&self, commits: &[RunCommit]) -> Result<Vec<Result<RunCommitted>>> {
        commit_all(self.store.as_ref(), commits).await
    }

    /// Makes one commit, in one call with others that are made at the same time.
    pub(super) async fn commit_with_others(&self, commit: RunCommit) -> Result<RunCommitted> {
        let sets_wake = commit.lease_ms.is_none() && matches!(commit.step.wake, Some(Due::At(_) | Due::DelayMs(_)));
        let committed = CommitQueue::commit(&self.commits, commit).await;
        if sets_wake {
            self.wake_set.notify_one();
        }
        committed
    }

    pub(super) async fn renew(&self, renewal: RunRenewal) -> Result<RunRenewed> {
        let answer = retried(|| self.store.renew_runs(vec![renewal])).await?.pop();
        answer.unwrap_or_else(|| Err(Error::not_found("an answer")))
    }

    /// Commits a decision. Returns the run if it goes on and its state is that of the store; an error when the run is tried again
    /// after its lease has ended.
    pub(super) async fn commit_decision(&self, decided: Decided) -> Result<Option<LoadedRun>> {
        let Decided { loaded, turn, steps } = decided;
        match (steps, turn.released()) {
            (steps, Some(goes_on)) => Ok(Some(loaded).filter(|_| goes_on && steps.is_ok())),
            (Ok(steps), None) => self.commit_one_by_one(loaded, &turn, steps).await,
            // Another engine goes on with it.
            (Err(Error::LeaseLost | Error::NotFound { .. }), None) => Ok(None),
            (Err(error), None) if error.is_retryable() => Err(error),
            (Err(error), None) => {
                let stuck = stuck(&turn, &error);
                let answer = self.commit(std::slice::from_ref(&stuck)).await?.pop();
                match answer {
                    Some(answer) => Ok(self.finish(&stuck, None, answer).await),
                    None => Ok(None),
                }
            }
        }
    }

    /// Commits the steps of one run one after the other. The lease is kept until the last, which alone takes from the inbox.
    /// Returns the run if its state is that of the store.
    pub(super) async fn commit_one_by_one(
        &self,
        loaded: LoadedRun,
        turn: &Turn,
        steps: Vec<RunStep>,
    ) -> Result<Option<LoadedRun>> {
        let (mut history_len, last) = (turn.history_len(), steps.len() - 1);
        let mut loaded = Some(loaded);
        for (at, step) in steps.into_iter().enumerate() {
            let mut next = RunCommit { history_len, ..commit_of(turn, step) };
            if at < last {
                (next.inbox_to, next.lease_ms) = (0, Some(self.lease_ms));
            }
            match self.commit(std::slice::from_ref(&next)).await?.pop() {
                Some(Ok(committed)) if at < last => history_len = committed.history_len,
                Some(answer) => return Ok(self.finish(&next, loaded.take(), answer).await),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Handles the answer to a commit. Returns the run if it goes on and its state is that of the store.
    pub(super) async fn finish(
        &self,
        made: &RunCommit,
        loaded: Option<LoadedRun>,
        answer: Result<RunCommitted>,
    ) -> Option<LoadedRun> {
        let run = made.lease.run;
        match (loaded, answer) {
            (Some(loaded), Ok(committed)) => {
                let is_stored = loaded.history_len == committed.history_len;
                return Some(loaded).filter(|_| is_stored && !made.step.state.is_terminal());
            }
            // Another engine goes on with it.
            (_, Ok(_) | Err(Error::LeaseLost | Error::NotFound { .. })) => {}
            (Some(_), Err(error)) if !error.is_retryable() => {
                tracing::warn!(%run, %error, "a step of a run was refused");
                // It would be refused again and again: the run is stuck until somebody looks at it. Its lease is still held.
                let RunCommit { lease, history_len, inbox_to, .. } = *made;
                let given_up = GivenUp { lease, history_len, inbox_to, state: made.step.state };
                let parked = self.commit(&[given_up.commit(&error, self.build.as_deref())]).await;
                if let Err(error) | Ok(Some(Err(error))) = parked.map(|mut answers| answers.pop()) {
                    tracing::warn!(%run, %error, "a run could not be marked as stuck");
                }
            }
            // Its lease ends, and it is tried again.
            (_, Err(error)) => tracing::warn!(%run, %error, "a step of a run could not be committed"),
        }
        None
    }
}

/// The commit of a decision of one step.
pub(super) fn commit_of(turn: &Turn, step: RunStep) -> RunCommit {
    let lease = turn.claimed().lease;
    RunCommit { inbox_to: turn.inbox_to(), ..RunCommit::new(lease, turn.history_len(), step) }
}

/// A run that nobody can advance now.
pub(super) struct GivenUp {
    pub(super) lease: RunLease,
    pub(super) history_len: u64,
    pub(super) inbox_to: u64,
    pub(super) state: RunState,
}

impl GivenUp {
    /// Marks the run as stuck, with the reason. Its inbox stays as it is. A terminated run rests for good instead.
    pub(super) fn commit(self, error: &Error, build: Option<&str>) -> RunCommit {
        let Self { lease, history_len, inbox_to, state } = self;
        if state == RunState::Terminated {
            tracing::warn!(run = %lease.run, %error, "a terminated run could not be cleaned up; jobs of it may go on");
            let rest = RunCommit::new(lease, history_len, RunStep { state, ..RunStep::nothing() });
            return RunCommit { inbox_to, ..rest };
        }
        let mut why = error.to_string();
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
        let why = build.map_or(why.clone(), |build| stuck_under(build, &why));
        RunCommit::new(lease, history_len, RunStep { stuck: Some(why), ..RunStep::nothing() })
    }
}

/// Gives up a claimed run about which its kind could not decide.
pub(super) fn stuck(turn: &Turn, error: &Error) -> RunCommit {
    let ClaimedRun { lease, state, .. } = *turn.claimed();
    let given_up = GivenUp { lease, history_len: turn.history_len(), inbox_to: turn.inbox_to(), state };
    given_up.commit(error, turn.build())
}
