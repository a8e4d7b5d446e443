//! The worker of the library, as applications run it: it goes on by itself when the server is back.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::{Client, Job, JobError, Options, Waited, Worker};
use windlass_core::time::HANG_GUARD;
use windlass_servers::{Fsync, Redis};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "numbers")]
struct Number {
    n: u32,
}

static DONE: AtomicU32 = AtomicU32::new(0);

async fn number(job: Number) -> Result<(), JobError> {
    DONE.fetch_add(job.n, Ordering::Relaxed);
    Ok(())
}

/// Enqueues a job under an id of its own until the store accepts it, and waits until the store has its end. A store that
/// is away answers with errors that say so.
async fn enqueue_and_wait(client: &Client, id: &str) {
    let ticket = loop {
        match client.enqueue_with(Number { n: 1 }, Options::new().id(id)).await {
            Ok(ticket) => break ticket,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert_eq!(ticket.wait(HANG_GUARD).await.unwrap(), Waited::Succeeded(()));
}

/// How long it takes is the column `recovery` of `cargo xtask crash storm`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_worker_goes_on_by_itself_when_the_server_is_back() {
    // Synced at once: otherwise a server that is killed may forget the end of a job, which then runs again.
    let server = Redis::builder().append_only(Fsync::Always).start().unwrap();
    let (client, own) = (Client::open(&server.url()).unwrap(), windlass::open(&server.url()).unwrap());
    let worker = Worker::builder(own).queue("numbers").slots(4).handle(number).build().unwrap();
    let stopper = worker.stopper();
    let crashes = async {
        for round in 1..=3 {
            enqueue_and_wait(&client, &format!("{round} before")).await;
            server.kill9();
            // sleeps because: the longer an outage is, the longer the worker waits between its tries.
            tokio::time::sleep(Duration::from_secs(2)).await;
            server.restart().unwrap();
            enqueue_and_wait(&client, &format!("{round} after")).await;
        }
        stopper.drain();
    };
    let (ran, ()) = tokio::join!(worker.run_until_stopped(), crashes);
    ran.unwrap();
    assert_eq!(DONE.load(Ordering::Relaxed), 6, "each was done once");
}
