use super::*;
use windlass::Client;
use windlass::core::memory::MemoryStore;
use windlass::core::name::WorkerId;
use windlass::core::random::StrongRandom;
use windlass::core::store::{ClaimRequest, JobQueue, Outcome, ReportRequest};
use windlass::core::time::{Timestamp, VirtualClock};

#[derive(serde::Serialize, serde::Deserialize, windlass::Job)]
#[job(kind = "welcome", queue = "mail")]
struct Welcome {}

/// Fails one job for good and completes the others.
async fn work(store: &MemoryStore) {
    let worker = WorkerId::new("w").unwrap();
    let claim = ClaimRequest { max: 100, ..ClaimRequest::new(worker.clone(), 1, "mail".try_into().unwrap()) };
    let jobs = store.claim(claim).await.unwrap().jobs;
    let outcome = |(at, job): (usize, &windlass::core::store::ClaimedJob)| match at {
        0 => Outcome::fail(job.lease, "421 mailbox busy", windlass::core::job::Retry::Never),
        _ => Outcome::complete(job.lease),
    };
    let outcomes = jobs.iter().enumerate().map(outcome).collect();
    store.report(ReportRequest { worker, outcomes }).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_has_counts_rates_and_failures() {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
    let store = Arc::new(MemoryStore::with(Arc::<VirtualClock>::clone(&clock), Arc::new(StrongRandom::seeded(1))));
    let client = Client::new(Arc::<MemoryStore>::clone(&store));
    client.enqueue_all((0..10).map(|_| Welcome {})).await.unwrap();
    work(&store).await;
    clock.advance_ms(2_000);
    let mut monitor = Monitor::start(store, "memory://".to_owned()).await.unwrap();
    let look = monitor.snapshot().await.unwrap();
    let queue = &look.queues[0];
    assert_eq!((queue.counts.succeeded, queue.counts.failed), (9, 1));
    assert!((queue.rates.enqueued - 2.0).abs() < 1e-9, "ten in five seconds: {look:?}");
    assert!((look.rates.succeeded - 1.8).abs() < 1e-9, "{look:?}");
    assert_eq!(look.ended, [10, 0]);
    assert_eq!(look.failures.len(), 1);
    assert_eq!((look.failures[0].error.as_str(), look.failures[0].last_ms_ago), ("421 mailbox busy", 2_000));
    // Nothing is counted twice.
    assert_eq!(monitor.snapshot().await.unwrap().ended, [10, 0]);
    clock.advance_ms(10_000);
    assert!(monitor.snapshot().await.unwrap().rates.enqueued.abs() < 1e-9);
}
