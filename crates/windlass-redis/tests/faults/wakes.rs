//! Wake-ups that get lost.

use crate::support::{claim, enqueue, queue};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use windlass_core::store::{Claimed, JobQueue, Store, WaitFor};
use windlass_core::time::HANG_GUARD;
use windlass_redis::RedisStore;
use windlass_servers::{Proxy, Redis};

/// A worker looks again by itself after this long.
const POLL: Duration = Duration::from_secs(1);

/// Claims like a worker that sleeps until it is rung, or until its poll; says how long it took.
async fn claim_within_polls(store: &RedisStore, first_request: u64) -> (u64, Duration) {
    let began = now();
    for request in first_request.. {
        let Ok(claimed) = store.claim(claim(request, 1)).await else { continue };
        if !claimed.jobs.is_empty() {
            return (request + 1, now() - began);
        }
        let _ = timeout(POLL, store.wait(WaitFor::Work { queues: vec![queue()], mark: claimed.mark })).await;
    }
    unreachable!("requests do not run out")
}

#[expect(clippy::disallowed_methods, reason = "a real server runs in real time")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_lost_wake_up_delays_by_no_more_than_the_poll() {
    let server = Redis::start().unwrap();
    let (sleeper, other) = (RedisStore::open_url(&server.url()).unwrap(), RedisStore::open_url(&server.url()).unwrap());
    let sleeper = Arc::new(sleeper);
    let mut request = 1;
    let mut longest = Duration::ZERO;
    for round in 0..8 {
        let asleep = tokio::task::JoinSet::from_iter([{
            let sleeper = Arc::clone(&sleeper);
            async move { claim_within_polls(&sleeper, request).await }
        }]);
        // sleeps because: nothing tells when another task's wait has begun, and it must have.
        tokio::time::sleep(Duration::from_millis(300)).await;
        if round % 2 == 0 {
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        }
        let from = now();
        enqueue(&other, 1).await;
        let (next, _) = asleep.join_all().await.remove(0);
        request = next;
        longest = longest.max(now() - from);
    }
    println!("longest delay {longest:?}");
    assert!(longest < POLL + Duration::from_millis(500), "{longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_wait_for_the_end_of_a_job_survives_a_lost_subscription() {
    let server = Redis::start().unwrap();
    let (waiter, other) = (RedisStore::open_url(&server.url()).unwrap(), RedisStore::open_url(&server.url()).unwrap());
    enqueue(&other, 1).await;
    let job = other.claim(claim(1, 1)).await.unwrap().jobs.remove(0);
    let id = job.lease.job;
    let waiting = tokio::task::JoinSet::from_iter([async move { waiter.wait(WaitFor::Job(id)).await }]);
    // sleeps because: nothing tells when another task's wait has begun, and it must have.
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    other.report(crate::support::done([job.lease])).await.unwrap();
    let answer = timeout(Duration::from_secs(5), waiting.join_all()).await.expect("the end is noticed");
    assert_eq!(answer, [Ok(())]);
}

/// Waits as a worker whose claim found nothing, and claims again.
async fn claim_after_wait(store: &RedisStore, request: u64, last: Claimed) -> Claimed {
    let wait = store.wait(WaitFor::Work { queues: vec![queue()], mark: last.mark });
    let Ok(waited) = timeout(HANG_GUARD, wait).await else { panic!("the wait does not end with its subscription") };
    waited.unwrap();
    store.claim(claim(request, 1)).await.unwrap()
}

/// Otherwise it would look after 20 s, for as long as no subscription can be made.
#[tokio::test]
async fn a_worker_polls_while_its_subscription_is_lost() {
    let server = Redis::start().unwrap();
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).unwrap();
    let store = RedisStore::open_url(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
    let first = store.claim(claim(1, 1)).await.unwrap();
    assert_eq!(first.poll_after_ms, None, "nothing is subscribed to yet");
    let subscribed = claim_after_wait(&store, 2, first).await;
    assert!(subscribed.poll_after_ms.is_some());
    // The connection of the claims stays, and no other one is made.
    proxy.faults().refuse().unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    let lost = claim_after_wait(&store, 3, subscribed).await;
    assert_eq!(lost.poll_after_ms, None);
    proxy.faults().accept().unwrap();
    let again = claim_after_wait(&store, 4, lost).await;
    assert!(again.poll_after_ms.is_some());
}
