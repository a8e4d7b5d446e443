//! Engines whose state in memory is not that of the store, and engines that hold many runs.

use super::stores::{Opened, memory, on_every_store, until};
use super::{Charge, support};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::core::id::RunId;
use windlass::core::store::{RunCommit, RunCommitted, RunState, Store, Wrap, Wrapped};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Wf, typed, workflow};
use windlass::runs::Engine;

on_every_store!(
    a_state_that_a_failover_has_overtaken_is_not_used,
    a_long_state_that_a_failover_has_overtaken_is_not_used,
);

/// Acknowledges commits and makes none while its flag is set, as a primary does whose last changes are lost in a failover.
struct LosesCommits(Arc<dyn Store>, AtomicBool);

#[async_trait::async_trait]
impl Wrap for LosesCommits {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> windlass::Result<Vec<windlass::Result<RunCommitted>>> {
        if !self.1.load(Ordering::SeqCst) {
            return self.0.commit_runs(commits).await;
        }
        let made = |commit: RunCommit| commit.history_len + commit.step.history.len() as u64;
        Ok(commits.into_iter().map(|commit| Ok(RunCommitted { history_len: made(commit), repeated: false })).collect())
    }
}

/// The random numbers that the code of a run has seen, one for each time that it was executed from its beginning.
static SEEN: Mutex<BTreeMap<RunId, Vec<u64>>> = Mutex::new(BTreeMap::new());

#[workflow]
async fn charges(wf: Wf, _text: String) -> Result<u64, Error> {
    let number = wf.random();
    SEEN.lock().entry(wf.run_id()).or_default().push(number);
    wf.run_ok("step", async || ()).await?;
    wf.call(Charge { order: 7 }).await?;
    Ok(number)
}

fn engine(store: Arc<dyn Store>) -> Engine {
    let engine = Engine::new(store).unwrap().lease(Duration::from_secs(1));
    engine.workflows(vec![typed(charges)], Some("a".to_owned())).unwrap()
}

/// A claim brings a short history along.
async fn a_state_that_a_failover_has_overtaken_is_not_used(on: Opened) {
    overtaken(on, String::new()).await;
}

/// The state is refused because of the end of a job that it does not have.
async fn a_long_state_that_a_failover_has_overtaken_is_not_used(on: Opened) {
    overtaken(on, "x".repeat(100_000)).await;
}

/// Both engines make histories of the same length. That of the first is lost.
async fn overtaken(on: Opened, input: String) {
    let run = on.client.start(charges, input).await.unwrap();
    let losing = Arc::new(Wrapped(LosesCommits(Arc::clone(&on.store), AtomicBool::new(true))));
    let mut first = engine(Arc::<Wrapped<LosesCommits>>::clone(&losing));
    assert_eq!(first.settle().await.unwrap(), 1);
    assert_eq!(on.view(&run).await.history_len, 0, "its commits are lost");
    losing.1.store(false, Ordering::SeqCst);
    let second = tokio::sync::Mutex::new(engine(Arc::clone(&on.store)));
    until("the lease of the first engine has ended", || async {
        (second.lock().await.settle().await.unwrap() > 0).then_some(())
    })
    .await;
    let worker = support::Running::start(super::worker(&on.store).without_runs());
    until("the job has ended", || async { (on.view(&run).await.inbox_len == 1).then_some(()) }).await;
    first.settle().await.unwrap();
    let seen = on.view(&run).await;
    assert_eq!((seen.state, seen.stuck), (RunState::Succeeded, None));
    let number = SEEN.lock()[&run.id()][1];
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(number), "that of the history in the store");
    worker.drain().await;
}

static GATE: Semaphore = Semaphore::const_new(0);

#[workflow]
async fn long_step(wf: Wf, _: ()) -> Result<(), Error> {
    let pass = async || drop(GATE.acquire().await.map_err(|error| error.to_string()));
    wf.run_ok("long", pass).await?;
    Ok(())
}

#[workflow]
async fn quick(_wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(n)
}

/// The most decisions that an engine holds.
const PENDING_MAX: u32 = 1_024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_runs_whose_decisions_take_long_do_not_starve_others() {
    let on = memory();
    let worker = || on.worker("a").workflow(long_step).workflow(quick);
    let first = on.start(worker());
    let mut long = Vec::new();
    for n in 1..=PENDING_MAX + 76 {
        long.push(on.client.start(long_step, ()).await.unwrap());
        if n == 1 || n == PENDING_MAX - 1 {
            // As long as the engine has room, the others go on.
            let run = on.client.start(quick, n).await.unwrap();
            assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(n));
        }
    }
    let held = || async { on.runs().await.iter().filter(|run| run.engine.is_some()).count() };
    until("the engine is full", || async { (held().await == PENDING_MAX as usize).then_some(()) }).await;
    // What it has no room for is left to others.
    let run = on.client.start(quick, 7).await.unwrap();
    let second = on.start(worker());
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(7));
    GATE.add_permits(1);
    for run in long {
        run.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    }
    first.drain().await;
    second.drain().await;
}
