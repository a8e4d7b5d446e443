//! A ready job stands in its index by its group, which the record of the job names. What becomes of a job that is to be ready while
//! its record cannot be read. The records of other stores are damaged in their own tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::raw::Raw;
use support::{block, claim, complete, counts, enqueue, fresh_url, get, job_with, open_at, report_as, virtual_clock};
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, Failure, FailureClass, NewJob, Retry, State};
use windlass_core::name::DedupKey;
use windlass_core::store::{Change, ChangeOp, JobQueue, OutcomeKind, Reason};
use windlass_core::time::Timestamp;
use windlass_redis::RedisStore;
use windlass_servers::Redis;

fn grouped() -> NewJob {
    job_with(|spec| spec.group = Some("g".try_into().unwrap()))
}

/// The job is failed and keeps the reason, and the counters are those of the indexes.
async fn assert_set_aside(store: &RedisStore, raw: &Raw, id: JobId, what: &str) {
    let job = get(store, id).await.unwrap();
    assert_eq!(job.state, State::Failed, "{what}");
    assert!(job.quarantined.is_some(), "{what}: {job:?}");
    let reason = store.explain(id).await.unwrap().reason;
    assert!(matches!(reason, Reason::Quarantined { .. }), "{what}: {reason:?}");
    let counted = counts(store).await;
    let ended = counted.succeeded + counted.failed + counted.cancelled;
    assert_eq!([counted.scheduled, counted.ready, counted.active, ended], raw.recount().await, "{what}");
}

/// Each of these makes a job ready that waits for another attempt, or that has ended.
#[test]
fn a_grouped_job_whose_record_cannot_be_read_is_set_aside_when_it_is_to_be_ready() {
    let server = Redis::start().unwrap();
    let failure = Failure {
        class: FailureClass::Error,
        message: "x".into(),
        attempt: 1,
        at: Timestamp::from_ms(0),
        detail: None,
    };
    let again = OutcomeKind::Fail { failure, retry: Retry::AfterMs(60_000) };
    for (op, outcome) in [
        (ChangeOp::Promote, again.clone()),
        (ChangeOp::Reschedule(Due::Now), again),
        (ChangeOp::Retry(Due::Now), complete()),
    ] {
        block(async {
            let url = fresh_url(&server.url());
            let (store, raw) = (open_at(&url, &virtual_clock()), Raw::open(&url));
            let ids = enqueue(&store, vec![grouped(), grouped()]).await;
            for job in claim(&store, "v", 2).await {
                report_as(&store, "v", job.lease, outcome.clone()).await.unwrap();
            }
            raw.set("jobs", ids[0].to_string(), "noise").await;
            let changes = ids.iter().map(|id| Change { id: *id, op: op.clone() }).collect();
            let changed = store.change(changes).await.unwrap();
            assert!(matches!(changed[0], Err(Error::Corrupt { .. })), "{op:?}: {changed:?}");
            assert_eq!(changed[1].as_ref().unwrap().state, Some(State::Ready), "{op:?}");
            assert_set_aside(&store, &raw, ids[0], &format!("{op:?}")).await;
            let claimed: Vec<JobId> = claim(&store, "w", 9).await.into_iter().map(|job| job.lease.job).collect();
            assert_eq!(claimed, [ids[1]], "{op:?}");
        });
    }
}

/// Nobody else would make it ready.
#[test]
fn a_held_job_whose_record_cannot_be_read_is_set_aside_when_the_job_before_it_ends() {
    let server = Redis::start().unwrap();
    block(async {
        let url = fresh_url(&server.url());
        let (store, raw) = (open_at(&url, &virtual_clock()), Raw::open(&url));
        let keyed = || {
            let by = DedupBy::Key(DedupKey::new("k").unwrap());
            job_with(|spec| spec.dedup = Some(Dedup { by, mode: DedupMode::KeepLast, ttl_ms: None }))
        };
        enqueue(&store, vec![keyed()]).await;
        let lease = claim(&store, "w", 1).await.remove(0).lease;
        let held = enqueue(&store, vec![keyed()]).await[0];
        // Its life is written down, so that its record is not read again.
        let changed = store.change(vec![Change { id: held, op: ChangeOp::Reprioritise(1) }]).await.unwrap();
        assert_eq!(changed[0].as_ref().unwrap().state, Some(State::Scheduled));
        raw.set("jobs", held.to_string(), "noise").await;
        report_as(&store, "w", lease, complete()).await.unwrap();
        assert_set_aside(&store, &raw, held, "held").await;
        // The key is free.
        assert_eq!(enqueue(&store, vec![keyed()]).await.len(), 1);
        assert_eq!(claim(&store, "w", 9).await.len(), 1);
    });
}
