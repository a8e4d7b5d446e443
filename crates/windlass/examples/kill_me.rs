//! A thousand jobs over one file. Kill it with `kill -9` in the middle, start it again: it goes on where it was.
//!
//! ```sh
//! cargo run -p windlass --example kill_me
//! ```

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::{Client, Job, JobError, Options, Worker};

const JOBS: u32 = 1_000;

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "numbers", stalls = 100)] // killed as often as you like
struct Number {
    n: u32,
}

async fn number(_job: Number) -> Result<(), JobError> {
    tokio::time::sleep(Duration::from_millis(30)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> windlass::Result<()> {
    let file = std::env::temp_dir().join("windlass-kill-me.db");
    let client = Client::open(&format!("sqlite://{}", file.display()))?;
    for n in 0..JOBS {
        // The id is ours, so a second start enqueues nothing twice.
        client.enqueue_with(Number { n }, Options::new().id(format!("number-{n}"))).await?;
    }
    // A short lease, so that what a killed process held comes back soon.
    let worker = Worker::builder(client.store().clone()).queue("numbers").slots(16).lease(Duration::from_secs(3));
    let worker = worker.handle(number).build()?;
    let stopper = worker.stopper();
    let watch = async {
        loop {
            let counts =
                client.store().queues().await?.into_iter().map(|queue| queue.counts).next().unwrap_or_default();
            println!("{:>4} done, {:>2} running, {:>4} to go", counts.succeeded, counts.active, counts.ready);
            if counts.succeeded == u64::from(JOBS) {
                println!("pid {}: all {JOBS} are done, none was lost", std::process::id());
                stopper.drain();
                return windlass::Result::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let (ran, watched) = tokio::join!(worker.run_until_stopped(), watch);
    watched.and(ran)?;
    let _ = std::fs::remove_file(file); // the next start begins anew
    Ok(())
}
