//! Wrong input from outside: a typed error or a run that is stuck, and nothing lost.

use super::stores::{Opened, memory, on_every_store, until};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use windlass::Error;
use windlass::core::job::Due;
use windlass::core::name::{Kind, WorkerId};
use windlass::core::store::{RUN_PART_BYTES_MAX, RunClaim, RunCommit, RunState, RunStep, UNREAD_MESSAGES_MAX};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{self, PromiseToken, RunHandle, Signal, UntypedStart, Wf, workflow};

on_every_store!(
    a_wrong_input_makes_a_run_stuck,
    a_wrong_signal_makes_a_run_stuck_and_is_kept,
    a_run_of_an_unknown_workflow_waits,
    slow_a_signal_too_many_is_refused,
    names_with_control_characters_are_refused,
    of_two_starts_of_one_id_one_is_refused,
    a_promise_that_is_resolved_twice_keeps_its_first_value,
    a_stuck_run_is_terminated,
    a_damaged_history_makes_its_run_stuck_and_no_other,
    the_largest_input_is_accepted_and_a_larger_one_refused,
);

#[derive(Serialize, Deserialize, Signal)]
struct Number(u32);

#[workflow]
async fn adds(wf: Wf, first: u32) -> Result<u32, durable::Error> {
    Ok(first + wf.recv::<Number>().await?.0)
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

async fn a_wrong_input_makes_a_run_stuck(on: Opened) {
    let running = on.start(on.worker("a").workflow(adds));
    let run = on.client.start_untyped(UntypedStart::new("adds", raw("\"seven\""))).await.unwrap();
    let stuck = on.stuck(&run).await;
    assert!(stuck.contains("the input does not decode"), "{stuck}");
    assert_eq!(on.view(&run).await.state, RunState::Running);
    running.drain().await;
}

async fn a_wrong_signal_makes_a_run_stuck_and_is_kept(on: Opened) {
    let running = on.start(on.worker("a").workflow(adds));
    let run = on.client.start(adds, 1).await.unwrap();
    on.summary(&run, "recv").await;
    run.signal_named(Number::NAME, "seven").await.unwrap();
    let stuck = on.stuck(&run).await;
    assert!(stuck.contains("message 0 (record 1) does not decode"), "{stuck}");
    run.signal(Number(2)).await.unwrap();
    assert_eq!(on.view(&run).await.unread_messages, 2, "both are there");
    running.drain().await;
}

async fn a_run_of_an_unknown_workflow_waits(on: Opened) {
    let run = on.client.start_untyped(UntypedStart::new("nobody@3", raw("{}"))).await.unwrap();
    let running = on.start(on.worker("a").workflow(adds));
    let other = on.client.start(adds, 1).await.unwrap();
    other.signal(Number(2)).await.unwrap();
    assert_eq!(other.result(HANG_GUARD).await.unwrap().unwrap(), Ok(3));
    let seen = on.view(&run).await;
    assert_eq!((seen.state, seen.stuck, seen.history_len), (RunState::Running, None, 0));
    assert_eq!(seen.summary, "has not started: it waits for a worker that has the workflow `nobody@3`");
    running.drain().await;
}

async fn slow_a_signal_too_many_is_refused(on: Opened) {
    let run = on.client.start(adds, 1).await.unwrap();
    let signal = |n: u32| {
        let run = run.clone();
        async move { run.signal(Number(n)).await }
    };
    for first in (0..u32::try_from(UNREAD_MESSAGES_MAX).unwrap()).step_by(100) {
        for sent in futures::future::join_all((first..first + 100).map(signal)).await {
            sent.unwrap();
        }
    }
    let refused = signal(0).await.unwrap_err();
    assert!(matches!(refused, Error::Full { .. }) && refused.to_string().contains("10000 unread"), "{refused}");
    assert_eq!(on.view(&run).await.unread_messages, UNREAD_MESSAGES_MAX);
    let running = on.start(on.worker("a").workflow(adds));
    run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    running.drain().await;
}

async fn names_with_control_characters_are_refused(on: Opened) {
    let run = on.client.start(adds, 1).await.unwrap();
    for name in ["a\nb", "a\u{0}", "", "\u{7f}"] {
        let started = on.client.start(adds, 1).id(name).await.unwrap_err();
        let sent = run.signal_named(name, &1).await.unwrap_err();
        let untyped = on.client.start_untyped(UntypedStart::new(name, raw("1"))).await.unwrap_err();
        let labelled = on.client.start(adds, 1).label(name, "x").await.unwrap_err();
        let once = run.signal_once(name, Number(1)).await.unwrap_err();
        for error in [started, sent, untyped, labelled, once] {
            assert!(matches!(error, Error::Invalid { .. }), "{name:?}: {error:?}");
        }
    }
    assert_eq!(on.runs().await.len(), 1);
    assert_eq!(on.view(&run).await.unread_messages, 0);
}

async fn of_two_starts_of_one_id_one_is_refused(on: Opened) {
    for n in 0..10 {
        let start = || async { on.client.start(adds, n).id(format!("order-{n}")).await };
        let (one, other) = tokio::join!(start(), start());
        let refused = [one, other].into_iter().filter_map(Result::err).collect::<Vec<_>>();
        assert!(matches!(refused[..], [Error::RunTaken { .. }]), "{refused:?}");
    }
    assert_eq!(on.runs().await.len(), 10);
}

#[workflow]
async fn promised(wf: Wf, _: ()) -> Result<u32, durable::Error> {
    let promise = wf.promise::<u32>();
    wf.run_ok("token", async || *TOKEN.lock() = Some(promise.token())).await?;
    wf.recv::<Number>().await?;
    Ok(promise.await?)
}

static TOKEN: parking_lot::Mutex<Option<PromiseToken>> = parking_lot::Mutex::new(None);
/// One test at a time reads the token.
static PROMISED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn a_promise_that_is_resolved_twice_keeps_its_first_value(on: Opened) {
    let _alone = PROMISED.lock().await;
    *TOKEN.lock() = None;
    let running = on.start(on.worker("a").workflow(promised));
    let run = on.client.start(promised, ()).await.unwrap();
    let token = until("the token", || async { *TOKEN.lock() }).await;
    on.client.resolve(&token, &7).await.unwrap();
    on.client.resolve(&token, &8).await.unwrap();
    run.signal(Number(0)).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(7));
    let late = on.client.resolve(&token, &9).await.unwrap_err();
    assert!(matches!(late, Error::RunRefused { .. }), "{late:?}");
    running.drain().await;
}

async fn a_stuck_run_is_terminated(on: Opened) {
    let running = on.start(on.worker("a").workflow(adds));
    let run: RunHandle<()> = on.client.start_untyped(UntypedStart::new("adds", raw("[]"))).await.unwrap();
    on.stuck(&run).await;
    run.terminate("for the test").await.unwrap();
    let failure = run.result_json(HANG_GUARD).await.unwrap().expect("it has ended").unwrap_err();
    assert_eq!(failure.state, RunState::Terminated);
    running.drain().await;
}

async fn a_damaged_history_makes_its_run_stuck_and_no_other(on: Opened) {
    let run = on.client.start(adds, 1).await.unwrap();
    let kinds = vec![Kind::new("adds@1").unwrap()];
    let claim = RunClaim { run: Some(run.id()), ..RunClaim::new(WorkerId::new("damages").unwrap(), kinds) };
    let held = on.store.claim_runs(claim).await.unwrap().runs.remove(0);
    let damaged = RunStep { history: vec![vec![0xff, 0xfe, b'{'].into()], wake: Some(Due::Now), ..RunStep::nothing() };
    on.store.commit_runs(vec![RunCommit::new(held.lease, 0, damaged)]).await.unwrap().remove(0).unwrap();
    let running = on.start(on.worker("a").workflow(adds));
    let stuck = on.stuck(&run).await;
    assert!(stuck.contains("entry 0 of the history does not decode"), "{stuck}");
    let other = on.client.start(adds, 1).await.unwrap();
    other.signal(Number(2)).await.unwrap();
    assert_eq!(other.result(HANG_GUARD).await.unwrap().unwrap(), Ok(3));
    assert_eq!(on.view(&run).await.history_len, 1, "it is kept as it is");
    running.drain().await;
}

#[workflow]
async fn measures(_wf: Wf, text: String) -> Result<usize, durable::Error> {
    Ok(text.len())
}

async fn the_largest_input_is_accepted_and_a_larger_one_refused(on: Opened) {
    let running = on.start(on.worker("a").workflow(measures));
    let len = RUN_PART_BYTES_MAX - "\"\"".len();
    let run = on.client.start(measures, "x".repeat(len)).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(len));
    let refused = on.client.start(measures, "x".repeat(len + 1)).await.unwrap_err();
    assert!(matches!(refused, Error::Limit { .. } | Error::Invalid { .. }), "{refused:?}");
    running.drain().await;
}

/// A message to a run that is not there.
#[tokio::test]
async fn a_signal_to_a_missing_run_is_an_error() {
    let on = memory();
    let sent = on.client.run(adds, "missing").signal(Number(1)).await.unwrap_err();
    assert!(matches!(sent, Error::NotFound { .. }), "{sent:?}");
    let waited = on.client.run(adds, "missing").result(Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(waited, Error::NotFound { .. }), "{waited:?}");
}
