//! Calls whose answer was lost: the same one again is answered the same way and does nothing twice.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, complete, fail, queue_name, worker_id};
use crate::runner::cases;
use futures::future::join_all;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::job::{Due, Lease, Retry, State};
use windlass_core::name::{Kind, Labels};
use windlass_core::payload::Payload;
use windlass_core::store::{ClaimRequest, Kinds, Outcome, OutcomeKind, ReportRequest, Reported, SweepKind};

cases!("repeats":
    the_same_completion_is_answered_again,
    every_outcome_is_answered_again,
    the_first_outcome_of_a_token_stands,
    complete_twice_in_one_report,
    complete_twice_at_once,
    a_job_that_is_gone_is_answered_until_the_next_report,
    the_same_claim_is_answered_again,
    a_repeated_claim_shows_what_is_still_leased,
    a_repeated_claim_takes_nothing_new,
    a_repeated_claim_tells_when_there_will_be_more,
    a_claim_that_found_nothing_may_be_repeated,
    an_older_request_id_is_refused,
    a_request_id_with_another_body_is_refused,
    report_and_claim_is_both_in_one_step,
    report_and_claim_is_repeated_as_one,
    report_and_claim_that_is_refused_reports_nothing,
);

fn told(state: State, repeated: bool) -> windlass_core::Result<Reported> {
    Ok(Reported { state, repeated })
}

fn report_of(worker: &str, outcomes: Vec<(Lease, OutcomeKind)>) -> ReportRequest {
    let outcomes = outcomes.into_iter().map(|(lease, kind)| Outcome { lease, kind }).collect();
    ReportRequest { worker: worker_id(worker), outcomes }
}

async fn the_same_completion_is_answered_again(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let lease = ctx.claim_one("w1", "mail").await.lease;
    let done = || OutcomeKind::Complete {
        result: Some(Payload::json("done").unwrap()),
        outputs: BTreeMap::from([("url".to_owned(), "x".to_owned())]),
    };
    assert_eq!(ctx.report("w1", lease, done()).await, told(State::Succeeded, false));
    let before = snapshot(&ctx).await;
    ctx.advance_ms(5).await;
    for worker in ["w1", "w1", "another process"] {
        assert_eq!(ctx.report(worker, lease, done()).await, told(State::Succeeded, true), "by {worker}");
    }
    assert_eq!(snapshot(&ctx).await, before, "nothing happened a second time");
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.result, job.outputs.len()), (Some(Payload::json("done").unwrap()), 1));
}

async fn every_outcome_is_answered_again(ctx: Ctx) {
    let rows = [
        ("complete", complete(), State::Succeeded),
        ("fail for good", fail("x", Retry::Never), State::Failed),
        ("fail and wait", fail("x", Retry::AfterMs(60_000)), State::Scheduled),
        ("fail and go on", fail("x", Retry::AfterMs(0)), State::Ready),
        ("release", OutcomeKind::Release { started: false }, State::Ready),
        ("release when started", OutcomeKind::Release { started: true }, State::Ready),
    ];
    for (name, outcome, state) in rows {
        ctx.enqueue(ctx.job(name, "work")).await;
        let lease = ctx.claim_one("w1", name).await.lease;
        assert_eq!(ctx.report("w1", lease, outcome.clone()).await, told(state, false), "{name}");
        let before = snapshot(&ctx).await;
        assert_eq!(ctx.report("w1", lease, outcome).await, told(state, true), "{name}");
        assert_eq!(snapshot(&ctx).await, before, "{name}");
    }
}

async fn the_first_outcome_of_a_token_stands(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("mail", "work")).await.id();
    let lease = ctx.claim_one("w1", "mail").await.lease;
    ctx.fail("w1", lease, Retry::Never).await.unwrap();
    let result = Some(Payload::json("too late").unwrap());
    let late = OutcomeKind::Complete { result, outputs: BTreeMap::new() };
    for outcome in [late, OutcomeKind::Release { started: false }, fail("again", Retry::AfterMs(0))] {
        assert_eq!(ctx.report("w1", lease, outcome).await, told(State::Failed, true));
    }
    let job = ctx.get(id).await.unwrap();
    assert_eq!((job.state, job.failures.len(), job.result), (State::Failed, 1, None));
}

async fn complete_twice_in_one_report(ctx: Ctx) {
    for (queue, keep_ms) in [("kept", None), ("gone", Some(0))] {
        ctx.enqueue(ctx.job_with(queue, |spec| spec.keep_for.succeeded_ms = keep_ms)).await;
        let lease = ctx.claim_one("w1", queue).await.lease;
        let request = report_of("w1", vec![(lease, complete()), (lease, complete())]);
        let answers = ctx.store.report(request).await.unwrap();
        assert_eq!(answers, [told(State::Succeeded, false), told(State::Succeeded, true)], "{queue}");
    }
}

async fn complete_twice_at_once(ctx: Ctx) {
    for (queue, keep_ms) in [("kept", None), ("gone", Some(0))] {
        ctx.enqueue(ctx.job_with(queue, |spec| spec.keep_for.succeeded_ms = keep_ms)).await;
        let lease = ctx.claim_one("w1", queue).await.lease;
        let answers = join_all((0..8).map(|_| ctx.complete("w1", lease))).await;
        let first = answers.iter().filter(|answer| **answer == told(State::Succeeded, false)).count();
        let again = answers.iter().filter(|answer| **answer == told(State::Succeeded, true)).count();
        assert_eq!((first, again), (1, 7), "{queue}: {answers:?}");
    }
    assert_eq!(ctx.counts("kept").await.succeeded, 1);
}

async fn a_job_that_is_gone_is_answered_until_the_next_report(ctx: Ctx) {
    let gone = |ctx: &Ctx| ctx.job_with("mail", |spec| spec.keep_for.succeeded_ms = Some(0));
    let id = ctx.enqueue(gone(&ctx)).await.id();
    ctx.enqueue(gone(&ctx)).await;
    let first = ctx.claim_one("w1", "mail").await.lease;
    let second = ctx.claim_one("w1", "mail").await.lease;
    assert_eq!(ctx.complete("w1", first).await, told(State::Succeeded, false));
    assert_eq!(ctx.get(id).await, None, "kept for 0 ms");
    assert_eq!(ctx.counts("mail").await.succeeded, 0);
    for _ in 0..2 {
        assert_eq!(ctx.complete("w1", first).await, told(State::Succeeded, true), "the reply may have been lost");
    }
    assert_eq!(ctx.complete("w2", first).await, Err(Error::LeaseLost), "w2 was never told so");
    assert_eq!(ctx.complete("w1", second).await, told(State::Succeeded, false));
    assert_eq!(ctx.complete("w1", first).await, Err(Error::LeaseLost), "the worker has gone on since");
    assert_eq!(ctx.complete("w1", second).await, told(State::Succeeded, true));
}

async fn the_same_claim_is_answered_again(ctx: Ctx) {
    ctx.enqueue_all((0..5).map(|_| ctx.job("mail", "work")).collect()).await;
    let request = ctx.claim_request("w1", "mail", 3);
    let first = ctx.store.claim(request.clone()).await.unwrap().jobs;
    let before = snapshot(&ctx).await;
    ctx.advance_ms(5).await;
    for _ in 0..3 {
        let again = ctx.store.claim(request.clone()).await.unwrap().jobs;
        assert_eq!(again, first, "the same jobs, tokens, and ends, in the same order");
    }
    assert_eq!(snapshot(&ctx).await, before);
    let other = ctx.claim_request("w2", "mail", 3);
    assert_eq!(ctx.store.claim(other).await.unwrap().jobs.len(), 2, "a request id counts within its worker");
}

async fn a_repeated_claim_shows_what_is_still_leased(ctx: Ctx) {
    ctx.enqueue_all((0..5).map(|_| ctx.job("mail", "work")).collect()).await;
    let mut request = ctx.claim_request("w1", "mail", 5);
    request.lease_ms = 100;
    let first = ctx.store.claim(request.clone()).await.unwrap().jobs;
    ctx.complete("w1", first[0].lease).await.unwrap();
    ctx.fail("w1", first[1].lease, Retry::AfterMs(0)).await.unwrap();
    let mine: Vec<Lease> = first[2..].iter().map(|job| job.lease).collect();
    let leases = |jobs: Vec<windlass_core::store::ClaimedJob>| jobs.iter().map(|job| job.lease).collect::<Vec<_>>();
    assert_eq!(leases(ctx.store.claim(request.clone()).await.unwrap().jobs), mine);
    let stolen = ctx.claim_one("w2", "mail").await.lease;
    assert_eq!(stolen.job, first[1].lease.job);
    assert_eq!(leases(ctx.store.claim(request.clone()).await.unwrap().jobs), mine, "what another has now is not shown");
    let renewed = super::leases::renew(&ctx, mine[0], Some(60_000)).await.unwrap();
    ctx.advance_ms(100).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 2);
    let left = ctx.store.claim(request.clone()).await.unwrap().jobs;
    assert_eq!((left.len(), left[0].lease, left[0].expires_at), (1, mine[0], renewed.expires_at));
    ctx.complete("w1", mine[0]).await.unwrap();
    assert!(ctx.store.claim(request).await.unwrap().jobs.is_empty(), "what expired is not claimed anew");
    assert_eq!(ctx.counts("mail").await.ready, 2);
}

async fn a_repeated_claim_takes_nothing_new(ctx: Ctx) {
    ctx.enqueue(ctx.job("mail", "work")).await;
    let request = ctx.claim_request("w1", "mail", 10);
    let first = ctx.store.claim(request.clone()).await.unwrap().jobs;
    assert_eq!(first.len(), 1);
    ctx.enqueue(ctx.job("mail", "work")).await;
    assert_eq!(ctx.store.claim(request).await.unwrap().jobs, first);
    assert_eq!(ctx.counts("mail").await.ready, 1);
}

async fn a_repeated_claim_tells_when_there_will_be_more(ctx: Ctx) {
    ctx.enqueue(ctx.job("mail", "work")).await;
    let later = ctx.now().await.plus_ms(60_000);
    ctx.enqueue(ctx.job("mail", "work").due(Due::At(later))).await;
    let request = ctx.claim_request("w1", "mail", 10);
    let first = ctx.store.claim(request.clone()).await.unwrap();
    let again = ctx.store.claim(request.clone()).await.unwrap();
    assert_eq!((first.next_at, again.next_at), (Some(later), Some(later)));
    // What has come since counts, too.
    let sooner = later.minus_ms(30_000);
    ctx.enqueue(ctx.job("mail", "work").due(Due::At(sooner))).await;
    assert_eq!(ctx.store.claim(request.clone()).await.unwrap().next_at, Some(sooner));
    let both = ctx.store.report_and_claim(report_of("w1", vec![]), request).await.unwrap();
    assert_eq!((both.claimed.jobs, both.claimed.next_at), (first.jobs, Some(sooner)));
}

async fn a_claim_that_found_nothing_may_be_repeated(ctx: Ctx) {
    let request = ctx.claim_request("w1", "mail", 10);
    assert!(ctx.store.claim(request.clone()).await.unwrap().jobs.is_empty());
    assert!(ctx.store.claim(request).await.unwrap().jobs.is_empty());
    ctx.enqueue(ctx.job("mail", "work")).await;
    assert_eq!(ctx.claim("w1", "mail", 1).await.len(), 1);
}

async fn an_older_request_id_is_refused(ctx: Ctx) {
    ctx.enqueue_all((0..3).map(|_| ctx.job("mail", "work")).collect()).await;
    let old = ctx.claim_request("w1", "mail", 1);
    let new = ctx.claim_request("w1", "mail", 1);
    let first = ctx.store.claim(new.clone()).await.unwrap().jobs;
    let before = snapshot(&ctx).await;
    let refused = ctx.store.claim(old).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { field, .. } if field == "request_id"), "{refused:?}");
    assert_eq!(snapshot(&ctx).await, before);
    assert_eq!(ctx.store.claim(new).await.unwrap().jobs, first, "the latest one is still answered");
}

/// One thing that a worker may ask for otherwise.
type Edit = (&'static str, fn(&mut ClaimRequest));

const OTHER_BODIES: &[Edit] = &[
    ("queues", |request| request.queues.push(queue_name("more"))),
    ("kinds", |request| request.kinds = Kinds::Only(vec![Kind::new("work").unwrap()])),
    ("a kind that looks like all", |request| request.kinds = Kinds::Only(vec![Kind::new("*").unwrap()])),
    ("no kinds", |request| request.kinds = Kinds::Only(vec![])),
    ("labels", |request| request.labels = Labels::parse(["gpu"]).unwrap()),
    ("max", |request| request.max += 1),
    ("lease_ms", |request| request.lease_ms += 1),
];

async fn a_request_id_with_another_body_is_refused(ctx: Ctx) {
    ctx.enqueue_all((0..3).map(|_| ctx.job("mail", "work")).collect()).await;
    let request = ctx.claim_request("w1", "mail", 1);
    let first = ctx.store.claim(request.clone()).await.unwrap().jobs;
    let before = snapshot(&ctx).await;
    for (what, edit) in OTHER_BODIES {
        let mut other = request.clone();
        edit(&mut other);
        let refused = ctx.store.claim(other).await;
        assert!(matches!(&refused, Err(Error::Invalid { field, .. }) if field == "request_id"), "{what}: {refused:?}");
    }
    assert_eq!(snapshot(&ctx).await, before);
    assert_eq!(ctx.store.claim(request).await.unwrap().jobs, first);
}

async fn report_and_claim_is_both_in_one_step(ctx: Ctx) {
    let ids = ctx.enqueue_all((0..4).map(|_| ctx.job("mail", "work")).collect()).await;
    let held: Vec<Lease> = ctx.claim("w1", "mail", 2).await.iter().map(|job| job.lease).collect();
    let forged = Lease { token: windlass_core::id::Token::from_bits(1), ..held[0] };
    let report =
        report_of("w1", vec![(held[0], complete()), (forged, complete()), (held[1], fail("x", Retry::AfterMs(0)))]);
    let both = ctx.store.report_and_claim(report, ctx.claim_request("w1", "mail", 10)).await.unwrap();
    assert_eq!(
        both.reported[..2],
        [told(State::Succeeded, false), told(State::Succeeded, true).and(Err(Error::LeaseLost))]
    );
    assert_eq!(both.reported[2], told(State::Ready, false));
    let claimed: Vec<_> = both.claimed.jobs.iter().map(|job| (job.lease.job, job.lease.attempt)).collect();
    assert_eq!(claimed, [(ids[2], 1), (ids[3], 1), (ids[1], 2)], "the claim sees what the report has done");
    let counts = ctx.counts("mail").await;
    assert_eq!((counts.ready, counts.active, counts.succeeded), (0, 3, 1));
}

async fn report_and_claim_is_repeated_as_one(ctx: Ctx) {
    ctx.enqueue_all((0..3).map(|_| ctx.job_with("mail", |spec| spec.keep_for.succeeded_ms = Some(0))).collect()).await;
    let lease = ctx.claim_one("w1", "mail").await.lease;
    let report = report_of("w1", vec![(lease, complete())]);
    let claim = ctx.claim_request("w1", "mail", 1);
    let first = ctx.store.report_and_claim(report.clone(), claim.clone()).await.unwrap();
    let before = snapshot(&ctx).await;
    let again = ctx.store.report_and_claim(report, claim).await.unwrap();
    assert_eq!(again.reported, [told(State::Succeeded, true)]);
    assert_eq!(again.claimed.jobs, first.claimed.jobs);
    assert_eq!(snapshot(&ctx).await, before);
}

async fn report_and_claim_that_is_refused_reports_nothing(ctx: Ctx) {
    ctx.enqueue_all((0..3).map(|_| ctx.job("mail", "work")).collect()).await;
    let old = ctx.claim_request("w1", "mail", 1);
    let current = ctx.claim_request("w1", "mail", 1);
    let lease = ctx.store.claim(current.clone()).await.unwrap().jobs[0].lease;
    let mut other_body = current;
    other_body.max = 2;
    let mut senseless = ctx.claim_request("w1", "mail", 1);
    senseless.max = 0;
    let before = snapshot(&ctx).await;
    for (what, claim) in [("an older request id", old), ("another body", other_body), ("no sense", senseless)] {
        let report = report_of("w1", vec![(lease, complete())]);
        let refused = ctx.store.report_and_claim(report, claim).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{what}: {refused:?}");
        assert_eq!(snapshot(&ctx).await, before, "{what}: an invalid call applies nothing");
    }
    assert_eq!(ctx.complete("w1", lease).await, told(State::Succeeded, false));
}
