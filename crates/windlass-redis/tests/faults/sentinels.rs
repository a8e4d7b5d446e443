//! A primary that is alive when the Sentinels replace it.

use crate::support::jobs;
use std::time::Duration;
use windlass_core::store::{EnqueueRequest, JobQueue};
use windlass_redis::RedisStore;
use windlass_servers::Sentinel;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_primary_that_was_replaced_gets_no_more_work() {
    let sentinel = Sentinel::start().unwrap();
    let store = RedisStore::open_url(&sentinel.url()).unwrap();
    store.enqueue(EnqueueRequest::new(jobs(1))).await.unwrap();
    for one in sentinel.sentinels() {
        // The old primary is told of its new part only after four of these; until then it takes writes.
        one.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "2000"]).unwrap();
    }
    let old = sentinel.fail_over().unwrap();
    let new = sentinel.wait_for_new_primary(old, Duration::from_secs(20)).unwrap();
    // sleeps because: the news travels to the store while nothing else happens.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let role = sentinel.node(old).unwrap().command(&["ROLE"]).unwrap();
    assert!(role.starts_with("master"), "the old one knows already, so this shows nothing: {role}");
    let late = jobs(1);
    store.enqueue(EnqueueRequest::new(late.clone())).await.unwrap();
    let id = late[0].id.to_string();
    let there = |port| sentinel.node(port).unwrap().command(&["HEXISTS", "{windlass}:jobs", &id]).unwrap();
    assert_eq!((there(new), there(old)), ("1".to_owned(), "0".to_owned()));
}
