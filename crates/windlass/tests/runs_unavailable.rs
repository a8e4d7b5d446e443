//! A store that is away for a moment delays runs for a moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::{LONG, Running, faulty, memory};
use windlass::core::graph::Graph;
use windlass::core::memory::MemoryStore;
use windlass::core::random::StrongRandom;
use windlass::core::store::{CallStore, RunState, Store};
use windlass::core::time::{Timestamp, VirtualClock};
use windlass::graph::GraphBuilder;
use windlass::runs::{Engine, NewGraphRun, Runs};
use windlass::{Error, Job, Worker};
use windlass_conformance::faults::{Fault, Faulty, Method};

#[derive(Debug, Serialize, Deserialize)]
struct Say {}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

async fn say(_: Say) {}

/// Calls that fail, as during a failover.
const FAILURES: u32 = 3;

/// The graph of every test: the second job starts when an engine has advanced the run.
fn two_jobs() -> Graph {
    let mut graph = GraphBuilder::new("two");
    let first = graph.job("first", &Say {}).node();
    graph.job("second", &Say {}).after(&first);
    graph.finish().unwrap()
}

/// A store whose first calls of a method fail.
fn failing(store: &Arc<dyn Store>, failing: Method, fault: Fault) -> Arc<CallStore<Faulty>> {
    let calls = AtomicU32::new(0);
    faulty(store, move |method| match method == failing && calls.fetch_add(1, Ordering::Relaxed) < FAILURES {
        true => fault.clone(),
        false => Fault::Pass,
    })
}

fn refused() -> Fault {
    Fault::Refused(Error::Corrupt { what: "the index of runs".to_owned() })
}

/// On a clock that jumps whenever all is idle: the poll interval of a worker's engine is a minute, and it waited ten of
/// them after a refused call.
#[tokio::test(start_paused = true)]
async fn the_engine_of_a_worker_goes_on_soon_after_failed_claims() {
    for fault in [Fault::Before, refused()] {
        let (store, _) = memory();
        let running = Running::start(Worker::builder(failing(&store, Method::ClaimRuns, fault.clone())).handle(say));
        let runs = Runs::new(store);
        let run = runs.start(NewGraphRun::new(two_jobs())).await.unwrap();
        let status = runs.wait(run, Duration::from_secs(10)).await.unwrap();
        assert_eq!(status.map(|status| status.run.state), Some(RunState::Succeeded), "{fault:?}");
        running.drain().await;
    }
}

/// A run that was claimed and could not be read does not wait for the end of its lease.
#[tokio::test(start_paused = true)]
async fn a_run_goes_on_soon_after_failed_reads() {
    let (store, _) = memory();
    let running = Running::start(Worker::builder(Arc::clone(&store)).without_runs().handle(say));
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(two_jobs())).await.unwrap();
    let engine = Engine::new(failing(&store, Method::ReadRuns, Fault::Before)).unwrap().lease(LONG * 10);
    let ended = tokio::select! {
        () = engine.run(std::future::pending()) => None,
        ended = runs.wait(run, LONG) => ended.unwrap(),
    };
    assert_eq!(ended.map(|status| status.run.state), Some(RunState::Succeeded));
    running.drain().await;
}

/// A run that is claimed because it is late: its jobs are looked up, and whether its inbox has more.
#[tokio::test(start_paused = true)]
async fn a_late_run_times_out_soon_after_failed_reads_of_its_jobs_and_its_inbox() {
    for (failing, passed) in [(Method::Get, 0), (Method::ReadRuns, 1)] {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(4_102_444_800_000)));
        let random = Arc::new(StrongRandom::seeded(1));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with(Arc::<VirtualClock>::clone(&clock), random));
        let graph = Graph { timeout_ms: Some(1_000), ..two_jobs() };
        let run = Runs::new(Arc::clone(&store)).start(NewGraphRun::new(graph)).await.unwrap();
        clock.advance_ms(2_000);
        let calls = AtomicU32::new(0);
        let away = faulty(&store, move |method| {
            let fails =
                method == failing && (passed..passed + FAILURES).contains(&calls.fetch_add(1, Ordering::Relaxed));
            if fails { Fault::Before } else { Fault::Pass }
        });
        Engine::new(away).unwrap().settle().await.unwrap();
        assert!(Runs::new(store).status(run).await.unwrap().unwrap().progress.timed_out, "{failing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_cannot_wait_for_wake_ups_does_not_claim_without_a_pause() {
    let (store, _) = memory();
    let waits = AtomicU32::new(0);
    let deaf = faulty(&store, move |method| match method {
        Method::Wait => {
            // Nothing else would end a loop without a pause on a clock that stands still.
            assert!(waits.fetch_add(1, Ordering::Relaxed) < 1_000, "it asks without a pause");
            Fault::Before
        }
        _ => Fault::Pass,
    });
    let claims = || deaf.calls().get(&Method::ClaimRuns).copied().unwrap_or(0);
    let engine = Engine::new(Arc::clone(&deaf) as Arc<dyn Store>).unwrap().poll(LONG);
    let begin = claims();
    tokio::select! {
        () = engine.run(std::future::pending()) => {}
        // sleeps because: twenty seconds of the virtual clock are to pass.
        () = tokio::time::sleep(Duration::from_secs(20)) => {}
    }
    // 50, 100, 200, … ms, and then every two seconds.
    assert!((10..=20).contains(&(claims() - begin)), "{} claims in 20 s", claims() - begin);
}
