//! What `wait_replicas` acknowledges.

use crate::support::{claim, counts, done, enqueue, jobs};
use std::time::Duration;
use windlass_core::Error;
use windlass_core::store::{EnqueueRequest, Enqueued, JobQueue};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

/// A primary with a replica that is attached.
async fn pair() -> (Redis, Redis) {
    let primary = Redis::start().unwrap();
    let replica = Redis::builder().config("replicaof", &format!("127.0.0.1 {}", primary.port())).start().unwrap();
    for _ in 0..1_000 {
        if replica.command(&["INFO", "replication"]).unwrap().contains("master_link_status:up") {
            return (primary, replica);
        }
        // sleeps because: a replica does not tell when it is attached.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the replica does not attach");
}

#[tokio::test]
async fn slow_what_no_replica_has_is_not_acknowledged_however_often_it_is_repeated() {
    let (primary, replica) = pair().await;
    let url = format!("{}?wait_replicas=1&timeout_ms=600", primary.url());
    let store = RedisStore::open_url(&url).unwrap();
    enqueue(&store, 2).await;
    let held = store.claim(claim(1, 1)).await.unwrap().jobs;
    replica.pause().unwrap();

    let new = jobs(1);
    let again = || store.enqueue(EnqueueRequest::new(new.clone()));
    let report = || store.report(done(held.iter().map(|job| job.lease)));
    for turn in 0..3 {
        // The first one has changed the primary; the others change nothing, and still nobody else has it.
        let answer = again().await;
        assert!(answer.as_ref().is_err_and(Error::is_outcome_unknown), "turn {turn}: {answer:?}");
        let answer = report().await;
        assert!(answer.as_ref().is_err_and(Error::is_outcome_unknown), "turn {turn}: {answer:?}");
    }
    replica.resume().unwrap();
    assert_eq!(again().await.unwrap(), [Ok(Enqueued::Existing { id: new[0].id })]);
    assert!(report().await.unwrap()[0].as_ref().unwrap().repeated);
    let counts = counts(&store).await;
    assert_eq!((counts.ready, counts.succeeded), (2, 1));
}
