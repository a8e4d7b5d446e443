//! A durable workflow that works on 1,000 items, at most 50 at once, and adds up their results.
//!
//! ```sh
//! cargo run -p windlass --example durable_fan_out
//! cargo run -p windlass --example durable_fan_out sqlite:///tmp/fan-out.db
//! ```
//!
//! The second form keeps its file: kill it with `kill -9` at any moment and start it again. No item is lost or counted twice.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::durable::{CallError, Error, JoinSet, Wf, workflow};
use windlass::{Client, Job, JobError, Worker};

const ITEMS: u64 = 1_000;
const AT_ONCE: usize = 50;

/// Many stalls are allowed, because this program is killed for demonstration.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "items", output = u64, stalls = 1_000)]
pub(crate) struct Square {
    pub(crate) item: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) items: u64,
    pub(crate) sum: u64,
}

impl Report {
    fn add(&mut self, square: Result<u64, CallError>) -> Result<(), Error> {
        self.sum += square?;
        self.items += 1;
        Ok(())
    }
}

#[workflow]
pub(crate) async fn squares(wf: Wf, items: u64) -> Result<Report, Error> {
    let mut report = Report::default();
    let mut tasks = JoinSet::new();
    for item in 0..items {
        if tasks.len() >= AT_ONCE
            && let Some(square) = tasks.join_next().await
        {
            report.add(square)?;
        }
        tasks.spawn(wf.call(Square { item }));
    }
    while let Some(square) = tasks.join_next().await {
        report.add(square)?;
    }
    Ok(report)
}

async fn square(job: Square) -> Result<u64, JobError> {
    tokio::time::sleep(Duration::from_millis(100)).await; // takes a while
    Ok(job.item * job.item)
}

async fn run_to_end(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let run = match client.start(squares, ITEMS).id("squares").await {
        Err(windlass::Error::RunTaken { .. }) => client.run(squares, "squares"),
        started => started?,
    };
    println!("{ITEMS} items, at most {AT_ONCE} at once");
    let report = loop {
        if let Some(ended) = run.result(Duration::from_secs(1)).await? {
            break ended?;
        }
        for queue in client.store().queues().await? {
            println!("{} items are done, {} are at work", queue.counts.succeeded, queue.counts.active);
        }
    };
    println!("{} items, their squares add up to {}", report.items, report.sum);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let url = format!("sqlite://{}/fan-out.db", temporary.path().display());
    let client = Client::open(&std::env::args().nth(1).unwrap_or(url))?;
    // A short lease, so that the jobs of a killed process soon run again.
    let worker = Worker::builder(client.store().clone()).queue("items").slots(AT_ONCE).lease(Duration::from_secs(2));
    let worker = worker.handle(square).workflow(squares).build()?;
    let stopper = worker.stopper();
    let work = async {
        let ended = run_to_end(&client).await;
        stopper.drain();
        ended
    };
    let (ran, ended) = tokio::join!(worker.run_until_stopped(), work);
    ended?;
    ran?;
    Ok(())
}
