//! The engine: claims runs, lets their kinds decide, and commits the steps.

use super::cache::Cache;
use super::calls::{Calls, Decided, GivenUp, commit_of, decide, stuck};
use super::graph::GraphRuns;
use super::kind::{RunKind, Turn};
use super::kinds::{Kinds, LoadedRun};
use super::pending::{PendingDecision, PendingDecisions};
use crate::durable::Resumer;
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use windlass_core::id::{Ids, RunId};
use windlass_core::name::WorkerId;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{
    ClaimedRun, RunCommit, RunCommitted, RunRead, RunState, RunStep, RunView, RunsClaimed, Store, WaitFor,
};
use windlass_core::time::SystemClock;
use windlass_core::{Error, Result};

/// The most runs of one claim.
const RUNS_MAX: u32 = 256;
/// The most pending decisions. With more, an engine would hold runs that others could advance.
const PENDING_MAX: usize = 1_024;
/// The lease of a run while its next steps are decided.
const LEASE_MS: u64 = 10_000;
/// Entries of a history that are read at once.
const ENTRIES_READ: u64 = 10_000;
/// Poll interval: the longest delay that a lost wake-up can cause.
const POLL: Duration = Duration::from_secs(1);
/// How long a stopping engine waits for decisions that should not be dropped.
const DRAIN_TIME: Duration = Duration::from_secs(25);
/// The shortest poll interval.
const POLL_MIN: Duration = Duration::from_millis(5);
/// How long an engine waits after the first failed call; doubled with every further one.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// The longest such wait. It is bounded by itself: the poll interval of a worker's engine is a minute.
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(2);

fn error_pause(failures: u32) -> Duration {
    ERROR_PAUSE.saturating_mul(1 << failures.min(16)).min(ERROR_PAUSE_MAX)
}

/// Advances runs. Any number of processes may do so at once.
pub struct Engine {
    pub(super) calls: Calls,
    ids: Ids,
    pub(super) kinds: Kinds,
    pub(super) cache: Cache,
    poll: Duration,
    drain_time: Duration,
    /// `None` until a decision is not ready at its first poll.
    pending: Option<PendingDecisions>,
    /// The last error of a run that is tried again when its lease ends.
    failed: Option<Error>,
    pub(super) resumer: Option<Resumer>,
}

impl Engine {
    /// Over a store that is open. It serves runs of graphs.
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        let random: Arc<dyn Random> = Arc::new(StrongRandom::from_system());
        let engine = WorkerId::new(format!("engine-{:016x}", random.next_u64()))?;
        let ids = Ids::new(Arc::new(SystemClock), random);
        let mut kinds = Kinds::default();
        kinds.add(GraphRuns)?;
        let calls = Calls::new(store, engine, LEASE_MS);
        Ok(Self {
            calls,
            ids,
            kinds,
            cache: Cache::default(),
            poll: POLL,
            drain_time: DRAIN_TIME,
            pending: None,
            failed: None,
            resumer: None,
        })
    }

    /// Serves runs of another kind, too. A kind of the same name is replaced.
    pub fn kind(mut self, kind: impl RunKind) -> Result<Self> {
        self.kinds.add(kind)?;
        Ok(self)
    }

    /// Poll interval: the longest delay that a lost wake-up can cause. One second by default.
    #[must_use]
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll.max(POLL_MIN);
        self
    }

    /// The lease of a run while its next steps are decided; ten seconds by default. A process that dies delays its runs by as
    /// much. The lease of a decision that takes longer is renewed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.calls.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// How long local steps of workflows that have begun may take when the engine stops; 25 seconds by default. Then they are
    /// dropped, and another engine begins them anew.
    #[must_use]
    pub fn drain_time(mut self, time: Duration) -> Self {
        self.drain_time = time;
        self
    }

    /// Advances runs until `stop` returns. A store that is unavailable is waited for.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let drain_time = self.drain_time;
        self.run_and_drain(stop, async move { tokio::time::sleep(drain_time).await }).await;
    }

    /// The same with an end of the drain time: `at_once` is awaited when `stop` has returned.
    pub(crate) async fn run_and_drain(mut self, stop: impl Future<Output = ()>, at_once: impl Future<Output = ()>) {
        let resume = self.resume_of_other_builds();
        tokio::select! {
            biased;
            () = self.run_until(stop) => {}
            () = resume => {}
        }
        if let Some(pending) = self.pending {
            pending.stop(at_once).await;
        }
    }

    async fn run_until(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        // Failed calls since the last one that succeeded.
        let mut failures = 0_u32;
        // What was claimed beside the last commits.
        let mut next: Option<Result<RunsClaimed>> = None;
        loop {
            let stopped = futures::poll!(&mut stop).is_ready();
            let claimed = match next.take() {
                Some(claimed) => claimed,
                // A stopping engine claims no more runs.
                None if stopped => return,
                None if self.room() == 0 => {
                    tokio::select! {
                        biased;
                        () = &mut stop => return,
                        () = self.decision_ended() => continue,
                    }
                }
                None => self.claim(None).await,
            };
            let found = match claimed {
                Ok(found) if !found.runs.is_empty() => {
                    let advanced;
                    (advanced, next) = self.advance_all(found, !stopped).await;
                    match advanced {
                        Ok(()) => {
                            failures = 0;
                            continue;
                        }
                        // What was claimed meanwhile must not wait until its lease ends.
                        Err(_) if matches!(&next, Some(Ok(next)) if !next.runs.is_empty()) => continue,
                        Err(error) => {
                            next = None;
                            Err(error)
                        }
                    }
                }
                found => found,
            };
            if stopped {
                return;
            }
            let rest = async {
                match found {
                    Ok(nothing) => {
                        let time = rest(&nothing, self.poll);
                        match tokio::time::timeout(time, self.calls.store.wait(WaitFor::Runs(nothing.mark))).await {
                            // Without a pause the next claim would follow at once, and fail as well.
                            Ok(Err(error)) => Self::pause(self.poll, &mut failures, &error).await,
                            Ok(Ok(())) | Err(_) => failures = 0,
                        }
                    }
                    Err(error) => Self::pause(self.poll, &mut failures, &error).await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return,
                // The time at which the next run has something to do may be earlier than the one that the last claim returned.
                () = self.calls.wake_set.notified() => {}
                () = rest => {}
            }
        }
    }

    /// How many more runs may be claimed.
    fn room(&self) -> u32 {
        let pending = self.pending.as_ref().map_or(0, PendingDecisions::len);
        u32::try_from(PENDING_MAX.saturating_sub(pending)).unwrap_or(u32::MAX).min(RUNS_MAX)
    }

    /// Waits until a pending decision has ended.
    async fn decision_ended(&mut self) {
        if let Some(pending) = &mut self.pending
            && let Some(loaded) = pending.ended().await
        {
            self.cache.put(loaded);
        }
    }

    async fn claim(&mut self, run: Option<RunId>) -> Result<RunsClaimed> {
        let (kinds, max) = (self.kinds.names(), self.room().max(1));
        self.calls.claim(kinds, run, max).await
    }

    /// Waits after a failed call. A refused call is repeated, too: its cause may go away.
    async fn pause(poll: Duration, failures: &mut u32, error: &Error) {
        if *failures == 0 {
            tracing::warn!(%error, "runs cannot be advanced; it is tried again");
        }
        let time = error_pause(*failures).min(poll);
        *failures = failures.saturating_add(1);
        tokio::time::sleep(time).await;
    }

    /// Advances runs until none has anything to do. Returns how many decisions that took. For tests.
    pub async fn settle(&mut self) -> Result<usize> {
        let mut steps = 0;
        loop {
            match self.round(None).await? {
                0 => return Ok(steps),
                claimed => steps += claimed,
            }
        }
    }

    /// Advances one run, unless another engine holds it.
    pub(super) async fn advance(&mut self, run: RunId) -> Result<bool> {
        Ok(self.round(Some(run)).await? > 0)
    }

    async fn round(&mut self, run: Option<RunId>) -> Result<usize> {
        let found = self.claim(run).await?;
        let claimed = found.runs.len();
        let advanced = if claimed > 0 { self.advance_all(found, false).await.0 } else { Ok(()) };
        let mut ended = Ok(());
        if let Some(pending) = &mut self.pending {
            let runs;
            (runs, ended) = pending.wait().await;
            runs.into_iter().for_each(|loaded| self.cache.put(loaded));
        }
        advanced.and(ended).and(self.failed.take().map_or(Ok(()), Err))?;
        Ok(claimed)
    }

    /// Advances claimed runs. With `more` it claims the next ones while the store is busy with the commits.
    async fn advance_all(&mut self, found: RunsClaimed, more: bool) -> (Result<()>, Option<Result<RunsClaimed>>) {
        let batch = match self.decide_all(found).await {
            Ok(batch) => batch,
            Err(error) => return (Err(error), None),
        };
        let (kinds, max) = (self.kinds.names(), self.room());
        let calls = &self.calls;
        let next = async { if more && max > 0 { Some(calls.claim(kinds, None, max).await) } else { None } };
        // The claim goes behind the commits: it finds what has come to these runs meanwhile.
        let (answers, next) = tokio::join!(calls.commit(&batch.commits), next);
        (self.finish_all(batch, answers).await, next)
    }

    /// Decides about claimed runs. Decisions that are not made at once go on in tasks of their own.
    async fn decide_all(&mut self, found: RunsClaimed) -> Result<Batch> {
        if let Some(pending) = &mut self.pending {
            pending.all_ended().into_iter().for_each(|loaded| self.cache.put(loaded));
        }
        let mut runs = self.load(&found.runs).await?;
        let mut batch = Batch::default();
        for claimed in found.runs {
            let (lease, history_len, inbox_to) = (claimed.lease, claimed.history_len, claimed.inbox_to);
            let state = claimed.state;
            match runs.remove(&lease.run).unwrap_or_else(|| Err(Error::corrupt("it is not there"))) {
                Ok(loaded) => {
                    let turn = Turn::new(self.calls.clone(), self.ids.clone(), claimed, found.now);
                    let (arrivals, is_busy) = (turn.shared_arrivals(), turn.shared_busy());
                    let mut decision = Box::pin(decide(loaded, turn));
                    match futures::poll!(&mut decision) {
                        Poll::Ready(decided) => batch.add(decided),
                        Poll::Pending => {
                            let pending = self.pending.get_or_insert_with(|| PendingDecisions::new(self.calls.clone()));
                            pending.start(PendingDecision { lease, inbox_to, arrivals, is_busy, decision });
                        }
                    }
                }
                Err(error) if error.is_retryable() => batch.fail(lease.run, error),
                Err(error) => {
                    let given_up = GivenUp { lease, history_len, inbox_to, state };
                    batch.push(given_up.commit(&error, self.calls.build.as_deref()), None);
                }
            }
        }
        self.failed = batch.failed.take().or(self.failed.take());
        batch.released.drain(..).for_each(|loaded| self.cache.put(loaded));
        Ok(batch)
    }

    async fn finish_all(&mut self, batch: Batch, answers: Result<Vec<Result<RunCommitted>>>) -> Result<()> {
        for ((made, loaded), answer) in batch.commits.iter().zip(batch.runs).zip(answers?) {
            if let Some(loaded) = self.calls.finish(made, loaded, answer).await {
                self.cache.put(loaded);
            }
        }
        for (loaded, turn, steps) in batch.several {
            if let Some(loaded) = self.calls.commit_one_by_one(loaded, &turn, steps).await? {
                self.cache.put(loaded);
            }
        }
        Ok(())
    }

    /// The states of claimed runs: from the cache, or replayed from their history.
    async fn load(&mut self, runs: &[ClaimedRun]) -> Result<HashMap<RunId, Result<LoadedRun>>> {
        let mut found = HashMap::with_capacity(runs.len());
        let mut reads = Vec::new();
        for claimed in runs {
            let run = claimed.lease.run;
            // What cleans up after a terminated run is read from its whole history. A history that comes along was committed by
            // another engine: a store that failed over may have lost that of the state.
            let is_replayed = claimed.state == RunState::Terminated
                || claimed.input.is_some() && !self.kinds.replay_parts(&claimed.kind);
            let is_usable = |loaded: &LoadedRun| !is_replayed && loaded.precedes(claimed);
            match self.cache.take(run).filter(is_usable) {
                Some(loaded) if loaded.is_current(claimed) => drop(found.insert(run, Ok(loaded))),
                Some(loaded) if loaded.history_len < claimed.history_len && self.kinds.replay_parts(&claimed.kind) => {
                    reads.push((read(claimed, loaded.history_len), claimed, Some(loaded)));
                }
                _ if claimed.input.is_some() => {
                    let loaded = self.replay_claimed(claimed).await;
                    found.insert(run, loaded);
                }
                _ => {
                    let definition = self.cache.definition(&claimed.kind, claimed.definition_hash).is_none();
                    reads.push((
                        RunRead { definition, input: true, ..read(claimed, claimed.segment_from) },
                        claimed,
                        None,
                    ));
                }
            }
        }
        if !reads.is_empty() {
            let answers = self.calls.read(reads.iter().map(|(read, ..)| *read).collect()).await?;
            for ((_, claimed, loaded), view) in reads.into_iter().zip(answers) {
                let loaded = match view {
                    Some(view) => self.replay(claimed, loaded, view).await,
                    None => Err(Error::corrupt("it is not there")),
                };
                found.insert(claimed.lease.run, loaded);
            }
        }
        Ok(found)
    }

    async fn replay(&mut self, claimed: &ClaimedRun, loaded: Option<LoadedRun>, view: RunView) -> Result<LoadedRun> {
        let mut loaded = match loaded {
            Some(loaded) => loaded,
            None => self.begin(claimed, view.definition, &view.input.unwrap_or_default()).await?,
        };
        let mut entries = view.history;
        loop {
            loaded.replay(&entries)?;
            if loaded.history_len >= claimed.history_len || entries.is_empty() {
                return Ok(loaded);
            }
            let more = self.calls.read(vec![read(claimed, loaded.history_len)]).await?.pop().flatten();
            entries = more.map(|view| view.history).unwrap_or_default();
        }
    }

    /// A run whose history came with the claim.
    async fn replay_claimed(&mut self, claimed: &ClaimedRun) -> Result<LoadedRun> {
        let mut loaded = self.begin(claimed, None, claimed.input.as_deref().unwrap_or_default()).await?;
        loaded.replay(&claimed.history)?;
        Ok(loaded)
    }

    /// A run before the first entry of its history.
    async fn begin(&mut self, claimed: &ClaimedRun, definition: Option<Bytes>, input: &[u8]) -> Result<LoadedRun> {
        let (run, hash, kind) = (claimed.lease.run, claimed.definition_hash, self.kinds.get(&claimed.kind)?);
        let definition = match self.cache.definition(&claimed.kind, hash) {
            Some(definition) => definition,
            None => {
                // The read left it out because the cache had it, and it was dropped since.
                let bytes = match definition {
                    Some(bytes) => bytes,
                    None => self.calls.definition(run).await?,
                };
                let definition = kind.decode(&bytes)?;
                self.cache.put_definition(&claimed.kind, hash, definition.clone());
                definition
            }
        };
        Ok(LoadedRun::new(claimed, kind.begin(claimed, definition, input)?))
    }
}

/// The next part of a history.
fn read(claimed: &ClaimedRun, history_from: u64) -> RunRead {
    let left = claimed.history_len.saturating_sub(history_from).min(ENTRIES_READ);
    let history_max = u32::try_from(left).unwrap_or(u32::MAX);
    RunRead { history_from, history_max, ..RunRead::brief(claimed.lease.run) }
}

/// Decisions about runs that were claimed together.
#[derive(Default)]
struct Batch {
    commits: Vec<RunCommit>,
    /// The run of each commit; `None` for one that is stuck.
    runs: Vec<Option<LoadedRun>>,
    /// Runs whose kind has released the lease.
    released: Vec<LoadedRun>,
    /// Decisions of several steps.
    several: Vec<(LoadedRun, Turn, Vec<RunStep>)>,
    /// The last error of a run that is tried again when its lease ends.
    failed: Option<Error>,
}

impl Batch {
    fn push(&mut self, commit: RunCommit, loaded: Option<LoadedRun>) {
        self.commits.push(commit);
        self.runs.push(loaded);
    }

    /// A run that is tried again when its lease ends.
    fn fail(&mut self, run: RunId, error: Error) {
        tracing::warn!(%run, %error, "a run could not be advanced");
        self.failed = Some(error);
    }

    fn add(&mut self, decided: Decided) {
        let Decided { loaded, turn, steps } = decided;
        if let Some(keeps_state) = turn.released() {
            // Its kind has committed everything.
            self.released.extend(Some(loaded).filter(|_| keeps_state && steps.is_ok()));
            return;
        }
        match steps {
            Ok(mut steps) if steps.len() == 1 => {
                let step = steps.pop().unwrap_or_else(RunStep::nothing);
                self.push(commit_of(&turn, step), Some(loaded));
            }
            Ok(steps) => self.several.push((loaded, turn, steps)),
            // Another engine goes on with it.
            Err(Error::LeaseLost | Error::NotFound { .. }) => {}
            Err(error) if error.is_retryable() => self.fail(turn.claimed().lease.run, error),
            Err(error) => self.push(stuck(&turn, &error), None),
        }
    }
}

/// How long to wait when a claim returned nothing.
fn rest(nothing: &RunsClaimed, poll: Duration) -> Duration {
    let next = nothing.next_at.map(|at| Duration::from_millis(at.ms_since(nothing.now)));
    next.unwrap_or(poll).clamp(POLL_MIN, poll)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("id", &self.calls.engine).finish_non_exhaustive()
    }
}
