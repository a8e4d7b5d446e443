//! Histories that grow: a hint, and a cap at which a run becomes stuck and never fails.

use super::stores::{Opened, memory, on_every_store};
use serde::{Deserialize, Serialize};
use windlass::core::store::RunState;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Signal, Wf, workflow};

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

async fn a_run_at_the_cap_is_stuck_and_goes_on_with_another_cap(on: Opened) {
    let worker = || on.worker("a").workflow(counts_ticks).history_cap(20);
    let running = on.start(worker());
    let run = on.client.start(counts_ticks, 40).await.unwrap();
    for _ in 0..40 {
        run.signal(Tick {}).await.unwrap();
        if on.view(&run).await.stuck.is_some() {
            break;
        }
    }
    let id = run.id();
    let length = {
        // Signals that come together are recorded in one turn.
        run.signal(Tick {}).await.unwrap();
        let stuck = on.stuck(&run).await;
        let seen = on.view(&run).await;
        let wanted = format!("windlass runs resume {id} --cap {}", 2 * seen.history_len);
        assert!(stuck.contains(&wanted) && stuck.contains("at most 20 are allowed"), "{stuck}");
        assert_eq!(seen.state, RunState::Running, "it has not failed");
        seen.history_len
    };
    // The cap of the run counts, in every process.
    run.resume_with_cap(length + 3).await.unwrap();
    for _ in 0..3 {
        run.signal(Tick {}).await.unwrap();
    }
    assert!(on.stuck(&run).await.contains(&format!("at most {} are allowed", length + 3)));
    running.drain().await;
    let running = on.start(worker());
    run.resume_with_cap(1_000).await.unwrap();
    while on.view(&run).await.state == RunState::Running {
        // The run may end between the two calls.
        let _ = run.signal(Tick {}).await;
    }
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(40));
    running.drain().await;
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
