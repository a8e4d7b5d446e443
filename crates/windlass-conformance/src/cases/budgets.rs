//! Attempts and stalls: two budgets, and the dead letter at the end of each.

use crate::ctx::{Ctx, complete, fail};
use crate::runner::cases;
use windlass_core::id::JobId;
use windlass_core::job::{Due, FailureClass, Lease, Retry, State};
use windlass_core::store::{ChangeOp, OutcomeKind, SweepKind};

cases!("budgets":
    attempts_end_in_a_dead_letter,
    stalls_end_in_a_dead_letter,
    a_stall_with_none_allowed_is_a_dead_letter_and_no_loss,
    stalls_and_attempts_are_spent_apart,
    deliveries_are_at_most_attempts_and_stalls,
    releases_do_not_count,
    a_final_failure_spends_nothing_more,
    the_list_of_failures_is_kept_and_bounded,
    long_messages_are_cut,
    a_dead_letter_keeps_its_payload_and_starts_anew,
    every_later_claim_has_a_higher_claim_number,
);

async fn job(ctx: &Ctx, attempts: u32, stalls: u32) -> JobId {
    ctx.enqueue(ctx.job_with("q", |spec| (spec.attempts, spec.stalls) = (attempts, stalls))).await.id()
}

async fn claim(ctx: &Ctx) -> Option<Lease> {
    let mut request = ctx.claim_request("w1", "q", 1);
    request.lease_ms = 10;
    ctx.store.claim(request).await.unwrap().jobs.pop().map(|job| job.lease)
}

/// The worker vanishes.
async fn stall(ctx: &Ctx) {
    ctx.advance_ms(10).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
}

async fn attempts_end_in_a_dead_letter(ctx: Ctx) {
    let id = job(&ctx, 3, 1).await;
    for attempt in 1..=3 {
        let lease = claim(&ctx).await.unwrap();
        assert_eq!(lease.attempt, attempt);
        let state = ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap().state;
        assert_eq!(state, if attempt < 3 { State::Ready } else { State::Failed });
    }
    assert_eq!(claim(&ctx).await, None);
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.attempt, job.stall_count, job.failures.len()), (3, 0, 3));
    assert_eq!(ctx.counts("q").await.failed, 1);
}

async fn stalls_end_in_a_dead_letter(ctx: Ctx) {
    let id = job(&ctx, 1, 2).await;
    for stalls in 1..=3 {
        let lease = claim(&ctx).await.unwrap();
        assert_eq!(lease.attempt, 1, "a stall gives the attempt back");
        stall(&ctx).await;
        let job = ctx.get(id).await.unwrap();
        assert_eq!((job.stall_count, job.attempt), (stalls, 0));
        assert_eq!(job.state, if stalls < 3 { State::Ready } else { State::Failed });
    }
    assert_eq!(claim(&ctx).await, None);
    let job = ctx.get(id).await.unwrap();
    assert_eq!(job.failures.iter().map(|failure| failure.class).collect::<Vec<_>>(), [FailureClass::Stalled; 3]);
}

async fn a_stall_with_none_allowed_is_a_dead_letter_and_no_loss(ctx: Ctx) {
    let id = job(&ctx, 5, 0).await;
    claim(&ctx).await.unwrap();
    stall(&ctx).await;
    let job = ctx.get(id).await.expect("never dropped");
    assert_eq!((job.state, job.failures.len(), job.finished_at.is_some()), (State::Failed, 1, true));
    assert_eq!(claim(&ctx).await, None);
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0);
    assert_eq!(ctx.counts("q").await.failed, 1);
    assert_eq!(ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap().state, Some(State::Ready));
    assert_eq!(claim(&ctx).await.map(|lease| lease.job), Some(id));
}

async fn stalls_and_attempts_are_spent_apart(ctx: Ctx) {
    let id = job(&ctx, 2, 1).await;
    claim(&ctx).await.unwrap();
    stall(&ctx).await;
    let lease = claim(&ctx).await.unwrap();
    assert_eq!(lease.attempt, 1);
    assert_eq!(
        ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap().state,
        State::Ready,
        "the stall cost no attempt"
    );
    let lease = claim(&ctx).await.unwrap();
    assert_eq!(lease.attempt, 2);
    assert_eq!(ctx.report("w1", lease, complete()).await.unwrap().state, State::Succeeded);
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.attempt, job.stall_count), (2, 1));
}

/// Whatever comes first, failures or stalls.
async fn deliveries_are_at_most_attempts_and_stalls(ctx: Ctx) {
    for order in 0..32_u32 {
        let id = job(&ctx, 3, 2).await;
        let mut deliveries = 0;
        while let Some(lease) = claim(&ctx).await {
            if order >> deliveries & 1 == 0 {
                ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap();
            } else {
                stall(&ctx).await;
            }
            deliveries += 1;
            assert!(deliveries <= 5, "order {order:05b}");
        }
        assert!(deliveries >= 3, "order {order:05b}: {deliveries}");
        assert_eq!(ctx.state(id).await, State::Failed, "order {order:05b}: then dead letter");
    }
}

async fn releases_do_not_count(ctx: Ctx) {
    let id = job(&ctx, 1, 0).await;
    for _ in 0..10 {
        let lease = claim(&ctx).await.unwrap();
        ctx.report("w1", lease, OutcomeKind::Release { started: false }).await.unwrap();
    }
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.state, job.attempt, job.stall_count), (State::Ready, 0, 0));
}

async fn a_final_failure_spends_nothing_more(ctx: Ctx) {
    let id = job(&ctx, 5, 5).await;
    let lease = claim(&ctx).await.unwrap();
    assert_eq!(ctx.fail("w1", lease, Retry::Never).await.unwrap().state, State::Failed);
    assert_eq!(ctx.get(id).await.unwrap().attempt, 1);
    assert_eq!(claim(&ctx).await, None);
}

async fn the_list_of_failures_is_kept_and_bounded(ctx: Ctx) {
    let id = job(&ctx, 100, 0).await;
    for attempt in 1..=100 {
        let lease = claim(&ctx).await.unwrap();
        let before = ctx.now().await;
        ctx.report("w1", lease, fail(&format!("error {attempt}"), Retry::AfterMs(0))).await.unwrap();
        let failures = ctx.get(id).await.unwrap().failures;
        let last = failures.last().unwrap();
        assert_eq!((last.attempt, &last.message), (attempt, &format!("error {attempt}")));
        assert!(last.at >= before && last.at <= ctx.now().await, "by the store's clock, not by the worker's");
        assert!(failures.len() <= 10, "{} are kept", failures.len());
    }
    let kept: Vec<u32> = ctx.get(id).await.unwrap().failures.iter().map(|failure| failure.attempt).collect();
    assert_eq!(kept, (91..=100).collect::<Vec<_>>(), "the last ones, oldest first");
}

async fn long_messages_are_cut(ctx: Ctx) {
    let id = job(&ctx, 2, 0).await;
    let lease = claim(&ctx).await.unwrap();
    let message = "é".repeat(100_000);
    ctx.report("w1", lease, fail(&message, Retry::Never)).await.unwrap();
    let kept = ctx.get(id).await.unwrap().failures.remove(0).message;
    assert!(kept.len() < 20_000 && kept.starts_with("ééé"), "{} bytes are kept", kept.len());
}

async fn a_dead_letter_keeps_its_payload_and_starts_anew(ctx: Ctx) {
    let new = ctx.job_with("q", |spec| (spec.attempts, spec.stalls) = (1, 0));
    let id = ctx.enqueue(new.clone()).await.id();
    for round in 1..=3 {
        let lease = claim(&ctx).await.unwrap();
        assert_eq!(lease.attempt, 1, "round {round} has all its attempts");
        if round == 2 {
            stall(&ctx).await;
        } else {
            ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap();
        }
        let dead = ctx.get(id).await.unwrap();
        assert_eq!((dead.state, dead.spec.payload == new.spec.payload), (State::Failed, true));
        assert_eq!(dead.failures.len(), round, "what went wrong before is still told");
        assert_eq!(ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap().state, Some(State::Ready));
        let again = ctx.get(id).await.unwrap();
        assert_eq!((again.attempt, again.stall_count, again.finished_at), (0, 0, None));
        assert_eq!(again.retry_count as usize, round);
    }
}

/// A store for what jobs produce tells by it which of two uploads is that of the older claim.
async fn every_later_claim_has_a_higher_claim_number(ctx: Ctx) {
    enum End {
        Stalls,
        Fails,
        IsReleased,
        IsRetried,
    }
    use End::{Fails, IsReleased, IsRetried, Stalls};
    let id = job(&ctx, 3, 3).await;
    let mut numbers = Vec::new();
    for end in [Stalls, IsReleased, Fails, Stalls, IsReleased, IsRetried, Stalls, Fails, IsRetried, Stalls] {
        let mut request = ctx.claim_request("w1", "q", 1);
        request.lease_ms = 10;
        let claimed = ctx.store.claim(request).await.unwrap().jobs.remove(0);
        numbers.push(claimed.claim_number());
        match end {
            Stalls => stall(&ctx).await,
            Fails => drop(ctx.fail("w1", claimed.lease, Retry::AfterMs(0)).await.unwrap()),
            IsReleased => drop(ctx.report("w1", claimed.lease, OutcomeKind::Release { started: true }).await.unwrap()),
            IsRetried => {
                ctx.fail("w1", claimed.lease, Retry::Never).await.unwrap();
                ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap();
            }
        }
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}
