//! What Prometheus would scrape: a few jobs, some of which fail, and the page of metrics they leave behind.
//!
//! `cargo run -p windlass --example metrics`

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::observe::Sampler;
use windlass::{Client, Ctx, Job, JobError, Worker};

#[derive(Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl Job for Welcome {
    const KIND: &'static str = "welcome";
    const QUEUE: &'static str = "mail";
    type Output = ();
}

async fn welcome(job: Welcome, ctx: Ctx) -> Result<(), JobError> {
    match (job.to.as_str(), ctx.attempt()) {
        ("nobody", _) => Err(JobError::fatal("no such user")),
        ("slow", 1) => Err(JobError::new("try again").retry_after(Duration::from_millis(10))),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One line installs the recorder; without buckets the exporter would make summaries, which cannot be added up.
    let buckets = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_800.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &buckets)?
        .install_recorder()?;

    let store = windlass::open("memory://")?;
    let client = Client::new(Arc::clone(&store));
    let worker = Worker::builder(Arc::clone(&store)).queue("mail").handle(welcome).build()?;
    let stopper = worker.stopper();
    let work = async {
        let jobs = ["ada", "bob", "slow", "nobody"].map(|to| Welcome { to: to.to_owned() });
        for ticket in client.enqueue_all(jobs).await? {
            ticket?.wait(Duration::from_secs(10)).await?;
        }
        // A service runs it for ever, beside its worker: `sampler.run()`.
        Sampler::new(Arc::clone(&store)).once().await?;
        stopper.drain();
        windlass::Result::Ok(())
    };
    let (ran, worked) = tokio::join!(worker.run_until_stopped(), work);
    ran.and(worked)?;

    // Serve this at /metrics with the web framework of your choice.
    println!("{}", handle.render());
    Ok(())
}
