//! Leases: what a claim gives, what it allows, and when it is lost.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, LEASE_MS, TestClock, complete, fail, queue_name, worker_id};
use crate::runner::cases;
use windlass_core::id::Token;
use windlass_core::job::{FailureClass, JobSpec, Lease, Progress, Retry, State};
use windlass_core::name::Labels;
use windlass_core::store::{
    Beat, ChangeOp, Kinds, LogAppend, LogLine, LogStream, OutcomeKind, RenewRequest, Renewal, Renewed, SweepKind,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

cases!("leases":
    a_claim_sets_state_attempt_and_a_fresh_token_at_once,
    a_stale_lease_can_do_nothing,
    a_forged_token_can_do_nothing,
    a_lease_of_a_job_that_is_gone_can_do_nothing,
    a_lease_is_reaped_only_after_it_ran_out,
    a_renewal_extends_from_now_and_never_shortens,
    a_clock_that_jumps_back_takes_nothing_away,
    a_lease_that_ran_out_but_was_not_reaped_still_speaks,
    progress_is_noted_with_and_without_a_renewal,
    renewals_are_answered_in_order,
    a_cancel_is_told_by_renewal_and_heartbeat,
    a_release_before_the_start_gives_the_attempt_back,
    a_release_after_the_start_spends_the_attempt,
);

pub(super) async fn renew(ctx: &Ctx, lease: Lease, lease_ms: Option<u64>) -> Result<Renewed> {
    let renewals = vec![Renewal { lease, lease_ms, progress: None }];
    ctx.store.renew(RenewRequest { renewals }).await.unwrap().remove(0)
}

async fn progress(ctx: &Ctx, lease: Lease, percent: u8) -> Result<Renewed> {
    let progress = Some(Progress { percent, message: format!("{percent} done") });
    let renewals = vec![Renewal { lease, lease_ms: None, progress }];
    ctx.store.renew(RenewRequest { renewals }).await.unwrap().remove(0)
}

async fn log(ctx: &Ctx, lease: Lease) -> Result<u64> {
    let line = LogLine { at: Timestamp::from_ms(5), stream: LogStream::Log, text: b"hello".to_vec().into() };
    ctx.store.append_logs(vec![LogAppend { lease, first: 0, lines: vec![line] }]).await.unwrap().remove(0)
}

/// Everything that a lease allows is refused, and nothing changes.
async fn assert_powerless(ctx: &Ctx, lease: Lease, what: &str) {
    let before = snapshot(ctx).await;
    assert_eq!(renew(ctx, lease, Some(LEASE_MS)).await, Err(Error::LeaseLost), "{what}: renew");
    assert_eq!(renew(ctx, lease, None).await, Err(Error::LeaseLost), "{what}: heartbeat");
    assert_eq!(progress(ctx, lease, 50).await, Err(Error::LeaseLost), "{what}: progress");
    assert_eq!(log(ctx, lease).await, Err(Error::LeaseLost), "{what}: log");
    let empty = LogAppend { lease, first: 0, lines: vec![] };
    assert_eq!(
        ctx.store.append_logs(vec![empty]).await.unwrap(),
        [Err(Error::LeaseLost)],
        "{what}: ask for the log's end"
    );
    let outcomes = [
        complete(),
        fail("late", Retry::AfterMs(0)),
        fail("late", Retry::Never),
        OutcomeKind::Release { started: false },
        OutcomeKind::Release { started: true },
    ];
    for outcome in outcomes {
        let answer = ctx.report("stale", lease, outcome.clone()).await;
        assert_eq!(answer, Err(Error::LeaseLost), "{what}: {outcome:?}");
    }
    assert_eq!(snapshot(ctx).await, before, "{what}: nothing changed");
}

async fn short_claim(ctx: &Ctx, worker: &str, queue: &str, lease_ms: u64) -> Lease {
    let mut request = ctx.claim_request(worker, queue, 1);
    request.lease_ms = lease_ms;
    ctx.store.claim(request).await.unwrap().jobs.remove(0).lease
}

async fn a_claim_sets_state_attempt_and_a_fresh_token_at_once(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let mut tokens = Vec::new();
    for attempt in 1..=3 {
        let claimed = ctx.claim_one("w1", "mail").await;
        let now = ctx.now().await;
        assert_eq!((claimed.lease.job, claimed.lease.attempt), (id, attempt));
        assert!(!tokens.contains(&claimed.lease.token), "a fresh token");
        tokens.push(claimed.lease.token);
        let job = ctx.get(id).await.unwrap();
        assert_eq!((job.state, job.attempt), (State::Active, attempt));
        let lease = job.lease.unwrap();
        assert_eq!((lease.worker, lease.expires_at), (worker_id("w1"), claimed.expires_at));
        let claimed_at = job.claimed_at.unwrap();
        assert_eq!(claimed_at.plus_ms(LEASE_MS), claimed.expires_at, "counted from the claim, by the store's clock");
        assert!(claimed_at <= now);
        let _ = ctx.fail("w1", claimed.lease, Retry::AfterMs(0)).await.unwrap();
        assert_eq!(ctx.get(id).await.unwrap().lease, None);
    }
}

async fn a_stale_lease_can_do_nothing(ctx: Ctx) {
    ctx.enqueue(ctx.job("mail", "work")).await;
    let old = short_claim(&ctx, "w1", "mail", 20).await;
    ctx.advance_ms(20).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
    assert_powerless(&ctx, old, "reaped").await;
    let new = ctx.claim_one("w2", "mail").await.lease;
    assert_ne!(new.token, old.token);
    assert_powerless(&ctx, old, "given to another worker").await;
    assert!(renew(&ctx, new, None).await.is_ok());
    ctx.complete("w2", new).await.unwrap();
    assert_powerless(&ctx, old, "completed by another worker").await;
    ctx.change(new.job, ChangeOp::Retry(windlass_core::job::Due::Now)).await.unwrap();
    assert_powerless(&ctx, old, "retried").await;
}

async fn a_forged_token_can_do_nothing(ctx: Ctx) {
    ctx.enqueue(ctx.job("mail", "work")).await;
    ctx.enqueue(ctx.job("other", "work")).await;
    let lease = ctx.claim_one("w1", "mail").await.lease;
    let other = ctx.claim_one("w1", "other").await.lease;
    for token in [Token::from_bits(0), Token::from_bits(lease.token.bits() ^ 1), other.token] {
        assert_powerless(&ctx, Lease { token, ..lease }, "forged").await;
    }
    assert_eq!(ctx.complete("w1", lease).await.unwrap().state, State::Succeeded);
}

async fn a_lease_of_a_job_that_is_gone_can_do_nothing(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let lease = short_claim(&ctx, "w1", "mail", 20).await;
    ctx.advance_ms(20).await;
    ctx.sweep(SweepKind::Reap).await;
    ctx.change(id, ChangeOp::Remove).await.unwrap();
    assert_powerless(&ctx, lease, "removed").await;
    assert_powerless(&ctx, Lease { job: ctx.ids.next(), ..lease }, "never there").await;
}

async fn a_lease_is_reaped_only_after_it_ran_out(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let mut request = ctx.claim_request("w1", "mail", 1);
    request.lease_ms = 1_000;
    let claimed = ctx.store.claim(request).await.unwrap().jobs.remove(0);
    if let TestClock::Virtual(clock) = &ctx.clock {
        clock.set(claimed.expires_at.minus_ms(1));
        assert_eq!(ctx.sweep(SweepKind::Reap).await, 0, "a millisecond is left");
        assert_eq!(ctx.state(id).await, State::Active);
        clock.set(claimed.expires_at);
    } else {
        assert_eq!(ctx.sweep(SweepKind::Reap).await, 0, "most of it is left");
        ctx.advance_ms(1_000).await;
    }
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.state, job.attempt, job.stall_count, job.lease), (State::Ready, 0, 1, None));
    assert_eq!(job.failures.len(), 1);
    assert_eq!((job.failures[0].class, job.failures[0].attempt), (FailureClass::Stalled, 1));
    assert!(job.failures[0].message.contains("w1"), "it says who: {}", job.failures[0].message);
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0, "once");
    assert_eq!(ctx.claim_one("w2", "mail").await.stall_count, 1);
}

async fn a_renewal_extends_from_now_and_never_shortens(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let lease = short_claim(&ctx, "w1", "mail", 500).await;
    let before = ctx.now().await;
    let renewed = renew(&ctx, lease, Some(2_000)).await.unwrap();
    assert!(renewed.expires_at >= before.plus_ms(2_000) && renewed.expires_at <= ctx.now().await.plus_ms(2_000));
    assert!(!renewed.cancel_requested);
    let shorter = renew(&ctx, lease, Some(10)).await.unwrap();
    assert_eq!(shorter, renewed, "an end is never moved earlier");
    assert_eq!(renew(&ctx, lease, None).await.unwrap(), renewed, "left where it is");
    assert_eq!(ctx.get(id).await.unwrap().lease.unwrap().expires_at, renewed.expires_at);
    ctx.advance_ms(600).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0, "the first end has passed, the new one has not");
    ctx.complete("w1", lease).await.unwrap();
}

async fn a_clock_that_jumps_back_takes_nothing_away(ctx: Ctx) {
    let TestClock::Virtual(clock) = &ctx.clock else { return };
    ctx.enqueue(ctx.job("mail", "work")).await;
    let claimed = ctx.claim_one("w1", "mail").await;
    let start = ctx.now().await;
    clock.set(start.minus_ms(3_600_000));
    assert_eq!(renew(&ctx, claimed.lease, Some(10)).await.unwrap().expires_at, claimed.expires_at);
    assert_eq!(renew(&ctx, claimed.lease, Some(LEASE_MS)).await.unwrap().expires_at, claimed.expires_at);
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0);
    assert!(ctx.claim("w2", "mail", 1).await.is_empty());
    clock.set(start);
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0);
    assert_eq!(ctx.complete("w1", claimed.lease).await.unwrap().state, State::Succeeded);
}

async fn a_lease_that_ran_out_but_was_not_reaped_still_speaks(ctx: Ctx) {
    ctx.enqueue(ctx.job("mail", "work")).await;
    let lease = short_claim(&ctx, "w1", "mail", 20).await;
    ctx.advance_ms(30).await;
    assert!(ctx.claim("w2", "mail", 1).await.is_empty(), "nobody has taken it away");
    let before = ctx.now().await;
    assert!(renew(&ctx, lease, Some(1_000)).await.unwrap().expires_at >= before.plus_ms(1_000));
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0, "the worker was in time");
    assert_eq!(ctx.complete("w1", lease).await.unwrap().state, State::Succeeded);
}

async fn progress_is_noted_with_and_without_a_renewal(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let claimed = ctx.claim_one("w1", "mail").await;
    for percent in [0, 50, 100] {
        let renewed = progress(&ctx, claimed.lease, percent).await.unwrap();
        assert_eq!(renewed.expires_at, claimed.expires_at);
        let seen = ctx.get(id).await.unwrap().progress.unwrap();
        assert_eq!((seen.percent, seen.message), (percent, format!("{percent} done")));
    }
    let progress = Some(Progress { percent: 7, message: String::new() });
    let renewals = vec![Renewal { lease: claimed.lease, lease_ms: Some(2 * LEASE_MS), progress: progress.clone() }];
    let renewed = ctx.store.renew(RenewRequest { renewals }).await.unwrap().remove(0).unwrap();
    assert!(renewed.expires_at > claimed.expires_at);
    assert_eq!(ctx.get(id).await.unwrap().progress, progress);
}

async fn renewals_are_answered_in_order(ctx: Ctx) {
    ctx.enqueue_all((0..3).map(|_| ctx.job("mail", "work")).collect()).await;
    let leases: Vec<Lease> = ctx.claim("w1", "mail", 3).await.iter().map(|job| job.lease).collect();
    ctx.complete("w1", leases[1]).await.unwrap();
    ctx.change(leases[2].job, ChangeOp::Cancel).await.unwrap();
    let renewal = |lease: &Lease| Renewal { lease: *lease, lease_ms: Some(LEASE_MS), progress: None };
    let renewals = leases.iter().map(renewal).collect();
    let answers = ctx.store.renew(RenewRequest { renewals }).await.unwrap();
    assert_eq!(answers.len(), 3);
    assert!(!answers[0].as_ref().unwrap().cancel_requested);
    assert_eq!(answers[1], Err(Error::LeaseLost));
    assert!(answers[2].as_ref().unwrap().cancel_requested);
    assert!(ctx.store.renew(RenewRequest::default()).await.unwrap().is_empty());
}

async fn a_cancel_is_told_by_renewal_and_heartbeat(ctx: Ctx) {
    ctx.enqueue_all((0..2).map(|_| ctx.job("mail", "work")).collect()).await;
    let mine = ctx.claim_one("w1", "mail").await.lease;
    let other = ctx.claim_one("w2", "mail").await.lease;
    let beat = |worker: &str| Beat {
        worker: worker_id(worker),
        queues: vec![queue_name("mail")],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 1,
        running: 1,
        about: String::new(),
        ttl_ms: 60_000,
    };
    assert!(ctx.store.heartbeat(beat("w1")).await.unwrap().cancelled.is_empty());
    ctx.change(mine.job, ChangeOp::Cancel).await.unwrap();
    assert_eq!(ctx.store.heartbeat(beat("w1")).await.unwrap().cancelled, [mine.job]);
    assert!(ctx.store.heartbeat(beat("w2")).await.unwrap().cancelled.is_empty(), "nobody else's");
    assert!(renew(&ctx, mine, None).await.unwrap().cancel_requested);
    assert!(renew(&ctx, mine, Some(LEASE_MS)).await.unwrap().cancel_requested);
    assert!(progress(&ctx, mine, 1).await.unwrap().cancel_requested);
    assert!(!renew(&ctx, other, None).await.unwrap().cancel_requested);
    ctx.complete("w1", mine).await.unwrap();
    assert!(ctx.store.heartbeat(beat("w1")).await.unwrap().cancelled.is_empty(), "it has ended");
}

async fn a_release_before_the_start_gives_the_attempt_back(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job_with("mail", |spec| spec.attempts = 1)).await.id();
    for _ in 0..5 {
        let lease = ctx.claim_one("w1", "mail").await.lease;
        assert_eq!(lease.attempt, 1);
        let reported = ctx.report("w1", lease, OutcomeKind::Release { started: false }).await.unwrap();
        assert_eq!((reported.state, reported.repeated), (State::Ready, false));
        let job = ctx.get(id).await.unwrap();
        assert_eq!((job.attempt, job.stall_count, job.failures.len(), job.lease), (0, 0, 0, None));
    }
}

async fn a_release_after_the_start_spends_the_attempt(ctx: Ctx) {
    let edit = |spec: &mut JobSpec| (spec.attempts, spec.stalls) = (2, 1);
    let id = ctx.enqueue(ctx.job_with("mail", edit)).await.id();
    let lease = ctx.claim_one("w1", "mail").await.lease;
    assert_eq!(ctx.report("w1", lease, OutcomeKind::Release { started: true }).await.unwrap().state, State::Ready);
    assert_eq!(ctx.get(id).await.unwrap().attempt, 1);
    // The last one, and then a stall, as if the worker had vanished.
    let lease = ctx.claim_one("w1", "mail").await.lease;
    assert_eq!(lease.attempt, 2);
    assert_eq!(ctx.report("w1", lease, OutcomeKind::Release { started: true }).await.unwrap().state, State::Ready);
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.attempt, job.stall_count, job.failures.len()), (1, 1, 0));
    let lease = ctx.claim_one("w1", "mail").await.lease;
    assert_eq!(lease.attempt, 2);
    assert_eq!(ctx.report("w1", lease, OutcomeKind::Release { started: true }).await.unwrap().state, State::Failed);
    let job = ctx.get(id).await.unwrap();
    assert_eq!(
        job.failures.last().map(|failure| failure.class),
        Some(FailureClass::Released),
        "a dead letter says why"
    );
}
