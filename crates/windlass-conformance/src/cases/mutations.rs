//! Changes by id: promote, reschedule, reprioritise, update payload, cancel, retry, remove.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, complete, fail};
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Due, Lease, Progress, Retry, State, Verb};
use windlass_core::payload::Payload;
use windlass_core::store::{Change, ChangeOp, Changed, OutcomeKind, RenewRequest, Renewal, SweepKind};
use windlass_core::time::Timestamp;

cases!("mutations":
    an_unknown_job_is_not_found,
    changes_are_answered_in_order,
    changes_of_one_batch_see_each_other,
    promote_makes_a_scheduled_job_ready,
    reschedule_moves_a_time_forward_and_to_now,
    update_payload_reaches_the_next_claim,
    a_payload_may_grow_and_shrink,
    reprioritise_changes_what_is_shown,
    cancel_ends_what_waits_at_once,
    cancel_of_an_active_job_wins_over_every_outcome,
    a_cancelled_job_is_never_tried_again_by_itself,
    retry_gives_a_new_life,
    retry_forgets_what_the_last_life_achieved,
    retry_may_wait,
    a_retry_after_a_cancel_is_not_cancelled,
    remove_forgets_everything,
);

fn to(state: State) -> windlass_core::Result<Changed> {
    Ok(Changed { state: Some(state) })
}

async fn one(ctx: &Ctx, queue: &str) -> JobId {
    ctx.enqueue(ctx.job(queue, "work")).await.id()
}

async fn later(ctx: &Ctx, queue: &str) -> JobId {
    ctx.enqueue(ctx.job(queue, "work").due(Due::DelayMs(3_600_000))).await.id()
}

async fn active(ctx: &Ctx, queue: &str) -> Lease {
    let id = one(ctx, queue).await;
    let lease = ctx.claim_one("w1", queue).await.lease;
    assert_eq!(lease.job, id);
    lease
}

fn every_op() -> Vec<ChangeOp> {
    vec![
        ChangeOp::Cancel,
        ChangeOp::Promote,
        ChangeOp::Reschedule(Due::Now),
        ChangeOp::Reprioritise(1),
        ChangeOp::UpdatePayload(Payload::default()),
        ChangeOp::Retry(Due::Now),
        ChangeOp::Remove,
    ]
}

async fn an_unknown_job_is_not_found(ctx: Ctx) {
    let before = snapshot(&ctx).await;
    for op in every_op() {
        let answer = ctx.change(ctx.ids.next(), op.clone()).await;
        assert!(matches!(&answer, Err(error) if error.is_not_found()), "{op:?}: {answer:?}");
    }
    assert_eq!(snapshot(&ctx).await, before);
    assert_eq!(ctx.get(ctx.ids.next()).await, None);
    let id = one(&ctx, "q").await;
    ctx.change(id, ChangeOp::Remove).await.unwrap();
    for op in every_op() {
        let answer = ctx.change(id, op.clone()).await;
        assert!(matches!(&answer, Err(error) if error.is_not_found()), "{op:?} after it was removed: {answer:?}");
    }
}

async fn changes_are_answered_in_order(ctx: Ctx) {
    assert!(ctx.store.change(vec![]).await.unwrap().is_empty());
    let (a, b, c) = (one(&ctx, "q").await, later(&ctx, "q").await, one(&ctx, "q").await);
    let missing = ctx.ids.next();
    let change = |id, op| Change { id, op };
    let answers = ctx
        .store
        .change(vec![
            change(c, ChangeOp::Remove),
            change(missing, ChangeOp::Cancel),
            change(b, ChangeOp::Promote),
            change(a, ChangeOp::Promote),
            change(a, ChangeOp::Cancel),
        ])
        .await
        .unwrap();
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0], Ok(Changed { state: None }));
    assert!(matches!(answers[1], Err(Error::NotFound { .. })), "{answers:?}");
    assert_eq!(answers[2], to(State::Ready));
    assert_eq!(answers[3], Err(Error::IllegalTransition { from: State::Ready, verb: Verb::Promote }));
    assert_eq!(answers[4], to(State::Cancelled));
    let found = ctx.store.get(vec![b, c, a, missing]).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|job| job.map(|job| job.id)).collect();
    assert_eq!(found, [Some(b), None, Some(a), None]);
}

async fn changes_of_one_batch_see_each_other(ctx: Ctx) {
    let id = one(&ctx, "q").await;
    let ops = [
        ChangeOp::Cancel,
        ChangeOp::Retry(Due::DelayMs(60_000)),
        ChangeOp::Promote,
        ChangeOp::Remove,
        ChangeOp::Cancel,
    ];
    let answers = ctx.store.change(ops.map(|op| Change { id, op }).to_vec()).await.unwrap();
    assert_eq!(answers[..3], [to(State::Cancelled), to(State::Scheduled), to(State::Ready)]);
    assert_eq!(answers[3], Ok(Changed { state: None }));
    assert!(matches!(answers[4], Err(Error::NotFound { .. })));
}

async fn promote_makes_a_scheduled_job_ready(ctx: Ctx) {
    let id = later(&ctx, "q").await;
    assert!(ctx.claim("w1", "q", 1).await.is_empty());
    assert_eq!(ctx.change(id, ChangeOp::Promote).await, to(State::Ready));
    assert_eq!(ctx.get(id).await.unwrap().due_at, None);
    let lease = ctx.claim_one("w1", "q").await.lease;
    ctx.fail("w1", lease, Retry::AfterMs(3_600_000)).await.unwrap();
    assert_eq!(ctx.change(id, ChangeOp::Promote).await, to(State::Ready), "out of its back-off, too");
    assert_eq!(ctx.claim_one("w1", "q").await.lease.attempt, 2);
}

async fn reschedule_moves_a_time_forward_and_to_now(ctx: Ctx) {
    let id = one(&ctx, "q").await;
    let at = ctx.now().await.plus_ms(60_000);
    assert_eq!(ctx.change(id, ChangeOp::Reschedule(Due::At(at))).await, to(State::Scheduled));
    assert_eq!(ctx.get(id).await.unwrap().due_at, Some(at));
    assert!(ctx.claim("w1", "q", 1).await.is_empty());
    assert_eq!(ctx.change(id, ChangeOp::Reschedule(Due::DelayMs(50))).await, to(State::Scheduled));
    ctx.advance_ms(50).await;
    let lease = ctx.claim_one("w1", "q").await.lease;
    ctx.fail("w1", lease, Retry::AfterMs(60_000)).await.unwrap();
    assert_eq!(ctx.change(id, ChangeOp::Reschedule(Due::Now)).await, to(State::Ready));
    assert_eq!(ctx.claim_one("w1", "q").await.lease.attempt, 2, "moving its time spends nothing");
    let other = later(&ctx, "q").await;
    assert_eq!(ctx.change(other, ChangeOp::Reschedule(Due::At(Timestamp::from_ms(1)))).await, to(State::Ready));
    assert_eq!(ctx.counts("q").await.scheduled, 0);
}

/// Stores may keep small and large payloads in different places.
async fn a_payload_may_grow_and_shrink(ctx: Ctx) {
    let id = one(&ctx, "sizes").await;
    for bytes in [1, 1 << 20, 1_024, 1_025, 0, 64 << 10, 10] {
        let payload = Payload::new("application/octet-stream", vec![7; bytes]);
        assert_eq!(ctx.change(id, ChangeOp::UpdatePayload(payload.clone())).await, to(State::Ready));
        assert_eq!(ctx.get(id).await.unwrap().spec.payload, payload, "{bytes} bytes");
        let claimed = ctx.claim_one("w", "sizes").await;
        assert_eq!(claimed.spec.payload, payload, "{bytes} bytes");
        ctx.report("w", claimed.lease, OutcomeKind::Release { started: false }).await.unwrap();
    }
}

async fn update_payload_reaches_the_next_claim(ctx: Ctx) {
    let ready = one(&ctx, "ready").await;
    let scheduled = later(&ctx, "scheduled").await;
    let failed = active(&ctx, "failed").await;
    ctx.fail("w1", failed, Retry::Never).await.unwrap();
    let rows = [
        ("ready", ready, State::Ready),
        ("scheduled", scheduled, State::Scheduled),
        ("failed", failed.job, State::Failed),
    ];
    for (queue, id, state) in rows {
        let before = ctx.get(id).await.unwrap();
        let payload = Payload::new("application/x-other", vec![0, 255, 1]);
        assert_eq!(ctx.change(id, ChangeOp::UpdatePayload(payload.clone())).await, to(state), "{queue}");
        let mut after = ctx.get(id).await.unwrap();
        assert_eq!(after.spec.payload, payload, "{queue}");
        after.spec = before.spec.clone();
        assert_eq!(after, before, "{queue}: nothing else changed");
        match state {
            State::Scheduled => drop(ctx.change(id, ChangeOp::Promote).await.unwrap()),
            State::Failed => drop(ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap()),
            _ => {}
        }
        assert_eq!(ctx.claim_one("w1", queue).await.spec.payload, payload, "{queue}");
    }
}

async fn reprioritise_changes_what_is_shown(ctx: Ctx) {
    for (name, id) in [("ready", one(&ctx, "q").await), ("scheduled", later(&ctx, "q").await)] {
        for priority in [i16::MIN, i16::MAX, 0, 7] {
            ctx.change(id, ChangeOp::Reprioritise(priority)).await.unwrap();
            assert_eq!(ctx.get(id).await.unwrap().spec.priority, priority, "{name}");
        }
    }
}

async fn cancel_ends_what_waits_at_once(ctx: Ctx) {
    let backing_off = active(&ctx, "q").await;
    ctx.fail("w1", backing_off, Retry::AfterMs(100)).await.unwrap();
    for id in [one(&ctx, "q").await, later(&ctx, "q").await, backing_off.job] {
        assert_eq!(ctx.change(id, ChangeOp::Cancel).await, to(State::Cancelled));
        let job = ctx.get(id).await.unwrap();
        assert_eq!((job.state, job.due_at, job.finished_at.is_some()), (State::Cancelled, None, true));
        let before = snapshot(&ctx).await;
        assert_eq!(ctx.change(id, ChangeOp::Cancel).await, to(State::Cancelled), "twice is fine");
        assert_eq!(snapshot(&ctx).await, before);
    }
    ctx.advance_ms(100).await;
    ctx.sweep(SweepKind::Promote).await;
    assert!(ctx.claim("w1", "q", 10).await.is_empty());
    assert_eq!(ctx.counts("q").await.cancelled, 3);
    for (queue, retry, state) in [("failed", Some(Retry::Never), State::Failed), ("succeeded", None, State::Succeeded)]
    {
        let lease = active(&ctx, queue).await;
        ctx.report("w1", lease, retry.map_or(complete(), |retry| fail("x", retry))).await.unwrap();
        let refused = ctx.change(lease.job, ChangeOp::Cancel).await;
        assert_eq!(refused, Err(Error::IllegalTransition { from: state, verb: Verb::Cancel }));
    }
}

async fn cancel_of_an_active_job_wins_over_every_outcome(ctx: Ctx) {
    let result = Some(Payload::json("done").unwrap());
    let outcomes = [
        ("complete", OutcomeKind::Complete { result, outputs: BTreeMap::from([("a".to_owned(), "b".to_owned())]) }),
        ("fail", fail("x", Retry::AfterMs(0))),
        ("fail later", fail("x", Retry::AfterMs(1_000))),
        ("fail for good", fail("x", Retry::Never)),
        ("release", OutcomeKind::Release { started: false }),
        ("release when started", OutcomeKind::Release { started: true }),
    ];
    for (name, outcome) in outcomes {
        let lease = active(&ctx, name).await;
        for _ in 0..2 {
            assert_eq!(ctx.change(lease.job, ChangeOp::Cancel).await, to(State::Active), "{name}: its handler is told");
            let job = ctx.get(lease.job).await.unwrap();
            assert!(job.cancel_requested && job.lease.is_some() && job.finished_at.is_none(), "{name}");
        }
        assert_eq!(ctx.report("w1", lease, outcome).await.unwrap().state, State::Cancelled, "{name}");
        let job = ctx.get(lease.job).await.unwrap();
        assert_eq!((job.state, job.result, job.outputs.len()), (State::Cancelled, None, 0), "{name}");
        assert!(ctx.claim("w1", name, 1).await.is_empty(), "{name}");
        assert_eq!((ctx.counts(name).await.active, ctx.counts(name).await.cancelled), (0, 1), "{name}");
    }
}

async fn a_cancelled_job_is_never_tried_again_by_itself(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job_with("q", |spec| (spec.attempts, spec.stalls) = (100, 100))).await.id();
    let mut request = ctx.claim_request("w1", "q", 1);
    request.lease_ms = 20;
    let lease = ctx.store.claim(request).await.unwrap().jobs[0].lease;
    ctx.change(id, ChangeOp::Cancel).await.unwrap();
    ctx.advance_ms(20).await;
    assert_eq!(ctx.state(id).await, State::Active, "until its handler ends or its lease does");
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
    assert_eq!(ctx.state(id).await, State::Cancelled);
    assert_eq!(ctx.complete("w1", lease).await, Err(Error::LeaseLost));
    for kind in SweepKind::ALL {
        ctx.sweep(kind).await;
    }
    assert!(ctx.claim("w1", "q", 1).await.is_empty());
    assert_eq!(ctx.state(id).await, State::Cancelled);
}

async fn retry_gives_a_new_life(ctx: Ctx) {
    for (queue, outcome) in [("succeeded", complete()), ("failed", fail("x", Retry::Never))] {
        let id = ctx.enqueue(ctx.job_with(queue, |spec| spec.attempts = 2)).await.id();
        let lease = ctx.claim_one("w1", queue).await.lease;
        ctx.report("w1", lease, outcome).await.unwrap();
        assert_eq!(ctx.change(id, ChangeOp::Retry(Due::Now)).await, to(State::Ready), "{queue}");
        let job = ctx.get(id).await.unwrap();
        assert_eq!((job.attempt, job.stall_count, job.retry_count, job.finished_at), (0, 0, 1, None), "{queue}");
        let twice = ctx.change(id, ChangeOp::Retry(Due::Now)).await;
        assert_eq!(twice, Err(Error::IllegalTransition { from: State::Ready, verb: Verb::Retry }), "{queue}");
        for attempt in 1..=2 {
            let again = ctx.claim_one("w1", queue).await.lease;
            assert_eq!(again.attempt, attempt, "{queue}: all its attempts");
            assert_ne!(again.token, lease.token);
            ctx.fail("w1", again, Retry::AfterMs(0)).await.unwrap();
        }
        assert_eq!(ctx.state(id).await, State::Failed, "{queue}");
    }
}

async fn retry_forgets_what_the_last_life_achieved(ctx: Ctx) {
    let lease = active(&ctx, "q").await;
    let progress = Some(Progress { percent: 90, message: "nearly".to_owned() });
    let renewals = vec![Renewal { lease, lease_ms: None, progress }];
    ctx.store.renew(RenewRequest { renewals }).await.unwrap().remove(0).unwrap();
    let result = Some(Payload::json("old").unwrap());
    let outputs = BTreeMap::from([("a".to_owned(), "old".to_owned())]);
    ctx.report("w1", lease, OutcomeKind::Complete { result, outputs }).await.unwrap();
    ctx.change(lease.job, ChangeOp::Retry(Due::Now)).await.unwrap();
    let nothing = |job: windlass_core::job::Job| (job.progress, job.result, job.outputs.len());
    assert_eq!(nothing(ctx.get(lease.job).await.unwrap()), (None, None, 0));
    let again = ctx.claim_one("w1", "q").await.lease;
    ctx.complete("w1", again).await.unwrap();
    assert_eq!(nothing(ctx.get(lease.job).await.unwrap()), (None, None, 0), "an old result is no new one");
}

async fn retry_may_wait(ctx: Ctx) {
    let lease = active(&ctx, "q").await;
    ctx.fail("w1", lease, Retry::Never).await.unwrap();
    assert_eq!(ctx.change(lease.job, ChangeOp::Retry(Due::DelayMs(50))).await, to(State::Scheduled));
    assert!(ctx.claim("w1", "q", 1).await.is_empty());
    ctx.advance_ms(50).await;
    assert_eq!(ctx.claim_one("w1", "q").await.lease.job, lease.job);
}

async fn a_retry_after_a_cancel_is_not_cancelled(ctx: Ctx) {
    let lease = active(&ctx, "q").await;
    ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
    ctx.complete("w1", lease).await.unwrap();
    assert_eq!(ctx.change(lease.job, ChangeOp::Retry(Due::Now)).await, to(State::Ready));
    assert!(!ctx.get(lease.job).await.unwrap().cancel_requested, "or the next run would die");
    let again = ctx.claim_one("w1", "q").await.lease;
    assert_eq!(ctx.complete("w1", again).await.unwrap().state, State::Succeeded);
}

async fn remove_forgets_everything(ctx: Ctx) {
    let ended = active(&ctx, "q").await;
    ctx.complete("w1", ended).await.unwrap();
    let failed = active(&ctx, "q").await;
    ctx.fail("w1", failed, Retry::Never).await.unwrap();
    let cancelled = one(&ctx, "q").await;
    ctx.change(cancelled, ChangeOp::Cancel).await.unwrap();
    for id in [one(&ctx, "q").await, later(&ctx, "q").await, ended.job, failed.job, cancelled] {
        assert_eq!(ctx.change(id, ChangeOp::Remove).await, Ok(Changed { state: None }));
        assert_eq!(ctx.get(id).await, None);
        assert!(ctx.store.explain(id).await.unwrap_err().is_not_found());
    }
    assert_eq!(ctx.counts("q").await, Default::default());
    assert!(ctx.claim("w1", "q", 10).await.is_empty());
    let running = active(&ctx, "q").await;
    let refused = ctx.change(running.job, ChangeOp::Remove).await;
    assert_eq!(refused, Err(Error::IllegalTransition { from: State::Active, verb: Verb::Remove }), "cancel it first");
    assert_eq!(ctx.complete("w1", running).await.unwrap().state, State::Succeeded);
}
