//! Workflow code that ends its process, in processes of its own.

use super::stores::{Opened, redis, sqlite, until};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use windlass::core::store::RunState;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Wf, workflow};
use windlass::{Client, Worker};

/// Names the store for a test program that is a worker.
const URL: &str = "WINDLASS_TEST_RECURSION_URL";

type Depth = std::pin::Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;

fn deep(wf: Wf, left: u64) -> Depth {
    Box::pin(async move {
        // What a frame of a real program may hold.
        let frame = std::hint::black_box([left; 256]);
        let below = if left == 0 { wf.now().as_ms().unsigned_abs() } else { deep(wf, left - 1).await? };
        Ok(below + frame[0])
    })
}

#[workflow]
async fn recursion(wf: Wf, depth: u64) -> Result<u64, Error> {
    deep(wf, depth).await
}

#[workflow]
async fn quick(_wf: Wf, n: u64) -> Result<u64, Error> {
    Ok(n)
}

/// The process that dies. It is this test in another process.
async fn work(url: &str) {
    let worker = Worker::builder(windlass::open(url).unwrap()).lease(Duration::from_secs(1)).build_id("a");
    worker.workflow(recursion).workflow(quick).build().unwrap().run().await.unwrap();
}

fn start(test: &str, url: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(URL, url).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits until the process has ended; returns whether it was successful.
async fn ended(child: &mut Child) -> bool {
    let child = parking_lot::Mutex::new(child);
    until("the process ends", || async { child.lock().try_wait().unwrap() }).await.success()
}

async fn dies_three_times(on: Opened, test: &str) {
    let client = Client::new(Arc::clone(&on.store));
    let run = client.start(recursion, 100_000).await.unwrap();
    let others = [client.start(quick, 1).await.unwrap(), client.start(quick, 2).await.unwrap()];
    for _ in 0..3 {
        assert!(!ended(&mut start(test, &on.url)).await, "the process dies of its stack");
        assert_eq!(on.view(&run).await.stuck, None);
    }
    let mut fourth = start(test, &on.url);
    let stuck = on.stuck(&run).await;
    assert!(stuck.starts_with("3 processes in a row ended"), "{stuck}");
    assert_eq!(on.view(&run).await.state, RunState::Running);
    for (run, n) in others.iter().zip(1..) {
        assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(n));
    }
    let later = client.start(quick, 3).await.unwrap();
    assert_eq!(later.result(HANG_GUARD).await.unwrap().unwrap(), Ok(3));
    fourth.kill().unwrap();
    fourth.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_run_whose_recursion_ends_three_processes_is_stuck_sqlite() {
    match std::env::var(URL) {
        Ok(url) => work(&url).await,
        Err(_) => {
            dies_three_times(sqlite(), "recursion::slow_a_run_whose_recursion_ends_three_processes_is_stuck_sqlite")
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_run_whose_recursion_ends_three_processes_is_stuck_redis() {
    match std::env::var(URL) {
        Ok(url) => work(&url).await,
        Err(_) => {
            dies_three_times(redis(), "recursion::slow_a_run_whose_recursion_ends_three_processes_is_stuck_redis")
                .await;
        }
    }
}
