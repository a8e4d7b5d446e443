//! A server whose memory is full.

use crate::support::{assert_in_accord, claim, counts, done, enqueue, jobs};
use windlass_core::Error;
use windlass_core::store::{EnqueueRequest, JobQueue, RenewRequest, Renewal};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

#[tokio::test]
async fn a_full_memory_refuses_new_jobs_and_lets_the_rest_be_worked_off() {
    let server = Redis::start().unwrap();
    let store = RedisStore::open_url(&server.url()).unwrap();
    enqueue(&store, 20).await;
    let held = store.claim(claim(1, 5)).await.unwrap().jobs;
    server.command(&["CONFIG", "SET", "maxmemory", "100kb"]).unwrap();

    let refused = store.enqueue(EnqueueRequest::new(jobs(1))).await;
    assert!(matches!(&refused, Err(Error::Full { what }) if what.contains("maxmemory")), "{refused:?}");

    let lease = held[0].lease;
    let renewals = vec![Renewal { lease, lease_ms: Some(60_000), progress: None }];
    store.renew(RenewRequest { renewals }).await.unwrap().remove(0).unwrap();
    for answer in store.report(done(held.iter().map(|job| job.lease))).await.unwrap() {
        answer.unwrap();
    }
    // Jobs that nobody may claim would keep the memory full for ever.
    let next = store.claim(claim(2, 5)).await.unwrap().jobs;
    let both = store.report_and_claim(done(next.iter().map(|job| job.lease)), claim(3, 10)).await.unwrap();
    assert_eq!((next.len(), both.claimed.jobs.len()), (5, 10));
    store.report(done(both.claimed.jobs.iter().map(|job| job.lease))).await.unwrap();
    assert_eq!(counts(&store).await.succeeded, 20);

    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    enqueue(&store, 1).await;
    assert_eq!(counts(&store).await.ready, 1);
    assert_in_accord(&server.url()).await;
}
