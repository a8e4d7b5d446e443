//! The worker of the library, as applications run it: it goes on by itself when the server is back.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use windlass::{Client, Job, JobError, Worker};
use windlass_servers::{Fsync, Redis};

/// The promise.
const BACK_WITHIN: Duration = Duration::from_secs(5);

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

#[expect(clippy::disallowed_methods, reason = "a real server runs in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until the handler has run so often; says how long that took.
async fn until_done(count: u32) -> Duration {
    let began = now();
    while DONE.load(Ordering::Relaxed) < count {
        assert!(began.elapsed() < 2 * BACK_WITHIN, "{} of {count} are done", DONE.load(Ordering::Relaxed));
        // sleeps because: a handler of another task gives no signal.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_worker_goes_on_by_itself_when_the_server_is_back() {
    let server = Redis::builder().append_only(Fsync::EverySec).start().unwrap();
    let (client, own) = (Client::open(&server.url()).unwrap(), windlass::open(&server.url()).unwrap());
    let worker = Worker::builder(own).queue("numbers").slots(4).handle(number).build().unwrap();
    let stopper = worker.stopper();
    let crashes = async {
        for round in 1..=3 {
            client.enqueue(Number { n: 1 }).await.unwrap();
            until_done(2 * round - 1).await;
            server.kill9();
            // sleeps because: an outage takes its time, and the longer it is the longer everybody rests.
            tokio::time::sleep(Duration::from_secs(2)).await;
            server.restart().unwrap();
            let back = now();
            while let Err(error) = client.enqueue(Number { n: 1 }).await {
                assert!(error.is_retryable(), "{error}");
            }
            until_done(2 * round).await;
            println!("round {round}: back after {:?}", back.elapsed());
            assert!(back.elapsed() < BACK_WITHIN, "{:?}", back.elapsed());
        }
        stopper.drain();
    };
    let (ran, ()) = tokio::join!(worker.run_until_stopped(), crashes);
    ran.unwrap();
    assert_eq!(DONE.load(Ordering::Relaxed), 6, "each was done once");
}
