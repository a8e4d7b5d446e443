//! Starts with signals, and runs that are started again when they fail, on every store.

use super::support;
use serde::{Deserialize, Serialize};
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use windlass::core::retry::RetryPolicy;
use windlass::core::store::{RunState, Store};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, ReusePolicy, RunHandle, Signal, Wf, workflow};
use windlass::{Client, Worker};

#[derive(Debug, Serialize, Deserialize, Signal)]
struct Add {
    n: u64,
}

/// The sum of what it is sent, once it was sent this often.
#[workflow]
async fn sums(wf: Wf, times: u32) -> Result<u64, Error> {
    let mut sum = 0;
    for _ in 0..times {
        sum += wf.recv::<Add>().await?.n;
    }
    Ok(sum)
}

async fn signal_with_start(store: Arc<dyn Store>) {
    let client = Client::new(Arc::clone(&store));
    let add = |n: u64| client.start(sums, 5).id("sum").signal(Add { n }).into_future();
    let (one, two, three) = futures::join!(add(1), add(10), add(100));
    let run = one.unwrap();
    assert_eq!((two.unwrap().id(), three.unwrap().id()), (run.id(), run.id()));
    // Twice, as after an answer that was lost; and with another input, which only the first start has.
    for _ in 0..2 {
        client.start(sums, 9).id("sum").signal_once("mail-1", Add { n: 1_000 }).await.unwrap();
    }
    let taken = client.start(sums, 5).id("sum").await.unwrap_err();
    assert!(matches!(taken, windlass::Error::RunTaken { .. }), "{taken}");
    let running = support::Running::start(Worker::builder(Arc::clone(&store)).workflow(sums));
    run.signal(Add { n: 10_000 }).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(11_111));
    // It has ended: the signal that it had changes nothing, and another one needs a new start.
    client.start(sums, 1).id("sum").reuse(ReusePolicy::IfEnded).signal_once("mail-1", Add { n: 1 }).await.unwrap();
    assert_eq!(run.describe().await.unwrap().state, RunState::Succeeded);
    let refused = client.start(sums, 1).id("sum").signal(Add { n: 7 }).await.unwrap_err();
    assert!(matches!(refused, windlass::Error::RunTaken { .. }), "{refused}");
    let again = client.start(sums, 2).id("sum").reuse(ReusePolicy::IfEnded).signal(Add { n: 7 }).signal(Add { n: 8 });
    assert_eq!(again.await.unwrap().result(HANG_GUARD).await.unwrap().unwrap(), Ok(15));
    running.drain().await;
}

#[workflow]
async fn lucky(wf: Wf, attempt: u32) -> Result<u32, Error> {
    wf.run_ok("tick", async || ()).await?;
    if wf.attempt() < attempt {
        return Err(format!("attempt {} fails", wf.attempt()).into());
    }
    Ok(wf.attempt())
}

#[workflow]
async fn parent(wf: Wf, attempts: u32) -> Result<u32, Error> {
    let child = wf.child(lucky, 3).attempts(attempts).retry(RetryPolicy::Fixed { delay_ms: 10 });
    Ok(child.await?)
}

async fn ended<W: windlass::durable::Workflow>(run: &RunHandle<W>) -> Result<W::Output, String> {
    run.result(HANG_GUARD).await.unwrap().expect("it ends").map_err(|failure| failure.message)
}

async fn runs_are_retried(store: Arc<dyn Store>) {
    let client = Client::new(Arc::clone(&store));
    let worker = || Worker::builder(Arc::clone(&store)).workflow(lucky).workflow(parent);
    let running = support::Running::start(worker());
    let soon = || RetryPolicy::Fixed { delay_ms: 10 };
    let run = client.start(lucky, 3).attempts(3).retry(soon()).await.unwrap();
    assert_eq!(ended(&run).await, Ok(3));
    assert!(run.describe().await.unwrap().segment_from > 0);
    let run = client.start(lucky, 4).attempts(3).retry(soon()).await.unwrap();
    assert_eq!(ended(&run).await, Err("attempt 3 fails".to_owned()));
    let (enough, too_few) = (client.start(parent, 3).await.unwrap(), client.start(parent, 2).await.unwrap());
    assert_eq!(ended(&enough).await, Ok(3));
    assert_eq!(ended(&too_few).await, Err("attempt 2 fails".to_owned()));
    // While it waits, it says so, is not in memory, and can be cancelled.
    let run = client.start(lucky, 2).retry(RetryPolicy::Fixed { delay_ms: 3_600_000 }).await.unwrap();
    let looks = AtomicU32::new(0);
    let look = async {
        while run.describe().await.unwrap().summary != "waits for attempt 2, after: attempt 1 fails" {
            looks.fetch_add(1, Ordering::Relaxed);
            // sleeps because: the store has no way to wait for the summary of a run.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, look).await.expect("it waits for its second attempt");
    run.cancel("no more").await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap().unwrap_err().state, RunState::Cancelled);
    running.drain().await;
    let wrong = client.start(lucky, 1).attempts(0).await.unwrap_err();
    assert!(wrong.to_string().contains("attempts"), "{wrong}");
    let wrong = client.start(lucky, 1).attempts(1_001).await.unwrap_err();
    assert!(matches!(wrong, windlass::Error::Limit { .. }), "{wrong}");
    let wrong = client.start(lucky, 1).retry(RetryPolicy::ByKind).await.unwrap_err();
    assert!(wrong.to_string().contains("only workers of jobs have"), "{wrong}");
}

fn memory() -> Arc<dyn Store> {
    windlass::open("memory://").unwrap()
}

fn sqlite(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_a_signal_starts_or_signals_memory() {
    signal_with_start(memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_a_signal_starts_or_signals_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    signal_with_start(sqlite(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_a_signal_starts_or_signals_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    signal_with_start(windlass::open(&server.url()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fails_is_started_again_memory() {
    runs_are_retried(memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fails_is_started_again_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    runs_are_retried(sqlite(&folder)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fails_is_started_again_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    runs_are_retried(windlass::open(&server.url()).unwrap()).await;
}
