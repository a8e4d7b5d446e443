//! `TestBed` with workers that execute durable workflows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use windlass::core::store::RunState;
use windlass::durable::{Error, RunHandle, Signal, Wf, select, workflow};
use windlass::testing::{Faults, TestBed};
use windlass::{Client, Ctx, Job, JobError, Worker, WorkerBuilder};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = u64, attempts = 3)]
struct Charge {
    order: u64,
}

#[derive(Serialize, Deserialize, Signal)]
struct Approve {
    by: String,
}

async fn charge(job: Charge, ctx: Ctx) -> Result<u64, JobError> {
    if ctx.attempt() == 1 { Err(JobError::new("busy").retry_after(HOUR)) } else { Ok(job.order) }
}

#[workflow]
async fn order(wf: Wf, number: u64) -> Result<String, Error> {
    let paid = wf.call(Charge { order: number }).await?;
    wf.sleep("2d").await?;
    select! {
        approve = wf.recv::<Approve>() => Ok(format!("{paid} by {}", approve?.by)),
        late = wf.sleep("3d") => { late?; Ok("late".to_owned()) }
    }
}

#[workflow]
async fn approval(wf: Wf, _: ()) -> Result<String, Error> {
    Ok(wf.recv::<Approve>().await?.by)
}

fn worker(test: &TestBed) -> WorkerBuilder {
    Worker::builder(test.store()).queue("shop").handle(charge).workflow(order).workflow(approval)
}

async fn state<W>(run: &RunHandle<W>) -> RunState {
    run.describe().await.unwrap().state
}

#[tokio::test]
async fn idle_is_when_no_run_waits_for_time_or_for_a_job() {
    let test = TestBed::new();
    let run = test.client().start(order, 7).await.unwrap();
    let done = test.run_until_idle(worker(&test)).await;
    assert_eq!(run.result(Duration::ZERO).await.unwrap(), Some(Ok("late".to_owned())));
    assert_eq!((done.attempts, done.retried, done.succeeded), (2, 1, 1));
    assert!(done.elapsed >= HOUR * (1 + 5 * 24) && done.elapsed < HOUR * (2 + 5 * 24), "{:?}", done.elapsed);
    assert!(done.left_runs.is_empty(), "{:?}", done.left_runs);
}

#[tokio::test]
async fn a_run_that_waits_for_a_signal_is_left_and_goes_on_later() {
    let test = TestBed::new();
    let run = test.client().start(approval, ()).await.unwrap();
    let done = test.run_until_idle(worker(&test)).await;
    assert_eq!((done.left_runs.len(), done.left_runs[0].id), (1, run.id()));
    assert!(done.left_runs[0].summary.contains("`approve`"), "{:?}", done.left_runs);
    assert!(done.elapsed < HOUR, "{:?}", done.elapsed);

    run.signal(Approve { by: "ann".to_owned() }).await.unwrap();
    let done = test.run_until_idle(worker(&test)).await;
    assert_eq!(run.result(Duration::ZERO).await.unwrap(), Some(Ok("ann".to_owned())));
    assert!(done.left_runs.is_empty(), "{:?}", done.left_runs);
}

#[tokio::test]
async fn a_worker_runs_workflows_for_a_while() {
    let test = TestBed::new();
    let run = test.client().start(order, 7).await.unwrap();
    let done = test.run_for(worker(&test), HOUR * 24).await;
    assert_eq!((done.succeeded, done.left_runs.len()), (1, 1));
    assert_eq!(state(&run).await, RunState::Running);
    run.signal(Approve { by: "ann".to_owned() }).await.unwrap();
    test.run_until_idle(worker(&test)).await;
    assert_eq!(run.result(Duration::ZERO).await.unwrap(), Some(Ok("7 by ann".to_owned())));
}

#[tokio::test]
async fn runs_of_other_workers_are_not_waited_for() {
    let test = TestBed::new();
    let run = test.client().start(order, 7).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).queue("shop").handle(charge)).await;
    assert_eq!((done.attempts, done.left_runs.len()), (0, 1));
    let done = test.run_until_idle(worker(&test).without_runs()).await;
    assert_eq!((done.attempts, done.left_runs.len()), (0, 1));
    assert_eq!(state(&run).await, RunState::Running);
}

#[workflow]
async fn mistaken(wf: Wf, _: ()) -> Result<(), Error> {
    wf.sleep("1h").await?;
    panic!("a mistake");
}

#[workflow]
async fn stops(wf: Wf, _: ()) -> Result<(), Error> {
    let parcel = wf.call_named("no handler", serde_json::json!(null)).queue("elsewhere").await?;
    Err(parcel.to_string().into())
}

#[tokio::test]
async fn stuck_and_terminated_runs_end_the_wait() {
    let test = TestBed::new();
    let stuck = test.client().start(mistaken, ()).await.unwrap();
    let stopped = test.client().start(stops, ()).await.unwrap();
    let worker = || worker(&test).workflow(mistaken).workflow(stops);
    let done = test.run_until_idle(worker()).await;
    assert_eq!(done.left_runs.iter().map(|run| run.id).collect::<Vec<_>>(), [stuck.id(), stopped.id()]);
    assert!(done.left_runs[0].stuck.as_ref().unwrap().contains("a mistake"), "{:?}", done.left_runs);
    assert!(done.left_runs[1].summary.contains("`no handler`"), "{:?}", done.left_runs);
    assert_eq!(done.left.len(), 1, "the job that nobody handles");

    stopped.terminate("enough").await.unwrap();
    let done = test.run_until_idle(worker()).await;
    assert_eq!((done.left_runs.len(), done.left.len()), (1, 0), "{done:?}");
}

#[tokio::test]
async fn unread_messages_are_waited_for_while_the_store_is_unavailable() {
    let test = TestBed::new();
    let (signalled, stopped) =
        (test.client().start(approval, ()).await.unwrap(), test.client().start(stops, ()).await.unwrap());
    let worker = || worker(&test).workflow(stops);
    test.run_until_idle(worker()).await;

    signalled.signal(Approve { by: "ann".to_owned() }).await.unwrap();
    test.inject(Faults::new().unavailable_for(HOUR));
    let done = test.run_until_idle(worker()).await;
    assert!(done.elapsed >= HOUR, "{done:?}");
    assert_eq!(state(&signalled).await, RunState::Succeeded);

    stopped.terminate("enough").await.unwrap();
    test.inject(Faults::new().unavailable_for(HOUR));
    let done = test.run_until_idle(worker()).await;
    assert!(done.elapsed >= HOUR && done.left.is_empty(), "{done:?}");
}

#[workflow]
async fn stepwise(wf: Wf, _: ()) -> Result<u64, Error> {
    let step = wf.run("slow", || async {
        // sleeps because: it stands for a request.
        tokio::time::sleep(HOUR * 3).await;
        Ok::<_, String>(3)
    });
    Ok(step.await?)
}

#[tokio::test]
async fn a_local_step_is_waited_for() {
    let test = TestBed::new();
    let run = test.client().start(stepwise, ()).await.unwrap();
    let done = test.run_until_idle(worker(&test).workflow(stepwise)).await;
    assert_eq!(run.result(Duration::ZERO).await.unwrap(), Some(Ok(3)));
    assert!(done.elapsed >= HOUR * 3 && done.elapsed < HOUR * 4, "{:?}", done.elapsed);
}

#[workflow]
async fn for_ever(wf: Wf, _: ()) -> Result<(), Error> {
    loop {
        wf.sleep("1d").await?;
    }
}

#[tokio::test]
async fn a_run_without_an_end_fails_the_test_and_is_named() {
    let test = TestBed::new().time_limit(HOUR * 72);
    let client: &Client = test.client();
    let run = client.start(for_ever, ()).await.unwrap();
    let running = test.run_until_idle(worker(&test).workflow(for_ever));
    let panic = AssertUnwindSafe(running).catch_unwind().await.unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("not idle after ") && text.contains(&format!("for_ever@1 {}: ", run.id())), "{text}");
}
