//! Keep-last-while-active: the one job that waits behind the active one. It is never lost, and never two.

use super::dedup::keyed;
use super::snapshot::snapshot;
use crate::ctx::{Ctx, complete, fail};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{DedupMode, Due, Lease, NewJob, Retry, State, Verb};
use windlass_core::payload::Payload;
use windlass_core::store::{ChangeOp, Enqueued, OutcomeKind, Reason, SweepKind};

cases!("dedup":
    a_held_job_waits_and_says_for_whom,
    the_held_job_goes_ahead_whatever_the_outcome,
    the_held_job_goes_ahead_when_the_holder_is_removed,
    the_held_job_waits_while_the_holder_is_tried_again,
    only_the_last_held_job_is_kept,
    a_held_job_that_is_cancelled_or_removed_makes_room,
    a_held_job_that_went_ahead_holds_the_key,
    a_held_job_waits_for_its_own_time_too,
    a_held_job_may_be_changed,
    a_held_job_outlives_the_time_of_the_key,
    a_replacement_takes_the_place_of_the_held_job,
    a_holder_that_backs_off_keeps_its_held_job,
);

const KEEP: DedupMode = DedupMode::KeepLast;

fn keep_last(ctx: &Ctx, queue: &str) -> NewJob {
    keyed(ctx, queue, KEEP, None)
}

/// An active job and one held behind it.
async fn pair(ctx: &Ctx, queue: &str, edit: fn(&mut NewJob)) -> (Lease, JobId) {
    let mut first = keep_last(ctx, queue);
    edit(&mut first);
    ctx.enqueue(first).await;
    let mut request = ctx.claim_request("w1", queue, 1);
    request.lease_ms = 200;
    let lease = ctx.store.claim(request).await.unwrap().jobs.remove(0).lease;
    let second = keep_last(ctx, queue);
    assert_eq!(ctx.enqueue(second.clone()).await, Enqueued::Held { id: second.id, behind: lease.job });
    (lease, second.id)
}

/// Nothing of the queue is stranded: all of it can be worked off.
async fn assert_works_off(ctx: &Ctx, queue: &str, what: &str) {
    for _ in 0..10 {
        let Some(job) = ctx.claim("last", queue, 1).await.pop() else { break };
        ctx.complete("last", job.lease).await.unwrap();
    }
    let counts = ctx.counts(queue).await;
    assert_eq!((counts.scheduled, counts.ready, counts.active), (0, 0, 0), "{what}: {counts:?}");
}

async fn a_held_job_waits_and_says_for_whom(ctx: Ctx) {
    let (lease, held) = pair(&ctx, "q", |_| {}).await;
    let job = ctx.get(held).await.unwrap();
    assert_eq!((job.state, job.due_at), (State::Scheduled, None));
    assert_eq!(ctx.store.explain(held).await.unwrap().reason, Reason::HeldBehind { job: lease.job });
    let counts = ctx.counts("q").await;
    assert_eq!((counts.scheduled, counts.active), (1, 1));
    assert!(ctx.claim("w2", "q", 10).await.is_empty());
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 0, "no time brings it");
    let before = snapshot(&ctx).await;
    for (op, verb) in [(ChangeOp::Promote, Verb::Promote), (ChangeOp::Reschedule(Due::Now), Verb::Reschedule)] {
        assert_eq!(ctx.change(held, op).await, Err(Error::IllegalTransition { from: State::Scheduled, verb }));
    }
    assert_eq!(snapshot(&ctx).await, before);
}

async fn the_held_job_goes_ahead_whatever_the_outcome(ctx: Ctx) {
    let outcomes = [
        ("complete", complete(), false, State::Succeeded),
        ("fail", fail("x", Retry::Never), false, State::Failed),
        ("fail the last attempt", fail("x", Retry::AfterMs(0)), false, State::Failed),
        ("release the last attempt", OutcomeKind::Release { started: true }, false, State::Failed),
        ("cancel", complete(), true, State::Cancelled),
        ("cancel and release", OutcomeKind::Release { started: false }, true, State::Cancelled),
    ];
    for (name, outcome, cancel, state) in outcomes {
        let (lease, held) = pair(&ctx, name, |job| (job.spec.attempts, job.spec.stalls) = (1, 0)).await;
        if cancel {
            ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
            assert_eq!(ctx.state(held).await, State::Scheduled, "{name}: its handler has not ended");
        }
        assert_eq!(ctx.report("w1", lease, outcome).await.unwrap().state, state, "{name}");
        assert_eq!(ctx.state(held).await, State::Ready, "{name}: in the same step");
        assert_works_off(&ctx, name, name).await;
    }
    let (lease, held) = pair(&ctx, "reap", |job| job.spec.stalls = 0).await;
    let (gone, next) = pair(&ctx, "gone at once", |job| job.spec.keep_for.succeeded_ms = Some(0)).await;
    ctx.complete("w1", gone).await.unwrap();
    assert_eq!((ctx.get(gone.job).await, ctx.state(next).await), (None, State::Ready));
    ctx.advance_ms(200).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
    assert_eq!((ctx.state(lease.job).await, ctx.state(held).await), (State::Failed, State::Ready), "reaped for good");
}

async fn the_held_job_goes_ahead_when_the_holder_is_removed(ctx: Ctx) {
    for (name, op) in [("remove", ChangeOp::Remove), ("cancel", ChangeOp::Cancel)] {
        for retry in [Retry::AfterMs(0), Retry::AfterMs(60_000)] {
            let queue = format!("{name} {retry:?}");
            let (lease, held) = pair(&ctx, &queue, |_| {}).await;
            ctx.fail("w1", lease, retry).await.unwrap();
            assert_eq!(ctx.state(held).await, State::Scheduled, "{queue}");
            ctx.change(lease.job, op.clone()).await.unwrap();
            assert_eq!(ctx.state(held).await, State::Ready, "{queue}");
            assert_works_off(&ctx, &queue, &queue).await;
        }
    }
}

async fn the_held_job_waits_while_the_holder_is_tried_again(ctx: Ctx) {
    let (lease, held) = pair(&ctx, "q", |_| {}).await;
    ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap();
    assert_eq!(ctx.state(held).await, State::Scheduled);
    let again = ctx.claim("w1", "q", 10).await;
    assert_eq!(again.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [lease.job], "never both");
    ctx.report("w1", again[0].lease, OutcomeKind::Release { started: false }).await.unwrap();
    let again = ctx.claim("w1", "q", 10).await;
    assert_eq!(again.len(), 1);
    ctx.complete("w1", again[0].lease).await.unwrap();
    assert_eq!(ctx.claim_one("w1", "q").await.lease.job, held);
}

async fn only_the_last_held_job_is_kept(ctx: Ctx) {
    let (lease, mut held) = pair(&ctx, "q", |_| {}).await;
    for _ in 0..5 {
        let next = keep_last(&ctx, "q");
        assert_eq!(ctx.enqueue(next.clone()).await, Enqueued::Replaced { id: next.id, old: held });
        assert_eq!(ctx.get(held).await, None);
        held = next.id;
        assert_eq!(ctx.counts("q").await.scheduled, 1);
    }
    assert_eq!(ctx.enqueue(keyed(&ctx, "q", DedupMode::Reject, None)).await, Enqueued::Deduplicated { by: lease.job });
    ctx.complete("w1", lease).await.unwrap();
    let claimed = ctx.claim("w1", "q", 10).await;
    assert_eq!(claimed.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [held]);
}

async fn a_held_job_that_is_cancelled_or_removed_makes_room(ctx: Ctx) {
    for (name, op) in [("cancel", ChangeOp::Cancel), ("remove", ChangeOp::Remove)] {
        let (lease, held) = pair(&ctx, name, |_| {}).await;
        ctx.change(held, op).await.unwrap();
        let next = keep_last(&ctx, name);
        assert_eq!(ctx.enqueue(next.clone()).await, Enqueued::Held { id: next.id, behind: lease.job }, "{name}");
        ctx.change(next.id, ChangeOp::Remove).await.unwrap();
        ctx.complete("w1", lease).await.unwrap();
        assert!(ctx.claim("w1", name, 1).await.is_empty(), "{name}: what was cancelled does not come back");
        let fresh = keep_last(&ctx, name);
        assert_eq!(ctx.enqueue(fresh.clone()).await, Enqueued::Created { id: fresh.id }, "{name}: the key is free");
    }
}

async fn a_held_job_that_went_ahead_holds_the_key(ctx: Ctx) {
    let (lease, held) = pair(&ctx, "q", |_| {}).await;
    ctx.complete("w1", lease).await.unwrap();
    assert_eq!(ctx.enqueue(keyed(&ctx, "q", DedupMode::Reject, None)).await, Enqueued::Deduplicated { by: held });
    assert_eq!(ctx.change(lease.job, ChangeOp::Retry(Due::Now)).await, Err(Error::KeyTaken { by: held }));
    ctx.change(lease.job, ChangeOp::Remove).await.unwrap();
    let next = keep_last(&ctx, "q");
    assert_eq!(ctx.enqueue(next.clone()).await, Enqueued::Replaced { id: next.id, old: held }, "it has not started");
    let active = ctx.claim_one("w1", "q").await.lease;
    let behind = keep_last(&ctx, "q");
    assert_eq!(ctx.enqueue(behind.clone()).await, Enqueued::Held { id: behind.id, behind: active.job });
    ctx.complete("w1", active).await.unwrap();
    assert_works_off(&ctx, "q", "a chain").await;
}

async fn a_held_job_waits_for_its_own_time_too(ctx: Ctx) {
    ctx.enqueue(keep_last(&ctx, "q")).await;
    let lease = ctx.claim_one("w1", "q").await.lease;
    let at = ctx.now().await.plus_ms(300);
    let held = keep_last(&ctx, "q").due(Due::At(at));
    assert_eq!(ctx.enqueue(held.clone()).await, Enqueued::Held { id: held.id, behind: lease.job });
    assert_eq!(ctx.get(held.id).await.unwrap().due_at, None, "nobody knows when the other ends");
    ctx.complete("w1", lease).await.unwrap();
    let job = ctx.get(held.id).await.unwrap();
    assert_eq!((job.state, job.due_at), (State::Scheduled, Some(at)), "no job starts before its time");
    assert!(ctx.claim("w1", "q", 1).await.is_empty());
    ctx.advance_ms(300).await;
    let lease = ctx.claim_one("w1", "q").await.lease;
    let held = keep_last(&ctx, "q").due(Due::DelayMs(20));
    ctx.enqueue(held.clone()).await;
    ctx.advance_ms(20).await;
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 0);
    ctx.complete("w1", lease).await.unwrap();
    assert_eq!(ctx.state(held.id).await, State::Ready, "its time has passed meanwhile");
}

async fn a_held_job_may_be_changed(ctx: Ctx) {
    let (lease, held) = pair(&ctx, "q", |_| {}).await;
    let payload = Payload::json("newer").unwrap();
    ctx.change(held, ChangeOp::UpdatePayload(payload.clone())).await.unwrap();
    ctx.change(held, ChangeOp::Reprioritise(-4)).await.unwrap();
    assert_eq!(ctx.state(held).await, State::Scheduled);
    ctx.enqueue(ctx.job("q", "other")).await;
    ctx.complete("w1", lease).await.unwrap();
    let claimed = ctx.claim_one("w1", "q").await;
    assert_eq!((claimed.lease.job, &claimed.spec.payload), (held, &payload));
}

async fn a_held_job_outlives_the_time_of_the_key(ctx: Ctx) {
    for prune in [false, true] {
        let queue = format!("prune {prune}");
        ctx.enqueue(keyed(&ctx, &queue, KEEP, Some(50))).await;
        let lease = ctx.claim_one("w1", &queue).await.lease;
        let held = ctx.enqueue(keyed(&ctx, &queue, KEEP, Some(50))).await.id();
        ctx.advance_ms(60).await;
        if prune {
            ctx.sweep(SweepKind::Prune).await;
        }
        let late = keyed(&ctx, &queue, KEEP, Some(50));
        assert_eq!(ctx.enqueue(late.clone()).await, Enqueued::Replaced { id: late.id, old: held }, "{queue}");
        ctx.advance_ms(60).await;
        ctx.complete("w1", lease).await.unwrap();
        assert_eq!(ctx.state(late.id).await, State::Ready, "{queue}");
        assert_works_off(&ctx, &queue, &queue).await;
    }
}

async fn a_replacement_takes_the_place_of_the_held_job(ctx: Ctx) {
    let (lease, held) = pair(&ctx, "q", |_| {}).await;
    let newer = keyed(&ctx, "q", DedupMode::Replace, None);
    assert_eq!(ctx.enqueue(newer.clone()).await, Enqueued::Replaced { id: newer.id, old: held });
    assert_eq!(ctx.get(held).await, None);
    assert_eq!(ctx.state(newer.id).await, State::Scheduled, "in its place: behind the active one");
    ctx.complete("w1", lease).await.unwrap();
    assert_eq!(ctx.state(newer.id).await, State::Ready);
    assert_works_off(&ctx, "q", "replaced").await;
}

async fn a_holder_that_backs_off_keeps_its_held_job(ctx: Ctx) {
    for retry in [Retry::AfterMs(0), Retry::AfterMs(20)] {
        let queue = format!("{retry:?}");
        let (lease, held) = pair(&ctx, &queue, |_| {}).await;
        ctx.fail("w1", lease, retry).await.unwrap();
        let newer = keep_last(&ctx, &queue);
        assert_eq!(ctx.enqueue(newer.clone()).await, Enqueued::Replaced { id: newer.id, old: held }, "{queue}");
        let counts = ctx.counts(&queue).await;
        assert_eq!(counts.scheduled + counts.ready, 2, "{queue}: the holder and the last one: {counts:?}");
        ctx.advance_ms(20).await;
        let again = ctx.claim("w1", &queue, 10).await;
        assert_eq!(again.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [lease.job], "{queue}: one at a time");
        ctx.complete("w1", again[0].lease).await.unwrap();
        assert_eq!(ctx.claim_one("w1", &queue).await.lease.job, newer.id, "{queue}");
    }
}
