//! Workflows that are wrong on purpose: each check finds one that the others do not.

use crate::{Approve, Charge, Refund, approve, failure};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use windlass::durable::{Error, JoinSet, Wf, join, workflow};
use windlass::testing::WorkflowTest;

fn mocked() -> WorkflowTest {
    WorkflowTest::new().mock(|job: Charge| Ok(job.order)).mock(|_: Refund| Ok(()))
}

#[workflow]
async fn hash_map(wf: Wf, _: ()) -> Result<(), Error> {
    let orders: HashMap<u64, ()> = (0..50).map(|order| (order, ())).collect();
    for order in orders.into_keys() {
        wf.call(Charge { order }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn shadow_replay_finds_the_order_of_a_hash_map() {
    let text = failure(mocked().run(hash_map, ())).await;
    assert!(text.contains("in a replay of ") && text.contains("look for a HashMap"), "{text}");
    assert!(text.contains("call `charge` #0"), "{text}");
    mocked().without_shadow_replay().run(hash_map, ()).await.output();
}

#[workflow]
async fn clock(wf: Wf, _: ()) -> Result<(), Error> {
    #[expect(clippy::disallowed_methods, reason = "the mistake that the test is to find")]
    let order = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    wf.call(Charge { order: order.into() }).await?;
    Ok(())
}

#[tokio::test]
async fn shadow_replay_finds_a_clock_in_an_input() {
    let text = failure(mocked().run(clock, ())).await;
    assert!(text.contains("has another input than in the history"), "{text}");
}

static RUNS: AtomicU64 = AtomicU64::new(0);

#[workflow]
async fn global_result(wf: Wf, _: ()) -> Result<u64, Error> {
    wf.sleep("1d").await?;
    Ok(RUNS.fetch_add(1, Ordering::Relaxed))
}

#[tokio::test]
async fn shadow_replay_compares_results() {
    let text = failure(mocked().run(global_result, ())).await;
    assert!(text.contains("the code ended with Ok("), "{text}");
}

static LONG: AtomicU64 = AtomicU64::new(0);

/// The 301st call depends on global state.
#[workflow]
async fn late_mistake(wf: Wf, _: ()) -> Result<(), Error> {
    for order in 0..300 {
        wf.call(Charge { order }).await?;
    }
    if LONG.fetch_add(1, Ordering::Relaxed) == 0 {
        wf.call(Charge { order: 300 }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn long_histories_are_replayed_at_spread_prefixes() {
    let text = failure(mocked().run(late_mistake, ())).await;
    assert!(text.contains("in a replay of 60"), "{text}");
    assert!(text.contains("… "), "the history is cut: {text}");
}

static REPLAYS: AtomicU64 = AtomicU64::new(0);

/// Only a replay makes the call.
#[workflow]
async fn more_in_replays(wf: Wf, _: ()) -> Result<(), Error> {
    let (time, charged) = join!(wf.sleep("1d"), async {
        if REPLAYS.fetch_add(1, Ordering::Relaxed) > 0 {
            wf.call(Charge { order: 1 }).await?;
        }
        Ok::<_, Error>(())
    });
    time?;
    charged
}

#[tokio::test]
async fn shadow_replay_finds_a_call_beyond_the_end_of_the_history() {
    let text = failure(mocked().run(more_in_replays, ())).await;
    assert!(text.contains("in a replay of 2 records the code made call `charge` #0 in "), "{text}");
    assert!(text.contains("and at first it made nothing"), "{text}");
}

#[workflow]
async fn randomly_selected(wf: Wf, _: ()) -> Result<(), Error> {
    for order in 0..20 {
        tokio::select! {
            charged = async { wf.call(Charge { order }).await } => { charged?; }
            refunded = async { wf.call(Refund { order }).await } => { refunded?; }
        }
    }
    Ok(())
}

#[tokio::test]
async fn shadow_replay_finds_tokio_select() {
    let text = failure(mocked().run(randomly_selected, ())).await;
    assert!(text.contains("the code does not match record") && text.contains("`tokio::select!`"), "{text}");
}

#[workflow]
async fn counts_polls(wf: Wf, _: ()) -> Result<(), Error> {
    let mut polls = 0;
    let mut sleep = std::pin::pin!(wf.sleep("1d"));
    let counted = std::future::poll_fn(|cx| {
        polls += 1;
        sleep.as_mut().poll(cx).map(|time| (time, polls))
    });
    let (time, polls) = counted.await;
    time?;
    if polls > 2 {
        wf.call(Charge { order: polls }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn pokes_find_code_that_counts_polls() {
    let run = mocked().crash_everywhere().run(counts_polls, ()).await;
    run.assert_calls::<Charge>(0);
    let text = failure(mocked().poke().run(counts_polls, ())).await;
    assert!(text.contains("in a replay of"), "only the first execution was poked: {text}");
}

#[workflow]
async fn calls_at_a_poll(wf: Wf, _: ()) -> Result<(), Error> {
    let mut polls = 0;
    let mut sleep = std::pin::pin!(wf.sleep("1d"));
    let mut second = None;
    let both = std::future::poll_fn(|cx| {
        polls += 1;
        let time = sleep.as_mut().poll(cx);
        if polls == 2 && time.is_pending() {
            let mut call = Box::pin(wf.call(Charge { order: 1 }));
            drop(call.as_mut().poll(cx));
            second = Some(call);
        }
        time
    });
    both.await?;
    Ok(())
}

#[tokio::test]
async fn pokes_find_records_of_needless_polls() {
    mocked().crash_everywhere().run(calls_at_a_poll, ()).await.output();
    let text = failure(mocked().poke().run(calls_at_a_poll, ())).await;
    assert!(text.contains("a needless poll after") && text.contains("call `charge` #0"), "{text}");
}

/// `tokio::join!` begins each poll with another arm.
#[workflow]
async fn rotating_join(wf: Wf, _: ()) -> Result<(), Error> {
    let cleanup = async |order| {
        let cancelled = wf.sleep("1d").await;
        drop(wf.shield(wf.call(Charge { order })).await);
        cancelled
    };
    let (first, second) = tokio::join!(cleanup(1), cleanup(2));
    first.and(second)?;
    Ok(())
}

#[tokio::test]
async fn pokes_find_tokio_join() {
    let test = || mocked().cancel_at("1h", "no");
    assert_eq!(test().crash_everywhere().run(rotating_join, ()).await.calls::<Charge>().len(), 2);
    let text = failure(test().poke().run(rotating_join, ())).await;
    assert!(text.contains("in a replay of"), "{text}");
}

/// The result lists orders as they are completed.
#[workflow]
async fn as_completed(wf: Wf, _: ()) -> Result<Vec<u64>, Error> {
    let mut tasks = JoinSet::new();
    for order in 0..4 {
        tasks.spawn(wf.call(Charge { order }));
    }
    let mut done = Vec::new();
    while let Some(order) = tasks.join_next().await {
        done.push(order?);
    }
    Ok(done)
}

#[tokio::test]
async fn other_orders_find_a_result_that_depends_on_the_order_of_simultaneous_events() {
    let text = failure(mocked().run(as_completed, ())).await;
    assert!(text.contains("with simultaneous events in order ") && text.contains(" of 20 (seed 1)"), "{text}");
    assert!(text.contains("at first it ended with [0,1,2,3]") && text.contains(".order_matters()"), "{text}");
    let run = mocked().order_matters().run(as_completed, ()).await;
    assert_eq!((run.orders, run.output()), (20, vec![0, 1, 2, 3]));
    assert_eq!(mocked().orders(0).run(as_completed, ()).await.orders, 0);
    let timed =
        WorkflowTest::new().mock_timed(|job: Charge| (std::time::Duration::from_secs(9 - job.order), Ok(job.order)));
    let run = timed.run(as_completed, ()).await;
    assert_eq!((run.orders, run.output()), (20, vec![3, 2, 1, 0]), "only the starts are simultaneous");
}

/// Expects the approval before the payment.
#[workflow]
async fn wrong_in_one_order(wf: Wf, _: ()) -> Result<(), Error> {
    wf.call(Charge { order: 1 }).await?;
    let approve = wf.try_recv::<Approve>();
    assert!(approve.is_some(), "it was paid before it was approved");
    Ok(())
}

#[tokio::test]
async fn other_orders_find_code_that_gets_stuck_in_one_of_them() {
    let test = || WorkflowTest::new().mock(|_: Charge| Ok(1)).takes("1h").signal_at("1h", approve("ann"));
    test().orders(0).crash_everywhere().run(wrong_in_one_order, ()).await.output();
    let text = failure(test().run(wrong_in_one_order, ())).await;
    assert!(text.contains("it was paid before it was approved"), "{text}");
    assert!(text.contains("with simultaneous events in order "), "{text}");
}

static SESSION: AtomicBool = AtomicBool::new(false);

/// The second step needs what the first one left in memory.
#[workflow]
async fn state_in_memory(wf: Wf, _: ()) -> Result<bool, Error> {
    wf.run_ok("open session", || async { SESSION.store(true, Ordering::Relaxed) }).await?;
    wf.sleep("1h").await?;
    let is_open: bool = wf.run_ok("use session", || async { SESSION.swap(false, Ordering::Relaxed) }).await?;
    Ok(is_open)
}

#[tokio::test]
async fn crashes_find_a_step_that_depends_on_memory() {
    assert!(mocked().poke().run(state_in_memory, ()).await.output());
    let text = failure(mocked().crash_everywhere().run(state_in_memory, ())).await;
    assert!(
        text.contains("after a crash behind commit ") && text.contains("without the crash it ended with true"),
        "{text}"
    );
    mocked().mock_step("use session", || Ok(true)).crash_everywhere().run(state_in_memory, ()).await.output();
}

static FIRST: AtomicBool = AtomicBool::new(true);

/// Only the process that started the run makes the second call.
#[workflow]
async fn calls_of_one_process(wf: Wf, _: ()) -> Result<(), Error> {
    wf.sleep("1h").await?;
    if FIRST.swap(false, Ordering::Relaxed) {
        wf.call(Charge { order: 1 }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn crashes_find_global_state() {
    let text = failure(mocked().without_shadow_replay().crash_everywhere().run(calls_of_one_process, ())).await;
    assert!(text.contains("after a crash behind commit 0"), "{text}");
}

#[workflow]
async fn deadlock(wf: Wf, _: ()) -> Result<(), Error> {
    wf.sleep("1h").await?;
    std::future::poll_fn(|_| Poll::<()>::Pending).await;
    Ok(())
}

#[workflow]
async fn swallowed_panic(wf: Wf, number: u64) -> Result<u64, Error> {
    let (first, second) = join!(wf.call(Charge { order: number }), wf.sleep("1h"));
    second?;
    assert_eq!(first?, 8);
    Ok(8)
}

#[tokio::test]
async fn deadlocks_and_panics_print_the_history() {
    let text = failure(mocked().run(deadlock, ())).await;
    assert!(text.contains("deadlock: after") && text.contains("stuck at +1h"), "{text}");
    let text = failure(mocked().run(swallowed_panic, 7)).await;
    assert!(text.contains("left: 7") && text.contains("wrong.rs:") && text.contains("sleep #0 in "), "{text}");
}
