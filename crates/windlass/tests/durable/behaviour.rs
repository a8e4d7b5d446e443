//! What workflows can do, through real engines and workers on the memory store.

use super::{Charge, support, worker};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::core::store::{RunState, Store};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{CallError, Error, PromiseToken, ReusePolicy, Signal, Wf, select, workflow};
use windlass::{Client, Job};

#[derive(Debug, Serialize, Deserialize, Signal)]
struct Approve {
    by: String,
}

fn store() -> (Arc<dyn Store>, Client) {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    (store, client)
}

/// Signals that a local step has begun, and lets it end.
static STEP_BEGUN: Semaphore = Semaphore::const_new(0);
static STEP_ENDS: Semaphore = Semaphore::const_new(0);

#[workflow]
async fn approval(wf: Wf, _: ()) -> Result<String, Error> {
    let first = wf.recv::<Approve>().await?;
    let slip = wf
        .run("slip", || async {
            STEP_BEGUN.add_permits(1);
            let permit = STEP_ENDS.acquire().await.map_err(|error| error.to_string())?;
            permit.forget();
            Ok::<_, String>("slip".to_owned())
        })
        .await?;
    let second = wf.try_recv::<Approve>().map_or("nobody".to_owned(), |approve| approve.by);
    Ok(format!("{} {slip} {second}", first.by))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_arrives_while_a_local_step_runs() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(approval));
    let run = client.start(approval, ()).await.unwrap();
    run.signal(Approve { by: "ann".into() }).await.unwrap();
    STEP_BEGUN.acquire().await.unwrap().forget();
    run.signal(Approve { by: "bob".into() }).await.unwrap();
    // The step ends when the renewal of the lease has handed the signal out.
    while run.describe().await.unwrap().unread_messages > 0 {
        // sleeps because: the renewal comes within a second of real time.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    STEP_ENDS.add_permits(1);
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap().unwrap(), "ann slip bob");
    running.drain().await;
}

#[workflow]
async fn waits(wf: Wf, token_to: u64) -> Result<String, Error> {
    let promise = wf.promise::<String>();
    let token = promise.token().to_string();
    wf.call_named("note", serde_json::json!({ "token": token, "to": token_to })).await?;
    Ok(promise.await?)
}

#[derive(Serialize, Deserialize)]
struct Note {
    token: String,
    to: u64,
}

impl Job for Note {
    const KIND: &'static str = "note";
    type Output = ();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promise_is_resolved_from_outside() {
    let (store, client) = store();
    let (sender, mut tokens) = tokio::sync::mpsc::unbounded_channel();
    let note = move |note: Note| {
        let sender = sender.clone();
        async move { sender.send(note.token).map_err(|error| windlass::JobError::new(error.to_string())) }
    };
    let running = support::Running::start(worker(&store).queue("default").handle(note).workflow(waits));
    let run = client.start(waits, 1).await.unwrap();
    let token: PromiseToken = tokens.recv().await.unwrap().parse().unwrap();
    assert_eq!(token.run, run.id());
    client.resolve(&token, &"first").await.unwrap();
    let _ = client.resolve(&token, &"second").await;
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap().unwrap(), "first");
    running.drain().await;
}

#[workflow]
async fn child(wf: Wf, order: u64) -> Result<u64, Error> {
    if order == 13 {
        return Err("an unlucky order".into());
    }
    Ok(wf.call(Charge { order }).await? + 1)
}

#[workflow]
async fn parent(wf: Wf, orders: Vec<u64>) -> Result<Vec<String>, Error> {
    let mut ends = Vec::new();
    for order in orders {
        let end = wf.child(child, order).await;
        ends.push(match end {
            Ok(value) => value.to_string(),
            Err(CallError { message, .. }) => message,
        });
    }
    Ok(ends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_results_and_errors_of_children_reach_their_parent() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(parent).workflow(child));
    let run = client.start(parent, vec![1, 13, 2]).await.unwrap();
    let result = run.result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    assert_eq!(result, ["11", "an unlucky order", "21"]);
    running.drain().await;
}

#[workflow]
async fn counts(wf: Wf, left: u32) -> Result<u32, Error> {
    wf.run_ok("tick", async || ()).await?;
    if left > 0 {
        wf.continue_as_new(counts, left - 1).await;
    }
    Ok(left)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_continues_as_a_new_segment() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(counts));
    let run = client.start(counts, 3).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(0));
    let described = run.describe().await.unwrap();
    assert!(described.segment_from > 0, "{described:?}");
    running.drain().await;
}

#[workflow]
async fn late(wf: Wf, _: ()) -> Result<(), Error> {
    select! {
        ended = wf.recv::<Approve>() => { ended?; },
        slept = wf.sleep("30d") => { slept?; },
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_cancelled_terminated_timed_out_and_started_again() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(late));
    let cancelled = client.start(late, ()).id("one").await.unwrap();
    cancelled.cancel("no reason").await.unwrap();
    let failure = cancelled.result(HANG_GUARD).await.unwrap().unwrap().unwrap_err();
    assert_eq!(failure.state, RunState::Cancelled, "{failure}");

    let terminated = client.start(late, ()).id("two").await.unwrap();
    terminated.terminate("stop it").await.unwrap();
    let failure = terminated.result(HANG_GUARD).await.unwrap().unwrap().unwrap_err();
    assert_eq!(failure.state, RunState::Terminated, "{failure}");

    let timed_out = client.start(late, ()).id("three").timeout("50ms").await.unwrap();
    let failure = timed_out.result(HANG_GUARD).await.unwrap().unwrap().unwrap_err();
    assert_eq!(failure.state, RunState::TimedOut, "{failure}");

    let refused = client.start(late, ()).id("one").await.unwrap_err();
    assert!(refused.to_string().contains("one") || matches!(refused, windlass::Error::RunTaken { .. }), "{refused}");
    let again = client.start(late, ()).id("one").reuse(ReusePolicy::IfEnded).await.unwrap();
    again.signal(Approve { by: "ann".into() }).await.unwrap();
    assert_eq!(again.result(HANG_GUARD).await.unwrap().unwrap(), Ok(()));
    running.drain().await;
}

/// How often the build of the workflow was "deployed": the code below differs by it.
static DEPLOY: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn deployed(wf: Wf, _: ()) -> Result<u64, Error> {
    if DEPLOY.load(Ordering::SeqCst) == 1 {
        wf.sleep("1h").await?;
    }
    let paid = wf.call(Charge { order: 4 }).await?;
    wf.recv::<Approve>().await?;
    Ok(paid)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_deploy_makes_a_run_stuck_and_a_fixed_one_continues_it() {
    let (store, client) = store();
    let first = support::Running::start(worker(&store).workflow(deployed).build_id("good"));
    let run = client.start(deployed, ()).await.unwrap();
    until(&run, |run| run.summary.contains("recv")).await;
    first.drain().await;

    DEPLOY.store(1, Ordering::SeqCst);
    let bad = support::Running::start(worker(&store).workflow(deployed).build_id("bad"));
    run.signal(Approve { by: "ann".into() }).await.unwrap();
    let stuck = until(&run, |run| run.stuck.is_some()).await.stuck.unwrap();
    for part in ["history:", "code:", "call `charge`", "sleep", "good", "bad", "behaviour.rs:"] {
        assert!(stuck.contains(part), "{part} is missing in: {stuck}");
    }
    bad.drain().await;

    DEPLOY.store(0, Ordering::SeqCst);
    let fixed = support::Running::start(worker(&store).workflow(deployed).build_id("fixed"));
    run.resume().await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(40));
    fixed.drain().await;
}

async fn until<W>(
    run: &windlass::durable::RunHandle<W>,
    is_so: impl Fn(&windlass::core::store::Run) -> bool,
) -> windlass::core::store::Run {
    let look = async {
        loop {
            let described = run.describe().await.unwrap();
            if is_so(&described) {
                return described;
            }
            // sleeps because: the store has no way to wait for the summary of a run.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, look).await.expect("the run gets there")
}
