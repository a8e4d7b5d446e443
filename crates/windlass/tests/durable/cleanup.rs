//! Ends of runs with more open work than one commit can cancel, and ends that unread messages refuse.

use super::stores::{Opened, memory, on_every_store, until};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use windlass::core::store::{BATCH_MAX, QueueCounts, RunState};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Signal, Wf, join_all, select, workflow};

on_every_store!(
    slow_termination_cancels_more_jobs_than_one_commit_can,
    slow_more_calls_than_one_commit_can_cancel_are_given_up,
);

/// More than the batches of any store call.
const CALLS: u32 = 10_000 + 500;

#[derive(Serialize, Deserialize, Signal)]
struct Stop {}

#[workflow]
async fn fans_out(wf: Wf, calls: u32) -> Result<(), Error> {
    let all = join_all((0..calls).map(|n| wf.call_named("nobody-handles-this", serde_json::json!(n))));
    select! {
        all = all => drop(all),
        stop = wf.recv::<Stop>() => { stop?; },
    }
    // Goes on for long.
    wf.recv::<Stop>().await?;
    Ok(())
}

async fn all_are(on: &Opened, state: &str, count: impl Fn(&QueueCounts) -> u64) {
    let are = || async {
        let queues = on.store.queues().await.unwrap();
        (queues.iter().map(|queue| count(&queue.counts)).sum::<u64>() == u64::from(CALLS)).then_some(())
    };
    until(state, are).await;
}

async fn slow_termination_cancels_more_jobs_than_one_commit_can(on: Opened) {
    assert!(CALLS as usize > BATCH_MAX);
    let running = on.start(on.worker("a").workflow(fans_out));
    let run = on.client.start(fans_out, CALLS).await.unwrap();
    all_are(&on, "ready", |counts| counts.ready).await;
    run.terminate("for the test").await.unwrap();
    all_are(&on, "cancelled", |counts| counts.cancelled).await;
    until("it rests", || async { (on.view(&run).await.inbox_len == 0).then_some(()) }).await;
    assert_eq!(on.view(&run).await.state, RunState::Terminated);
    running.drain().await;
}

async fn slow_more_calls_than_one_commit_can_cancel_are_given_up(on: Opened) {
    let running = on.start(on.worker("a").workflow(fans_out));
    let run = on.client.start(fans_out, CALLS).await.unwrap();
    all_are(&on, "ready", |counts| counts.ready).await;
    run.signal(Stop {}).await.unwrap();
    all_are(&on, "cancelled", |counts| counts.cancelled).await;
    run.signal(Stop {}).await.unwrap();
    run.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    running.drain().await;
}

static EXECUTIONS: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn ends_at_the_first(wf: Wf, _: ()) -> Result<(), Error> {
    EXECUTIONS.fetch_add(1, Ordering::SeqCst);
    wf.recv::<Stop>().await?;
    Ok(())
}

/// The code was offered all messages, and would end in the same way however often the turn is made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_leaves_offered_messages_is_refused_once() {
    let on = memory();
    let run = on.client.start(ends_at_the_first, ()).await.unwrap();
    for _ in 0..3 {
        run.signal(Stop {}).await.unwrap();
    }
    let running = on.start(on.worker("a").workflow(ends_at_the_first));
    run.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    assert_eq!(EXECUTIONS.load(Ordering::SeqCst), 2);
    running.drain().await;
}
