//! The first thing to read: enqueue, claim, complete, and survive kill -9.
//!
//! `cargo run -p windlass-sqlite --example first_jobs`

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::id::Ids;
use windlass_core::job::{JobSpec, NewJob};
use windlass_core::memory::MemoryStore;
use windlass_core::name::{Labels, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    ClaimRequest, ClaimedJob, EnqueueRequest, Kinds, Outcome, OutcomeKind, ReportRequest, Store, Sweep, SweepKind,
};
use windlass_core::time::SystemClock;
use windlass_sqlite::SqliteStore;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A worker that dies is noticed when its lease ends. One second keeps this example short; 30 seconds is the default.
const LEASE_MS: u64 = 1_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result {
    // This program starts itself again to play a worker that gets killed.
    if let Some(path) = std::env::args().nth(1) {
        return doomed_worker(&path).await;
    }

    println!("In memory:");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    enqueue(&*store, &["tie a knot", "raise a sail"]).await?;
    work(&*store, "worker-1").await?;

    println!("In a file:");
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("jobs.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path)?);
    enqueue(&*store, &["weigh the anchor", "set the course"]).await?;
    kill_a_worker_at_work(&path)?;
    work(&*store, "worker-2").await?;
    store.close().await?;
    Ok(())
}

/// Enqueues a job per text. Once this has returned, the jobs survive whatever the store promises to survive.
async fn enqueue(store: &dyn Store, texts: &[&str]) -> Result {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
    let mut jobs = Vec::new();
    for text in texts {
        let spec = JobSpec::new("deck".try_into()?, "order".try_into()?, Payload::json(text)?);
        jobs.push(NewJob::new(ids.next(), spec));
    }
    for answer in store.enqueue(EnqueueRequest::new(jobs)).await? {
        println!("  enqueued {}", answer?.id());
    }
    Ok(())
}

/// Claims and completes until nothing is left, the jobs of workers that died included.
async fn work(store: &dyn Store, name: &str) -> Result {
    for round in 1.. {
        store.sweep(Sweep { kind: SweepKind::Reap, max: 100 }).await?;
        for job in claim(store, name, round).await? {
            println!("  {name} does \"{}\"{}", text(&job)?, history(&job));
            let kind = OutcomeKind::Complete { result: None, outputs: BTreeMap::new() };
            let outcomes = vec![Outcome { lease: job.lease, kind }];
            let answers = store.report(ReportRequest { worker: WorkerId::new(name)?, outcomes }).await?;
            for answer in answers {
                println!("  {name} reports: {}", answer?.state);
            }
        }
        let queues = store.queues().await?;
        if queues.iter().all(|queue| queue.counts.ready + queue.counts.active == 0) {
            break;
        }
        // Somebody else's lease has to end first.
        tokio::time::sleep(Duration::from_millis(LEASE_MS / 10)).await;
    }
    Ok(())
}

/// Leases one job to the worker. Nobody else gets it before the lease ends.
async fn claim(store: &dyn Store, name: &str, request_id: u64) -> Result<Vec<ClaimedJob>> {
    let request = ClaimRequest {
        worker: WorkerId::new(name)?,
        request_id,
        queues: vec!["deck".try_into()?],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max: 1,
        lease_ms: LEASE_MS,
    };
    Ok(store.claim(request).await?.jobs)
}

fn text(job: &ClaimedJob) -> Result<String> {
    Ok(job.spec.payload.to_json()?)
}

fn history(job: &ClaimedJob) -> &'static str {
    if job.stall_count > 0 { ", whose last worker vanished" } else { "" }
}

/// Claims a job, says so, and never comes to its end.
async fn doomed_worker(path: &str) -> Result {
    let store = SqliteStore::open(path)?;
    for job in claim(&store, "worker-1", 1).await? {
        println!("  worker-1 does \"{}\"", text(&job)?);
    }
    std::future::pending().await
}

/// Starts a worker in a process of its own, and kills that process -9 in the middle of its job.
fn kill_a_worker_at_work(path: &Path) -> Result {
    let mut worker = Command::new(std::env::current_exe()?).arg(path).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    if let Some(output) = worker.stdout.take() {
        BufReader::new(output).read_line(&mut said)?;
    }
    print!("{said}");
    worker.kill()?;
    worker.wait()?;
    println!("  worker-1 is killed; its job comes back when its lease ends");
    Ok(())
}
