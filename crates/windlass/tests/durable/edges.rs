//! Ends, deadlines and terminations that come at unusual moments.

use super::{support, worker};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::Client;
use windlass::core::job::State;
use windlass::core::store::{Filter, ListOrder, ListRequest, RunState, Store};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, ReusePolicy, RunHandle, Signal, Wf, select, workflow};

#[derive(Debug, Serialize, Deserialize, Signal)]
struct Stop {}

/// A call of a job that nobody handles, until the signal comes.
#[workflow]
async fn stoppable(wf: Wf, _: ()) -> Result<String, Error> {
    let ended = select! {
        paid = wf.call_named("nobody-handles-this", serde_json::Value::Null) => paid?.to_string(),
        stop = wf.recv::<Stop>() => { stop?; "stopped".to_owned() },
    };
    Ok(ended)
}

fn store() -> (Arc<dyn Store>, Client) {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    (store, client)
}

async fn states(store: &Arc<dyn Store>) -> Vec<State> {
    let page = store
        .list(ListRequest { filter: Filter::default(), order: ListOrder::default(), cursor: None, limit: 100 })
        .await
        .unwrap();
    page.jobs.into_iter().map(|job| job.state).collect()
}

async fn waits_for<W>(run: &RunHandle<W>, text: &str) {
    let look = async {
        while !run.describe().await.unwrap().summary.contains(text) {
            // sleeps because: the store has no way to wait for the summary of a run.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, look).await.expect("the run gets there");
}

/// The first turn has the start of the call, the signal, and the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_starts_a_job_and_ends_the_run_is_committed() {
    let (store, client) = store();
    let run = client.start(stoppable, ()).await.unwrap();
    run.signal(Stop {}).await.unwrap();
    let cancelled = client.start(stoppable, ()).await.unwrap();
    cancelled.cancel("before it started").await.unwrap();
    let running = support::Running::start(worker(&store).workflow(stoppable));
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok("stopped".to_owned()));
    let failure = cancelled.result(HANG_GUARD).await.unwrap().unwrap().unwrap_err();
    assert_eq!(failure.state, RunState::Cancelled);
    assert!(states(&store).await.iter().all(|state| *state == State::Cancelled));
    running.drain().await;
}

#[workflow]
async fn calls_nobody(wf: Wf, _: ()) -> Result<(), Error> {
    wf.call_named("nobody-handles-this", serde_json::Value::Null).await?;
    Ok(())
}

#[workflow]
async fn waits_for_child(wf: Wf, _: ()) -> Result<(), Error> {
    wf.child(calls_nobody, ()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_run_cancels_its_jobs_and_children() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(calls_nobody).workflow(waits_for_child));
    let run = client.start(calls_nobody, ()).await.unwrap();
    let parent = client.start(waits_for_child, ()).await.unwrap();
    waits_for(&run, "nobody").await;
    waits_for(&parent, "child").await;
    let look = async {
        while states(&store).await.len() < 2 {
            // sleeps because: the child makes its job when an engine has claimed it.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        run.terminate("for the test").await.unwrap();
        parent.terminate("for the test").await.unwrap();
        while states(&store).await.iter().any(|state| *state != State::Cancelled) {
            // sleeps because: an engine cleans up when it claims the run.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, look).await.expect("the jobs are cancelled");
    running.drain().await;
}

#[workflow]
async fn sleeps(wf: Wf, _: ()) -> Result<u64, Error> {
    let begun = wf.now();
    wf.sleep("300ms").await?;
    Ok(wf.now().ms_since(begun))
}

/// The times of a run count from its start, not from its creation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_run_and_one_that_starts_again_have_their_own_times() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(sleeps));
    let delayed = client.start(sleeps, ()).delay("400ms").timeout("399ms").await.unwrap();
    assert!(delayed.result(HANG_GUARD).await.unwrap().unwrap().unwrap() >= 300);
    let first = client.start(sleeps, ()).id("again").await.unwrap();
    first.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    let again = client.start(sleeps, ()).id("again").reuse(ReusePolicy::IfEnded).timeout("10m").await.unwrap();
    assert!(again.result(HANG_GUARD).await.unwrap().unwrap().unwrap() >= 300);
    let created = again.describe().await.unwrap().created_at;
    assert!(store.now().await.unwrap().ms_since(created) >= 600, "the second run slept, too");
    running.drain().await;
}

#[workflow]
async fn never_rests(wf: Wf, _: ()) -> Result<String, Error> {
    let step = wf.run_ok("busy", async || {
        for _ in 0..u64::MAX {
            tokio::task::yield_now().await;
        }
    });
    Ok(select! {
        ended = step => { ended?; "step".to_owned() },
        slept = wf.sleep("50ms") => { slept?; "timer".to_owned() },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_wakes_itself_keeps_no_timer_from_firing() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(never_rests));
    let run = client.start(never_rests, ()).await.unwrap();
    let result = run.result_json(HANG_GUARD).await.unwrap().unwrap().unwrap();
    assert_eq!(result.get(), "\"timer\"");
    running.drain().await;
}

#[workflow]
async fn resists(wf: Wf, _: ()) -> Result<(), Error> {
    // The deadline cancels the first call; the code goes on in spite of it.
    let _ = wf.call_named("nobody-handles-this", serde_json::Value::Null).await;
    wf.shield(async { wf.recv::<Stop>().await }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_is_recorded_once() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(resists));
    let run = client.start(resists, ()).timeout("50ms").await.unwrap();
    waits_for(&run, "recv").await;
    run.signal_named("unknown", &1).await.unwrap();
    run.signal(Stop {}).await.unwrap();
    run.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    let history = super::kills::history(&store, run.id()).await;
    let deadlines = history.iter().filter(|entry| entry.contains("\"r\":\"deadline\"")).count();
    assert_eq!(deadlines, 1, "{history:#?}");
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_another_workflow_names_both() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(sleeps));
    client.start(sleeps, ()).id("one").await.unwrap().result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    let wrong = client.run(stoppable, "one").result(HANG_GUARD).await.unwrap_err();
    assert!(matches!(wrong, windlass::Error::Invalid { .. }), "{wrong}");
    let text = wrong.to_string();
    assert!(text.contains("`stoppable@1`") && text.contains("`sleeps@1`"), "{text}");
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_not_stuck_is_not_resumed() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(sleeps));
    let run = client.start(sleeps, ()).await.unwrap();
    let refused = run.resume().await.unwrap_err();
    assert!(refused.to_string().contains("not stuck"), "{refused}");
    run.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    run.resume().await.unwrap_err();
    assert_eq!(run.describe().await.unwrap().state, RunState::Succeeded);
    running.drain().await;
}
