//! Wake-ups after a planned failover. There is no polling: a waiter that is not woken waits until its subscription is made anew.

use crate::support::{claim, enqueue, jobs, queue};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use windlass_core::id::JobId;
use windlass_core::store::{EnqueueRequest, Feed as _, FeedCursor, FeedEvent, FeedRequest, JobQueue, Store, WaitFor};
use windlass_redis::RedisStore;
use windlass_servers::Sentinel;

/// Measurements before the failover.
const BEFORE: u64 = 5;
/// How long after the failover a job is enqueued.
const LATER: Duration = Duration::from_secs(3);
/// Ends a test that hangs.
const GIVE_UP: Duration = windlass_core::time::HANG_GUARD;

#[expect(clippy::disallowed_methods, reason = "a real server runs in real time")]
fn now() -> Instant {
    Instant::now()
}

fn sentinel() -> Sentinel {
    let sentinel = Sentinel::start_with_replicas(1).unwrap();
    sentinel.use_default_intervals();
    for one in sentinel.sentinels() {
        // The old primary becomes a replica, and closes its connections, after four of these: long after this test.
        one.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "30000"]).unwrap();
    }
    sentinel
}

/// Returns the port of the old primary.
async fn fail_over(sentinel: &Sentinel) -> u16 {
    let old = sentinel.fail_over().unwrap();
    sentinel.wait_for_promotion(old, GIVE_UP).unwrap();
    // sleeps because: this test is about a job that is enqueued so long after the failover.
    tokio::time::sleep(LATER).await;
    old
}

/// The wake-up has come from the new primary: the old one has not closed its connections yet, and nobody polls. How long it
/// takes is a column of `cargo xtask crash storm`.
fn assert_woken(sentinel: &Sentinel, old: u16, (before, after): (Duration, Duration)) {
    println!("wake-up: at most {before:?} before the failover, {after:?} after it");
    let role = sentinel.node(old).unwrap().command(&["ROLE"]).unwrap();
    assert!(role.starts_with("master"), "woken only when the old primary had become a replica: {role}");
}

/// Claims like a worker that waits for nothing but its wake-up, and sends the time of every claim that got a job.
async fn claim_when_woken(store: RedisStore, claimed: mpsc::UnboundedSender<Instant>) {
    for request in 1.. {
        let Ok(found) = store.claim(claim(request, 1)).await else { continue };
        if found.jobs.is_empty() {
            let _ = store.wait(WaitFor::Work { queues: vec![queue()], mark: found.mark }).await;
        } else if claimed.send(now()).is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_worker_is_woken_three_seconds_after_a_planned_failover() {
    let sentinel = sentinel();
    let other = RedisStore::open_url(&sentinel.url()).unwrap();
    let (sender, mut claimed) = mpsc::unbounded_channel();
    let _worker = JoinSet::from_iter([claim_when_woken(RedisStore::open_url(&sentinel.url()).unwrap(), sender)]);
    let mut wake_up = async || {
        enqueue(&other, 1).await;
        let enqueued = now();
        let at = timeout(GIVE_UP, claimed.recv()).await.expect("the job is claimed").unwrap();
        at.saturating_duration_since(enqueued)
    };
    // The first one may be found by the look that follows the subscription.
    wake_up().await;
    let mut before = Duration::ZERO;
    for _ in 0..BEFORE {
        // sleeps because: nothing tells when another task's wait has begun, and it must have.
        tokio::time::sleep(Duration::from_millis(200)).await;
        before = before.max(wake_up().await);
    }
    let old = fail_over(&sentinel).await;
    assert_woken(&sentinel, old, (before, wake_up().await));
}

/// Reads the feed from its beginning, waits for each further entry, and sends every job of an entry with the time. A read
/// without a cursor returns the end of the feed, and would miss a job that was enqueued before it.
async fn read_feed_when_woken(store: RedisStore, heard: mpsc::UnboundedSender<(JobId, Instant)>) {
    let mut after = Some(FeedCursor(0));
    loop {
        let Ok(page) = store.read_feed(FeedRequest { after, max: 100 }).await else { continue };
        for event in page.entries.iter().flat_map(|entry| &entry.events) {
            let FeedEvent::Job(job) = event else { continue };
            if heard.send((job.job, now())).is_err() {
                return;
            }
        }
        after = Some(page.next);
        if page.entries.is_empty() {
            let _ = store.wait(WaitFor::Feed(page.next)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_reader_of_the_feed_is_woken_three_seconds_after_a_planned_failover() {
    let sentinel = sentinel();
    let other = RedisStore::open_url(&sentinel.url()).unwrap();
    let (sender, mut heard) = mpsc::unbounded_channel();
    let _reader = JoinSet::from_iter([read_feed_when_woken(RedisStore::open_url(&sentinel.url()).unwrap(), sender)]);
    let mut wake_up = async || {
        let new = jobs(1);
        let id = new[0].id;
        other.enqueue(EnqueueRequest::new(new)).await.unwrap();
        let enqueued = now();
        loop {
            let (job, at) = timeout(GIVE_UP, heard.recv()).await.expect("the feed tells of the job").unwrap();
            if job == id {
                return at.saturating_duration_since(enqueued);
            }
        }
    };
    wake_up().await;
    let mut before = Duration::ZERO;
    for _ in 0..BEFORE {
        // sleeps because: nothing tells when another task's wait has begun, and it must have.
        tokio::time::sleep(Duration::from_millis(200)).await;
        before = before.max(wake_up().await);
    }
    let old = fail_over(&sentinel).await;
    assert_woken(&sentinel, old, (before, wake_up().await));
}
