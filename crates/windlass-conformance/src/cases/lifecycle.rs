//! From enqueue to the end: the plain life of a job.

use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::job::{Retry, State};
use windlass_core::store::Enqueued;

cases!("lifecycle": enqueue_claim_complete, a_failed_attempt_is_retried, the_same_job_twice_is_one_job);

async fn enqueue_claim_complete(ctx: Ctx) {
    let job = ctx.job("mail", "email");
    let id = ctx.enqueue(job.clone()).await.id();
    assert_eq!(ctx.state(id).await, State::Ready);
    let claimed = ctx.claim_one("w1", "mail").await;
    assert_eq!((claimed.lease.job, claimed.lease.attempt), (id, 1));
    assert_eq!(*claimed.spec, job.spec);
    assert_eq!(ctx.state(id).await, State::Active);
    assert!(ctx.claim("w2", "mail", 10).await.is_empty(), "a leased job is given to nobody else");
    let reported = ctx.complete("w1", claimed.lease).await.unwrap();
    assert_eq!((reported.state, reported.repeated), (State::Succeeded, false));
    assert_eq!(ctx.state(id).await, State::Succeeded);
}

async fn a_failed_attempt_is_retried(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job_with("mail", |spec| spec.attempts = 2)).await.id();
    let first = ctx.claim_one("w1", "mail").await;
    assert_eq!(ctx.fail("w1", first.lease, Retry::AfterMs(500)).await.unwrap().state, State::Scheduled);
    assert!(ctx.claim("w1", "mail", 1).await.is_empty(), "not before its time");
    ctx.advance_ms(500).await;
    let second = ctx.claim_one("w1", "mail").await;
    assert_eq!((second.lease.job, second.lease.attempt), (id, 2));
    assert_eq!(ctx.fail("w1", second.lease, Retry::AfterMs(0)).await.unwrap().state, State::Failed);
    let job = ctx.get(id).await.unwrap();
    assert_eq!(job.failures.iter().map(|failure| failure.attempt).collect::<Vec<_>>(), [1, 2]);
}

async fn the_same_job_twice_is_one_job(ctx: Ctx) {
    let job = ctx.job("mail", "email");
    let id = job.id;
    assert_eq!(ctx.enqueue(job.clone()).await, Enqueued::Created { id });
    assert_eq!(ctx.enqueue(job.clone()).await, Enqueued::Existing { id });
    let mut other = job;
    other.spec.priority = 1;
    assert!(ctx.try_enqueue(other).await.is_err(), "another content under the same id");
    assert_eq!(ctx.counts("mail").await.ready, 1);
}
