//! Histories that grow: a hint, and a cap at which a run becomes stuck and never fails.

use super::stores::{Opened, memory, on_every_store};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::core::store::RunState;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, RunHandle, Signal, Wf, typed, workflow};
use windlass::runs::Engine;

on_every_store!(a_run_at_the_cap_is_stuck_and_goes_on_with_another_cap);

#[derive(Serialize, Deserialize, Signal)]
struct Tick {}

#[workflow]
async fn counts_ticks(wf: Wf, ticks: u32) -> Result<u32, Error> {
    for _ in 0..ticks {
        wf.recv::<Tick>().await?;
    }
    Ok(ticks)
}

fn engine(on: &Opened) -> Engine {
    let engine = Engine::new(Arc::clone(&on.store)).unwrap().history_cap(20);
    engine.workflows(vec![typed(counts_ticks)], Some("a".to_owned())).unwrap()
}

/// Sends signals, each in a turn of its own, until the run is stuck or has ended. Returns how many it took.
async fn tick(on: &Opened, engine: &mut Engine, run: &RunHandle<counts_ticks>) -> u64 {
    for sent in 0..100 {
        let seen = on.view(run).await;
        if seen.stuck.is_some() || seen.state.is_terminal() {
            return sent;
        }
        run.signal(Tick {}).await.unwrap();
        engine.settle().await.unwrap();
    }
    panic!("the run goes on");
}

async fn a_run_at_the_cap_is_stuck_and_goes_on_with_another_cap(on: Opened) {
    let mut first = engine(&on);
    let run = on.client.start(counts_ticks, 40).await.unwrap();
    // The start and 19 signals; the next one is not recorded.
    assert_eq!(tick(&on, &mut first, &run).await, 20);
    let seen = on.view(&run).await;
    let stuck = seen.stuck.unwrap();
    let advice = format!("at most 20 are allowed. `windlass runs resume {} --cap 40`", run.id());
    assert!(stuck.contains("its history has 20 records") && stuck.contains(&advice), "{stuck}");
    assert_eq!((seen.state, seen.history_len, seen.unread_messages), (RunState::Running, 20, 1));
    assert_eq!(seen.wake_at.unwrap().ms_since(seen.changed_at), 3_600_000, "nothing but another cap helps");
    // Without another cap it is stuck again.
    run.resume().await.unwrap();
    first.settle().await.unwrap();
    assert!(on.view(&run).await.stuck.is_some());
    // One below that of the worker does not count.
    run.resume_with_cap(5).await.unwrap();
    first.settle().await.unwrap();
    let stuck = on.view(&run).await.stuck.unwrap();
    assert!(stuck.contains("at most 20 are allowed"), "{stuck}");
    // The cap of the run counts, in every process. Its record, that of the cap before, and the waiting signal are the first three.
    run.resume_with_cap(30).await.unwrap();
    first.settle().await.unwrap();
    assert_eq!(on.view(&run).await.history_len, 23);
    let mut second = engine(&on);
    assert_eq!(tick(&on, &mut second, &run).await, 8);
    assert!(on.view(&run).await.stuck.unwrap().contains("at most 30 are allowed"));
    run.resume_with_cap(1_000).await.unwrap();
    first.settle().await.unwrap();
    tick(&on, &mut first, &run).await;
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(40));
}

#[workflow]
async fn steps_without_end(wf: Wf, _: ()) -> Result<(), Error> {
    loop {
        wf.run_ok("step", async || ()).await?;
    }
}

/// The lease is kept from one local step to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_local_steps_alone_stops_at_the_cap() {
    let on = memory();
    let running = on.start(on.worker("a").workflow(steps_without_end).history_cap(100));
    let run = on.client.start(steps_without_end, ()).await.unwrap();
    let stuck = on.stuck(&run).await;
    assert!(stuck.contains("its history has 100 records"), "{stuck}");
    running.drain().await;
}

/// A claim hands out a thousand items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_that_is_raised_behind_a_long_inbox_holds() {
    let on = memory();
    let mut engine = engine(&on);
    let run = on.client.start(counts_ticks, 2_500).await.unwrap();
    let sent = tick(&on, &mut engine, &run).await;
    for _ in sent..2_500 {
        run.signal(Tick {}).await.unwrap();
    }
    run.resume_with_cap(3_000).await.unwrap();
    engine.settle().await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(2_500));
}

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn counts_beside_a_step(wf: Wf, _: ()) -> Result<(), Error> {
    let never = wf.run_ok("never", async || {
        HAS_BEGUN.store(true, Ordering::SeqCst);
        std::future::pending::<()>().await;
    });
    let ticks = async { while wf.recv::<Tick>().await.is_ok() {} };
    windlass::durable::join!(never, ticks).0?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_step_lets_a_history_grow_to_twice_the_cap() {
    let on = memory();
    let running = on.start(on.worker("a").workflow(counts_beside_a_step).history_cap(20));
    let run = on.client.start(counts_beside_a_step, ()).await.unwrap();
    super::stores::until("the step has begun", || async { HAS_BEGUN.load(Ordering::SeqCst).then_some(()) }).await;
    for (sent, length) in [(30, 31), (30, 61)] {
        assert_eq!(on.view(&run).await.stuck, None);
        for _ in 0..sent {
            run.signal(Tick {}).await.unwrap();
        }
        let is_long = || async { (on.view(&run).await.history_len >= length).then_some(()) };
        super::stores::until("the signals are recorded", is_long).await;
    }
    let stuck = on.stuck(&run).await;
    assert!(stuck.contains("its history has 61 records"), "{stuck}");
    running.drain().await;
}

#[workflow]
async fn two_segments(wf: Wf, left: u32) -> Result<u32, Error> {
    for _ in 0..8 {
        wf.sleep("0s").await?;
    }
    if left > 0 {
        wf.continue_as_new(two_segments, left - 1).await;
    }
    Ok(0)
}

/// The cap counts the records of the segment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_continues_as_new_never_reaches_the_cap() {
    let on = memory();
    let running = on.start(on.worker("a").workflow(two_segments).history_cap(20));
    let run = on.client.start(two_segments, 10).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(0));
    assert!(run.describe().await.unwrap().history_len > 150);
    running.drain().await;
}

#[workflow]
async fn sleeps_often(wf: Wf, times: u32) -> Result<(), Error> {
    for _ in 0..times {
        wf.sleep("0s").await?;
    }
    wf.recv::<Tick>().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_is_named_in_the_summary() {
    let on = memory();
    let running = on.start(on.worker("a").workflow(sleeps_often));
    let short = on.client.start(sleeps_often, 4_000).await.unwrap();
    let long = on.client.start(sleeps_often, 5_000).await.unwrap();
    on.summary(&short, "recv").await;
    on.summary(&long, "recv").await;
    assert!(!on.view(&short).await.summary.contains("records"));
    let summary = on.view(&long).await.summary;
    assert!(summary.ends_with("10001 records of history are replayed: continue as new, or use children"), "{summary}");
    long.signal(Tick {}).await.unwrap();
    long.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    running.drain().await;
}
