//! The engine: claims runs, thinks about them, commits what follows.

use super::cache::Cache;
use super::lost::{has_whole_inbox, lost_ends};
use super::message::happened;
use super::mind::{Inbox, Mind};
use super::retry::retried;
use super::{decode_definition, decode_input, graph_kind};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::id::{Ids, RunId};
use windlass_core::name::WorkerId;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{
    ClaimedRun, RunClaim, RunCommit, RunCommitted, RunLease, RunRead, RunStep, RunView, RunsClaimed, Store, WaitFor,
};
use windlass_core::time::{SystemClock, Timestamp};
use windlass_core::{Error, Result};

/// Runs of one claim.
const RUNS_MAX: u32 = 256;
/// How long a run is held while it is thought about.
const LEASE_MS: u64 = 10_000;
/// Entries of a history that are read at once.
const ENTRIES_READ: u64 = 10_000;
/// How long to go without a look, in case a wake-up gets lost.
const POLL: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(5);
/// How long an engine waits after the first failed call; doubled with every further one.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// The longest such wait. It is bounded by itself: the poll interval of a worker's engine is a minute.
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(2);

fn error_pause(failures: u32) -> Duration {
    ERROR_PAUSE.saturating_mul(1 << failures.min(16)).min(ERROR_PAUSE_MAX)
}

/// Advances runs. Any number of processes may do so at once.
pub struct Engine {
    store: Arc<dyn Store>,
    id: WorkerId,
    ids: Ids,
    cache: Cache,
    poll: Duration,
    lease_ms: u64,
}

impl Engine {
    /// Over a store that is open.
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        let random: Arc<dyn Random> = Arc::new(StrongRandom::from_system());
        let id = WorkerId::new(format!("engine-{:016x}", random.next_u64()))?;
        let ids = Ids::new(Arc::new(SystemClock), random);
        Ok(Self { store, id, ids, cache: Cache::default(), poll: POLL, lease_ms: LEASE_MS })
    }

    /// How long to go without a look, in case a wake-up gets lost; one second when not said.
    #[must_use]
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll.max(SHORTEST);
        self
    }

    /// How long a run is held while it is thought about; ten seconds when not said. A process that dies delays its runs by
    /// so much.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Advances runs until `stop` returns. A store that is away is waited for.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        // Failed calls since the last one that succeeded.
        let mut failures = 0_u32;
        let mut claimed = self.claim(None).await;
        loop {
            let stopped = futures::poll!(&mut stop).is_ready();
            let found = match claimed {
                Ok(found) if !found.runs.is_empty() => {
                    // Whoever is to stop takes nothing more upon itself.
                    let (advanced, next) = self.advance_all(found, !stopped).await;
                    match (advanced, next) {
                        (Ok(()), Some(next)) => {
                            failures = 0;
                            claimed = next;
                            continue;
                        }
                        // What was claimed meanwhile must not wait for its lease.
                        (Err(_), Some(Ok(next))) if !next.runs.is_empty() => {
                            claimed = Ok(next);
                            continue;
                        }
                        (Err(error), _) => Err(error),
                        (Ok(()), None) => return,
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
                        match tokio::time::timeout(time, self.store.wait(WaitFor::Runs(nothing.mark))).await {
                            // Claimed again at once and in vain, it would ask the store without a pause.
                            Ok(Err(error)) => self.pause(&mut failures, &error).await,
                            Ok(Ok(())) | Err(_) => failures = 0,
                        }
                    }
                    Err(error) => self.pause(&mut failures, &error).await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = rest => {}
            }
            claimed = self.claim(None).await;
        }
    }

    /// Waits after a failed call. One that was refused is tried again as soon as any other: somebody may mend its cause.
    async fn pause(&self, failures: &mut u32, error: &Error) {
        if *failures == 0 {
            tracing::warn!(%error, "runs cannot be advanced; it is tried again");
        }
        let time = error_pause(*failures).min(self.poll);
        *failures = failures.saturating_add(1);
        tokio::time::sleep(time).await;
    }

    /// Advances what has something to do, until nothing has; answers how many steps that took. For tests.
    pub async fn settle(&mut self) -> Result<usize> {
        let mut steps = 0;
        loop {
            match self.round(None).await? {
                0 => return Ok(steps),
                claimed => steps += claimed,
            }
        }
    }

    /// Advances one run, if nobody else is about it.
    pub(super) async fn advance(&mut self, run: RunId) -> Result<bool> {
        Ok(self.round(Some(run)).await? > 0)
    }

    async fn round(&mut self, run: Option<RunId>) -> Result<usize> {
        let found = self.claim(run).await?;
        let claimed = found.runs.len();
        if claimed > 0 {
            self.advance_all(found, false).await.0?;
        }
        Ok(claimed)
    }

    async fn claim(&self, run: Option<RunId>) -> Result<RunsClaimed> {
        let kinds = vec![graph_kind()?];
        let claim = RunClaim { engine: self.id.clone(), kinds, run, max: RUNS_MAX, lease_ms: self.lease_ms };
        self.store.claim_runs(claim).await
    }

    /// Advances runs; what was claimed while the store was busy with that, if more is wanted.
    async fn advance_all(&mut self, found: RunsClaimed, more: bool) -> (Result<()>, Option<Result<RunsClaimed>>) {
        let work = match self.think_all(found).await {
            Ok(work) => work,
            Err(error) => return (Err(error), None),
        };
        let next = async { if more { Some(self.claim(None).await) } else { None } };
        // The claim goes behind the commits: it finds what has come to these runs meanwhile.
        let (answers, next) = tokio::join!(self.commit_all(&work.commits), next);
        (self.take_all_in(work, answers).await, next)
    }

    async fn think_all(&mut self, found: RunsClaimed) -> Result<Work> {
        let mut minds = self.minds(&found.runs).await?;
        let mut work = Work::default();
        for claimed in found.runs {
            let mind = minds.remove(&claimed.lease.run).unwrap_or_else(|| Err(Error::corrupt("it is not there")));
            match self.think(&claimed, mind, found.now).await {
                Ok((mind, mut steps)) if steps.len() == 1 => {
                    work.commits.extend(steps.pop().map(|step| commit(&claimed, claimed.history_len, step)));
                    work.thinkers.push(Some(mind));
                }
                Ok((mind, steps)) => work.long.push((claimed, mind, steps)),
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    work.commits.push(stuck(claimed.lease, claimed.history_len, &error));
                    work.thinkers.push(None);
                }
            }
        }
        Ok(work)
    }

    async fn take_all_in(&mut self, work: Work, answers: Result<Vec<Result<RunCommitted>>>) -> Result<()> {
        for ((made, mind), answer) in work.commits.iter().zip(work.thinkers).zip(answers?) {
            self.take_in(made, mind, answer).await;
        }
        for (claimed, mind, steps) in work.long {
            self.commit_in_turn(&claimed, mind, steps).await?;
        }
        Ok(())
    }

    async fn think(
        &mut self,
        claimed: &ClaimedRun,
        mind: Result<Mind>,
        now: Timestamp,
    ) -> Result<(Mind, Vec<RunStep>)> {
        let mut mind = mind?;
        if mind.history_len != claimed.history_len {
            return Err(Error::corrupt("its history is shorter than it should be"));
        }
        let mut items: Vec<_> = claimed.inbox.iter().cloned().filter_map(happened).collect();
        let lost = lost_ends(self.store.as_ref(), claimed, &mut mind, now).await?;
        let check_again = lost.is_none();
        items.extend(lost.unwrap_or_default());
        let has_more = mind.is_late(now) && !has_whole_inbox(self.store.as_ref(), claimed).await?;
        let steps = mind.think(Inbox { items, has_more, check_again }, now, &self.ids)?;
        Ok((mind, steps))
    }

    /// Several steps of one run; the lease is kept until the last, which alone takes from the inbox.
    async fn commit_in_turn(&mut self, claimed: &ClaimedRun, mind: Mind, steps: Vec<RunStep>) -> Result<()> {
        let (mut history_len, last) = (claimed.history_len, steps.len() - 1);
        let mut mind = Some(mind);
        for (at, step) in steps.into_iter().enumerate() {
            let mut next = commit(claimed, history_len, step);
            if at < last {
                (next.inbox_to, next.lease_ms) = (0, Some(self.lease_ms));
            }
            match self.commit_all(std::slice::from_ref(&next)).await?.pop() {
                Some(Ok(committed)) if at < last => history_len = committed.history_len,
                Some(answer) => {
                    self.take_in(&next, mind.take(), answer).await;
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The store has answered to a commit: what was thought is true, or it is forgotten.
    async fn take_in(&mut self, made: &RunCommit, mind: Option<Mind>, answer: Result<RunCommitted>) {
        let run = made.lease.run;
        match (mind, answer) {
            (Some(mind), Ok(committed)) => {
                if mind.history_len == committed.history_len && mind.progress.result.is_none() {
                    self.cache.put(mind);
                }
            }
            // Somebody else goes on with it.
            (_, Ok(_) | Err(Error::LeaseLost | Error::NotFound { .. })) => {}
            (Some(_), Err(error)) if !error.is_retryable() => {
                tracing::warn!(%run, %error, "a step of a run was refused");
                // It would be refused for ever: the run rests until somebody looks at it. Its lease is still held.
                let parked = self.commit_all(&[stuck(made.lease, made.history_len, &error)]).await;
                if let Err(error) | Ok(Some(Err(error))) = parked.map(|mut answers| answers.pop()) {
                    tracing::warn!(%run, %error, "a run could not be parked");
                }
            }
            // Its lease ends, and it is tried again.
            (_, Err(error)) => tracing::warn!(%run, %error, "a step of a run could not be made"),
        }
    }

    /// Commits whose answer got lost are repeated as they were.
    async fn commit_all(&self, commits: &[RunCommit]) -> Result<Vec<Result<RunCommitted>>> {
        if commits.is_empty() {
            return Ok(Vec::new());
        }
        retried(|| self.store.commit_runs(commits.to_vec())).await
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> Result<Vec<Option<RunView>>> {
        retried(|| self.store.read_runs(reads.clone())).await
    }

    /// What is known of these runs; what is not is read.
    async fn minds(&mut self, runs: &[ClaimedRun]) -> Result<HashMap<RunId, Result<Mind>>> {
        let mut minds = HashMap::with_capacity(runs.len());
        let mut reads = Vec::new();
        for claimed in runs {
            let run = claimed.lease.run;
            match self.cache.take(run).filter(|mind| mind.precedes(claimed)) {
                Some(mind) if mind.is_current(claimed) => drop(minds.insert(run, Ok(mind))),
                Some(mind) if mind.history_len < claimed.history_len => {
                    reads.push((read(claimed, mind.history_len), claimed, Some(mind)));
                }
                _ => {
                    let definition = self.cache.graph(claimed.definition_hash).is_none();
                    reads.push((RunRead { definition, input: true, ..read(claimed, 0) }, claimed, None));
                }
            }
        }
        if !reads.is_empty() {
            let answers = self.read_runs(reads.iter().map(|(read, ..)| *read).collect()).await?;
            for ((_, claimed, known), view) in reads.into_iter().zip(answers) {
                let mind = match view {
                    Some(view) => self.learn(claimed, known, view).await,
                    None => Err(Error::corrupt("it is not there")),
                };
                minds.insert(claimed.lease.run, mind);
            }
        }
        Ok(minds)
    }

    async fn learn(&mut self, claimed: &ClaimedRun, known: Option<Mind>, view: RunView) -> Result<Mind> {
        let run = claimed.lease.run;
        let mut mind = match known {
            Some(mind) => mind,
            None => {
                let graph = match self.cache.graph(claimed.definition_hash) {
                    Some(graph) => graph,
                    None => {
                        // Another run of this claim may have had it, and this one was not asked for it.
                        let bytes = match view.definition {
                            Some(bytes) => bytes,
                            None => self.definition(run).await?,
                        };
                        let graph = Arc::new(decode_definition(&bytes)?);
                        self.cache.put_graph(claimed.definition_hash, Arc::clone(&graph));
                        graph
                    }
                };
                let inputs = decode_input(&view.input.unwrap_or_default())?;
                Mind::of(claimed, graph, Arc::new(inputs))
            }
        };
        let mut entries = view.history;
        loop {
            mind.learn(&entries)?;
            if mind.history_len >= claimed.history_len || entries.is_empty() {
                return Ok(mind);
            }
            let more = self.read_runs(vec![read(claimed, mind.history_len)]).await?.pop().flatten();
            entries = more.map(|view| view.history).unwrap_or_default();
        }
    }

    async fn definition(&self, run: RunId) -> Result<bytes::Bytes> {
        let view = self.read_runs(vec![RunRead { definition: true, ..RunRead::brief(run) }]).await?.pop().flatten();
        view.and_then(|view| view.definition).ok_or_else(|| Error::corrupt("its definition is not there"))
    }
}

/// The next part of a history.
fn read(claimed: &ClaimedRun, history_from: u64) -> RunRead {
    let left = claimed.history_len.saturating_sub(history_from).min(ENTRIES_READ);
    let history_max = u32::try_from(left).unwrap_or(u32::MAX);
    RunRead { history_from, history_max, ..RunRead::brief(claimed.lease.run) }
}

fn commit(claimed: &ClaimedRun, history_len: u64, step: RunStep) -> RunCommit {
    RunCommit { lease: claimed.lease, history_len, inbox_to: claimed.inbox_to, lease_ms: None, step }
}

/// A run that nobody can advance: nothing of its inbox is lost, and it says why.
fn stuck(lease: RunLease, history_len: u64, error: &Error) -> RunCommit {
    let mut why = error.to_string();
    why.truncate(why.floor_char_boundary(1_000));
    let step = RunStep { stuck: Some(why), ..RunStep::nothing() };
    RunCommit { lease, history_len, inbox_to: 0, lease_ms: None, step }
}

/// What was thought about runs that were claimed together.
#[derive(Default)]
struct Work {
    commits: Vec<RunCommit>,
    /// What is known of each of them, if its step is made.
    thinkers: Vec<Option<Mind>>,
    /// Those of several steps.
    long: Vec<(ClaimedRun, Mind, Vec<RunStep>)>,
}

/// How long to rest when there was nothing.
fn rest(nothing: &RunsClaimed, poll: Duration) -> Duration {
    let next = nothing.next_at.map(|at| Duration::from_millis(at.ms_since(nothing.now)));
    next.unwrap_or(poll).clamp(SHORTEST, poll)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("id", &self.id).finish_non_exhaustive()
    }
}
