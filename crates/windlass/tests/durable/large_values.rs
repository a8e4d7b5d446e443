//! Values up to the limits and above them, on every store.

use super::support;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::core::store::Store;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{CallError, Error, ErrorClass, Signal, Wf, join_all, workflow};
use windlass::{Client, Job, JobError, Worker, WorkerBuilder};

/// The largest result, and the largest input with its quotes.
const RESULT_BYTES: usize = (1 << 20) - 2;
const INPUT_BYTES: usize = (4 << 20) - 2;

/// Returns a text of this length.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "large", output = String)]
struct Fill {
    bytes: usize,
}

async fn fill(job: Fill) -> Result<String, JobError> {
    Ok("x".repeat(job.bytes))
}

/// Returns the length of a text.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "large", output = usize)]
struct Measure(String);

async fn measure(job: Measure) -> Result<usize, JobError> {
    Ok(job.0.len())
}

#[derive(Debug, Serialize, Deserialize, Signal)]
struct Send(String);

#[workflow]
async fn large(wf: Wf, text: String) -> Result<Vec<usize>, Error> {
    let sent = wf.recv::<Send>().await?.0;
    let measured = wf.call(Measure("y".repeat(INPUT_BYTES))).await?;
    let filled = wf.call(Fill { bytes: RESULT_BYTES }).await?;
    let class = |ended: Result<String, CallError>| match ended {
        Err(CallError { class: ErrorClass::TooLarge, attempts: 0 | 1, detail: None, .. }) => 1,
        _ => 0,
    };
    let result = class(wf.call(Fill { bytes: RESULT_BYTES + 1 }).await);
    let input = class(wf.call(Measure("y".repeat(INPUT_BYTES + 1))).await.map(|len| len.to_string()));
    let step = class(wf.run_ok("step", async || "z".repeat(RESULT_BYTES + 1)).await);
    Ok(vec![text.len(), sent.len(), measured, filled.len(), result, input, step])
}

fn worker(store: &Arc<dyn Store>) -> WorkerBuilder {
    let worker = Worker::builder(Arc::clone(store)).queue("large").handle(fill).handle(measure);
    worker.workflow(large).workflow(fills)
}

async fn values_up_to_the_limits(store: Arc<dyn Store>) {
    let client = Client::new(Arc::clone(&store));
    let running = support::Running::start(worker(&store));
    let run = client.start(large, "i".repeat(INPUT_BYTES)).await.unwrap();
    let refused = client.start(large, "i".repeat(INPUT_BYTES + 1)).await.unwrap_err();
    assert!(matches!(refused, windlass::Error::Limit { .. }), "{refused}");
    // With what stands around it.
    let text = "s".repeat((4 << 20) - 100);
    run.signal(Send(text.clone())).await.unwrap();
    let refused = run.signal(Send(format!("{text}{text}"))).await.unwrap_err();
    assert!(matches!(refused, windlass::Error::Limit { .. }), "{refused}");
    let ended = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!(ended, [INPUT_BYTES, text.len(), INPUT_BYTES, RESULT_BYTES, 1, 1, 1]);
    running.drain().await;
}

/// Many large results, and then a signal.
#[workflow]
async fn fills(wf: Wf, count: usize) -> Result<usize, Error> {
    let mut bytes = 0;
    for filled in join_all((0..count).map(|_| wf.call(Fill { bytes: RESULT_BYTES }))).await {
        bytes += filled?.len();
    }
    Ok(bytes + wf.recv::<Send>().await?.0.len())
}

/// The second worker has to read the whole history.
async fn a_hundred_large_results_replay(store: Arc<dyn Store>) {
    let client = Client::new(Arc::clone(&store));
    let first = support::Running::start(worker(&store));
    let run = client.start(fills, 100).await.unwrap();
    let waits = async {
        while !run.describe().await.unwrap().summary.contains("recv") {
            // sleeps because: the store has no way to wait for the summary of a run.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, waits).await.expect("all calls end");
    first.drain().await;
    let second = support::Running::start(worker(&store));
    run.signal(Send("end".to_owned())).await.unwrap();
    let ended = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!(ended, 100 * RESULT_BYTES + 3);
    assert_eq!(run.describe().await.unwrap().stall_count, 0);
    second.drain().await;
}

fn sqlite(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_values_up_to_the_limits_memory() {
    values_up_to_the_limits(windlass::open("memory://").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_values_up_to_the_limits_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    values_up_to_the_limits(sqlite(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_values_up_to_the_limits_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    values_up_to_the_limits(windlass::open(&server.url()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_hundred_large_results_replay_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    a_hundred_large_results_replay(sqlite(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_hundred_large_results_replay_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    a_hundred_large_results_replay(windlass::open(&server.url()).unwrap()).await;
}
