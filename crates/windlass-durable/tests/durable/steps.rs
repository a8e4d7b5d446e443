//! Local steps.

use super::support::{A, B, JsonResult, Ping, State, TokioHost, body, opening, value, wf, world};
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::json;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, CallError, Entry, Error, ErrorClass, Item, ItemBody, JoinSet, Record, Run, Stuck, Wf, join, join_all,
    select,
};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

/// What a runtime allows in a step that is polled on a thread of the executor.
#[test]
#[expect(clippy::disallowed_methods, reason = "what a local step may do")]
fn slow_steps_may_use_their_runtime() {
    async fn code(wf: Wf) -> JsonResult {
        let a = wf.run("spawn", async || tokio::spawn(async { 1 }).await).await?;
        let b = wf.run_ok("sleep", async || {
            tokio::time::sleep(Duration::from_millis(1)).await; // sleeps because: the step waits for a timer
            2
        });
        let b = b.await?;
        let c = wf.run("blocking", async || tokio::task::spawn_blocking(|| 3).await).await?;
        let d = wf.run_ok("in place", async || tokio::task::block_in_place(|| 4)).await?;
        let e = wf.run_blocking("own thread", || Ok::<_, Error>(5)).await?;
        let f = wf.run_blocking("bad thread", || if true { panic!("x") } else { Ok::<u64, Error>(0) });
        let f = f.await.unwrap_err().message;
        // Its destructor needs the runtime: it is dropped in it.
        struct Needs;
        impl Drop for Needs {
            fn drop(&mut self) {
                tokio::spawn(async {});
            }
        }
        let loser = wf.run_ok("loser", async || {
            let _needs = Needs;
            std::future::pending::<u64>().await
        });
        select! { _ = loser => {} ping = wf.recv::<Ping>() => { ping?; } }
        Ok(json!([a, b, c, d, e, f.contains("panicked")]))
    }
    let host = Arc::new(TokioHost::new());
    let mut steps = world(wf(code));
    steps.host = host.clone();
    let mut is_sent = false;
    let state = loop {
        match steps.go() {
            State::Waiting => {
                let open = steps.run.as_ref().map(Run::open_steps).unwrap();
                if !is_sent && open.iter().any(|key| key.name == "loser") {
                    is_sent = true;
                    steps.signal(steps.now + 1, &Ping(1));
                } else {
                    host.wait();
                }
            }
            other => break other,
        }
    };
    assert_eq!(value(state), json!([1, 2, 3, 4, 5, true]));
}

#[test]
fn slow_attempts_timeouts_and_panics_of_steps() {
    async fn code(wf: Wf) -> JsonResult {
        let panics = wf.run("panics", async || if true { panic!("x") } else { Ok::<u64, Error>(5) }).attempts(2).await;
        let late = wf.run_ok("late", async || std::future::pending::<u64>().await).timeout("5ms").await;
        let tries = AtomicU32::new(0);
        let retried = async || if tries.fetch_add(1, Ordering::Relaxed) < 2 { Err("no") } else { Ok(7) };
        let retried = wf.run("retried", retried).attempts(5).await?;
        let fails = wf.run("fails", async || Err::<u64, _>("for good")).await;
        let parts = |result: Result<u64, CallError>| {
            let error = result.unwrap_err();
            (error.class.name(), error.message.contains("panicked: x at"), error.attempts)
        };
        Ok(json!([parts(panics), parts(late), retried, parts(fails)]))
    }
    let host = Arc::new(TokioHost::new());
    let mut steps = world(wf(code));
    steps.host = host.clone();
    let state = loop {
        match steps.go() {
            State::Waiting => host.wait(),
            other => break other,
        }
    };
    assert_eq!(value(state), json!([["failed", true, 2], ["timed_out", false, 1], 7, ["failed", false, 1]]));
}

/// A step that was polled once, held while others went on, and awaited then.
#[test]
fn a_held_step_begins_when_it_is_awaited() {
    let workflow = wf(|wf| async move {
        let mut held = Box::pin(wf.run_ok("held", async || 1));
        let _ = futures::poll!(&mut held);
        wf.call(B(1)).await?;
        Ok(json!(held.await?))
    });
    assert_eq!(value(world(workflow).go()), json!(1));
}

#[test]
fn a_step_begins_after_the_commit_of_what_led_to_it() {
    let begun = Arc::new(AtomicU32::new(0));
    let count = begun.clone();
    let workflow = wf(move |wf| {
        let count = count.clone();
        async move {
            wf.call(A(1)).await?;
            let step = async || count.fetch_add(1, Ordering::Relaxed);
            Ok(json!(wf.run_ok("counts", step).await?))
        }
    });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let turn = run.turn(Vec::new(), at(0)).unwrap();
    let windlass_durable::Start::Job { job, .. } = turn.starts[0] else { panic!() };
    let item = ItemBody::JobEnded { job, outcome: Ok(body(&1)) };
    let turn = run.turn(vec![Item { number: Some(1), at: at(1), body: item }], at(1)).unwrap();
    assert_eq!((turn.records.len(), begun.load(Ordering::Relaxed)), (1, 0));
    assert!(run.has_steps() && run.steps_woken());
    let turn = run.poll_steps(at(2)).unwrap();
    assert_eq!((turn.records.len(), begun.load(Ordering::Relaxed)), (2, 1));
}

/// An ending commit that is refused because a message came: the turn is made anew with the message in front.
#[test]
fn a_refused_end_does_not_repeat_its_steps() {
    let begun = Arc::new(AtomicU32::new(0));
    let count = begun.clone();
    let workflow = wf(move |wf| {
        let count = count.clone();
        async move {
            let step = async || 1 + count.fetch_add(1, Ordering::Relaxed);
            let one = wf.run_ok("one", step).await?;
            let mut got = 0;
            while wf.try_recv::<Ping>().is_some() {
                got += 1;
            }
            Ok(json!([one, got]))
        }
    });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let mut history = run.turn(Vec::new(), at(0)).unwrap().records;
    let turn = run.poll_steps(at(5)).unwrap();
    assert!(turn.ended.is_some());
    // Refused.
    let mut items = vec![Item {
        number: Some(9),
        at: at(4),
        body: ItemBody::Signal { name: "ping".into(), body: body(&1), id: String::new() },
    }];
    items.extend(turn.chunks(500).next().unwrap().step_ends());
    let mut run = Run::open(opening(&workflow, history.clone())).unwrap();
    let turn = run.turn(items, at(5)).unwrap();
    assert_eq!(turn.takes, [(1, 9)]);
    history.extend(turn.records);
    let Some(Record { entry: Entry::End { end, .. }, .. }) = history.last() else { panic!() };
    assert_eq!(*end, windlass_durable::End::Ok(body(&json!([1, 1]))));
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[test]
fn the_result_of_a_step_has_a_limit() {
    let workflow = wf(|wf| async move {
        let error = wf.run_ok("large", async || "x".repeat(200)).await.unwrap_err();
        assert_eq!((error.class, error.attempts), (ErrorClass::TooLarge, 1));
        Ok(json!(0))
    });
    let mut large = world(workflow);
    large.limits.result_bytes_max = 100;
    value(large.go());
}

type Slot = Arc<Mutex<Option<Waker>>>;

/// Never ends, and lets the test wake it.
async fn until_woken(slot: Slot) -> u64 {
    std::future::poll_fn::<u64, _>(|cx| {
        *slot.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}

async fn arm(wf: Wf, i: u64, slot: Slot) -> u64 {
    let outcome = match i {
        1 => wf.run_ok("waits", || until_woken(slot.clone())).await,
        _ => wf.call(A(i)).await,
    };
    if outcome.is_err() {
        let _ = wf.shield(wf.call(B(i))).await;
    }
    i
}

/// A step in the second of three arms is woken from outside between two turns; then all arms are cancelled at once, and each
/// makes a call. In a replay nobody wakes the step: the calls must come in the same order.
fn woken_then_cancelled(workflow: &Arc<dyn AnyWorkflow>, slot: &Slot) -> Result<(), Stuck> {
    let mut run = Run::open(opening(workflow, Vec::new())).unwrap();
    let mut history = run.turn(Vec::new(), at(0)).unwrap().records;
    history.extend(run.poll_steps(at(0)).unwrap().records);
    let waker = slot.lock().unwrap().clone().expect("the step has begun");
    std::thread::Builder::new().spawn(move || waker.wake()).unwrap().join().unwrap();
    let cancel = Item { number: Some(1), at: at(1), body: ItemBody::CancelRequested { reason: "x".into() } };
    history.extend(run.turn(vec![cancel], at(1)).unwrap().records);
    let is_undo = |record: &&Record| matches!(&record.entry, Entry::Command(command) if command.key.name == "B");
    assert_eq!(history.iter().filter(is_undo).count(), 3);
    drop(run);
    Run::open(opening(workflow, history)).map(drop)
}

fn with_slot<F, Fut>(code: F) -> (Arc<dyn AnyWorkflow>, Slot)
where
    F: Fn(Wf, Slot) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let slot = Slot::default();
    let outer = slot.clone();
    let workflow = wf(move |wf| {
        let code = code(wf, slot.clone());
        async move {
            code.await;
            Ok(json!(0))
        }
    });
    (workflow, outer)
}

#[test]
fn wakes_of_steps_do_not_reorder_anything() {
    let join_all = with_slot(|wf, slot| async move {
        join_all((0..3).map(|i| arm(wf.clone(), i, slot.clone()))).await;
    });
    let unordered = with_slot(|wf, slot| async move {
        let all: FuturesUnordered<_> = (0..3).map(|i| arm(wf.clone(), i, slot.clone())).collect();
        all.collect::<Vec<_>>().await;
    });
    let set = with_slot(|wf, slot| async move {
        let mut set = JoinSet::new();
        (0..3).for_each(|i| set.spawn(arm(wf.clone(), i, slot.clone())));
        while set.join_next().await.is_some() {}
    });
    let ours = with_slot(|wf, slot| async move {
        join!(arm(wf.clone(), 0, slot.clone()), arm(wf.clone(), 1, slot.clone()), arm(wf.clone(), 2, slot.clone()));
    });
    let futures = with_slot(|wf, slot| async move {
        let arms = |i| arm(wf.clone(), i, slot.clone());
        futures::join!(arms(0), arms(1), arms(2));
    });
    for (name, (workflow, slot)) in
        [("join_all", join_all), ("unordered", unordered), ("set", set), ("join!", ours), ("futures::join!", futures)]
    {
        woken_then_cancelled(&workflow, &slot).unwrap_or_else(|stuck| panic!("{name}: {stuck}"));
    }
}

/// `tokio::join!` polls another arm first each time: the number of polls, which a replay does not have, decides. Only with
/// a step that is woken: without one, all polls follow from the history.
#[test]
fn a_rotating_join_is_found_or_replays() {
    let (workflow, slot) = with_slot(|wf, slot| async move {
        let arms = |i| arm(wf.clone(), i, slot.clone());
        tokio::join!(arms(0), arms(1), arms(2));
    });
    if let Err(stuck) = woken_then_cancelled(&workflow, &slot) {
        assert!(matches!(stuck, Stuck::Mismatch { .. }), "{stuck}");
    }
}

#[test]
fn an_error_of_a_step_with_an_own_key_is_recorded_under_it() {
    let workflow = wf(|wf| async move {
        let _ = wf.run("s", async || Err::<u64, _>("no")).key("mine").await;
        Ok(json!(wf.run_ok("s", async || 1).await?))
    });
    let mut keyed = world(workflow);
    value(keyed.go());
    assert!(keyed.print().contains(r#""n":"s","u":"mine""#), "{}", keyed.print());
}
