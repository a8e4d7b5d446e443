//! Sentinels replace a primary that is alive: it goes on accepting writes until a Sentinel makes it a replica.

use crate::support::{claim, enqueue, jobs, queue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::NewJob;
use windlass_core::store::{EnqueueRequest, Feed, FeedRequest, JobQueue, Store, WaitFor};
use windlass_redis::RedisStore;
use windlass_servers::Sentinel;

/// Ends a test that hangs; nothing is measured by it.
const HANGS: Duration = Duration::from_secs(60);

/// Has the Sentinels leave an old primary as it is for forty seconds.
fn leave_the_old_primary_alone(sentinel: &Sentinel) {
    for one in sentinel.sentinels() {
        // A Sentinel turns it into a replica after four of these.
        one.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "10000"]).unwrap();
    }
}

fn fail_over(sentinel: &Sentinel) -> (u16, u16) {
    let old = sentinel.fail_over().unwrap();
    (old, sentinel.wait_for_new_primary(old, HANGS).unwrap())
}

fn says_it_is_primary(sentinel: &Sentinel, port: u16) -> bool {
    sentinel.node(port).unwrap().command(&["ROLE"]).unwrap().starts_with("master")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_primary_that_was_replaced_gets_no_more_work() {
    let sentinel = Sentinel::start().unwrap();
    let store = RedisStore::open_url(&sentinel.url()).unwrap();
    store.enqueue(EnqueueRequest::new(jobs(1))).await.unwrap();
    leave_the_old_primary_alone(&sentinel);
    let (old, new) = fail_over(&sentinel);
    assert!(says_it_is_primary(&sentinel, old), "the old one is a replica already, so this shows nothing");
    let late = jobs(1);
    insist(&store, &late).await;
    let id = late[0].id.to_string();
    let there = |port| sentinel.node(port).unwrap().command(&["HEXISTS", "{windlass}:jobs", &id]).unwrap();
    assert_eq!((there(new), there(old)), ("1".to_owned(), "0".to_owned()));
}

/// Enqueues until the store acknowledges it, as workers and clients do.
async fn insist(store: &RedisStore, jobs: &[NewJob]) {
    while let Err(error) = store.enqueue(EnqueueRequest::new(jobs.to_vec())).await {
        assert!(error.is_retryable(), "{error:?}");
    }
}

/// Sixteen callers enqueue without a pause while the primary is replaced under them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_what_was_acknowledged_before_a_planned_failover_is_there_after_it() {
    let sentinel = Sentinel::start().unwrap();
    let stores: Vec<_> = (0..4).map(|_| Arc::new(RedisStore::open_url(&sentinel.url()).unwrap())).collect();
    leave_the_old_primary_alone(&sentinel);
    let is_over = Arc::new(AtomicBool::new(false));
    let (counter, mut count) = tokio::sync::watch::channel(0_usize);
    let counter = Arc::new(counter);
    let mut callers = JoinSet::new();
    for k in 0..16 {
        let (store, is_over) = (Arc::clone(&stores[k % stores.len()]), Arc::clone(&is_over));
        let counter = Arc::clone(&counter);
        callers.spawn(async move {
            let mut acknowledged: Vec<JobId> = Vec::new();
            while !is_over.load(Ordering::Acquire) {
                let new = jobs(1);
                insist(&store, &new).await;
                acknowledged.push(new[0].id);
                counter.send_modify(|count| *count += 1);
            }
            acknowledged
        });
    }
    count.wait_for(|count| *count > 500).await.unwrap();
    // The callers go on meanwhile, on the runtime's other thread.
    let (old, new) = tokio::task::block_in_place(|| fail_over(&sentinel));
    assert!(says_it_is_primary(&sentinel, old), "the old one is a replica already, so this shows nothing");
    let before = *count.borrow();
    count.wait_for(|count| *count > before + 100).await.unwrap();
    is_over.store(true, Ordering::Release);
    let acknowledged: BTreeSet<String> =
        callers.join_all().await.into_iter().flatten().map(|id| id.to_string()).collect();
    let kept = sentinel.node(new).unwrap().command(&["HKEYS", "{windlass}:jobs"]).unwrap();
    let kept: BTreeSet<&str> = kept.lines().collect();
    let lost = acknowledged.iter().filter(|id| !kept.contains(id.as_str())).count();
    println!("{} acknowledged, {lost} lost", acknowledged.len());
    assert!(lost == 0, "{lost} of {} are lost", acknowledged.len());
}

/// Wake-ups and the feed move to the new primary at once, not when the old one closes its connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_waits_go_on_at_the_new_primary() {
    let sentinel = Sentinel::start().unwrap();
    let open = || Arc::new(RedisStore::open_url(&sentinel.url()).unwrap());
    let (waiter, reader, other) = (open(), open(), open());
    enqueue(&other, 1).await;
    let claimed = waiter.claim(claim(1, 1)).await.unwrap();
    assert_eq!(claimed.jobs.len(), 1);
    // The first wait subscribes, and ends when it has.
    let mark = waiter.claim(claim(2, 1)).await.unwrap().mark;
    let subscribed = waiter.wait(WaitFor::Work { queues: vec![queue()], mark });
    timeout(HANGS, subscribed).await.expect("the subscription begins").unwrap();
    let mark = waiter.claim(claim(3, 1)).await.unwrap().mark;
    let begun = JoinSet::from_iter([{
        let waiter = Arc::clone(&waiter);
        async move { waiter.wait(WaitFor::Work { queues: vec![queue()], mark }).await }
    }]);
    leave_the_old_primary_alone(&sentinel);
    let (old, _) = fail_over(&sentinel);
    // Subscribed again, it is woken once in case it has missed something.
    assert_eq!(timeout(HANGS, begun.join_all()).await.expect("the subscription moves"), [Ok(())]);
    let mark = retried(|| waiter.claim(claim(4, 1))).await.mark;
    let cursor = retried(|| reader.read_feed(FeedRequest { after: None, max: 1 })).await.next;
    let mut waits = JoinSet::new();
    waits.spawn(async move { waiter.wait(WaitFor::Work { queues: vec![queue()], mark }).await });
    waits.spawn(async move { reader.wait(WaitFor::Feed(cursor)).await });
    insist(&other, &jobs(1)).await;
    let woken = timeout(HANGS, waits.join_all()).await.expect("both are woken");
    assert_eq!(woken, [Ok(()), Ok(())]);
    assert!(says_it_is_primary(&sentinel, old), "the old one has closed its connections, so this shows nothing");
}

async fn retried<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> T {
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
}
