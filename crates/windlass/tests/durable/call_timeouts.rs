//! Timeouts of calls, on every store.

use super::{Charge, support, worker};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass::core::job::State;
use windlass::core::store::{Filter, ListOrder, ListRequest, Store};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{CallError, Error, Wf, join, workflow};
use windlass::{Client, Ctx, Job, JobError};

/// A job that ends when it is cancelled.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = ())]
struct Endless {}

async fn endless(_: Endless, ctx: Ctx) -> Result<(), JobError> {
    ctx.stopped().await;
    Err(JobError::new("cancelled"))
}

/// A job that is declined.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = ())]
struct Declined {
    code: u32,
}

async fn declined(job: Declined) -> Result<(), JobError> {
    Err(JobError::fatal("declined \\ \n").detail(serde_json::json!({ "code": job.code, "why": ["\\ \n"] })))
}

#[workflow]
async fn times_out(wf: Wf, _: ()) -> Result<Vec<String>, Error> {
    let unclaimed = wf.call_named("nobody-handles-this", Value::Null).schedule_to_start("100ms");
    let endless = wf.call(Endless {}).schedule_to_close("300ms");
    let in_time = wf.call(Charge { order: 4 }).schedule_to_start("1h").schedule_to_close("1h");
    let silent = wf.call(Endless {}).heartbeat("100ms").attempts(1);
    let (unclaimed, endless, in_time, silent) = join!(unclaimed, endless, in_time, silent);
    let shown = |error: CallError| format!("{}: {}", error.class, error.message);
    let declined = wf.call(Declined { code: 5 }).await.unwrap_err();
    Ok(vec![
        shown(unclaimed.unwrap_err()),
        shown(endless.unwrap_err()),
        in_time?.to_string(),
        shown(silent.unwrap_err()),
        declined.message,
        declined.detail.unwrap_or_default().to_string(),
    ])
}

async fn calls_time_out(store: Arc<dyn Store>) {
    let running = support::Running::start(worker(&store).handle(endless).handle(declined).workflow(times_out));
    let client = Client::new(Arc::clone(&store));
    let run = client.start(times_out, ()).await.unwrap();
    let ended = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!(ended[0], "timed_out: schedule_to_start: no worker had claimed the job in time");
    assert!(ended[1].starts_with("timed_out: schedule_to_close: the call did not end by "), "{ended:?}");
    assert_eq!(ended[2..4], ["40", "timed_out: no heartbeat and no progress for 100 ms"]);
    assert_eq!(ended[4..], ["declined \\ \n", r#"{"code":5,"why":["\\ \n"]}"#]);
    let filter = Filter { state: Some(State::Cancelled), ..Filter::default() };
    let list = ListRequest { filter, order: ListOrder::default(), cursor: None, limit: 100 };
    let look = async {
        while store.list(list.clone()).await.unwrap().jobs.len() < 2 {
            // sleeps because: the worker reports the end of the cancelled job in its own time.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, look).await.expect("both jobs are cancelled");
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_time_out_memory() {
    calls_time_out(windlass::open("memory://").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_time_out_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    calls_time_out(windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_time_out_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    calls_time_out(windlass::open(&server.url()).unwrap()).await;
}
