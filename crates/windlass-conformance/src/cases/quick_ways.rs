//! The everyday case: plain jobs of one kind on one queue, and a worker that has taken some of them before. A store may have
//! a quicker way for it. These cases bring in, one after the other, what such a way must notice.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, complete, fail, queue_name, worker_id};
use crate::look::{by_group, group_of, ids, release, weight};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Due, Lease, Retry, State};
use windlass_core::rate::Rate;
use windlass_core::store::{
    ChangeOp, ClaimRequest, Claimed, ClaimedJob, EnqueueRequest, FeedEvent, GroupSettings, Outcome, OutcomeKind,
    QueueSettings, ReportRequest, Reported, RetentionRule, Setting, SweepKind,
};

cases!("quick_ways":
    an_atomic_batch_with_an_impossible_job_creates_nothing,
    a_pause_stops_the_next_turn,
    a_cap_holds_from_the_next_turn_on,
    a_rate_holds_from_the_next_turn_on,
    a_paused_kind_stops_the_next_turn,
    a_new_kind_is_seen_by_the_next_turn,
    named_groups_have_their_turns_beside_plain_jobs,
    plain_jobs_that_come_back_have_their_turns_among_slow_groups,
    plain_jobs_that_were_away_have_saved_up_no_turns,
    kinds_are_served_in_the_order_of_their_jobs,
    a_job_that_is_due_comes_before_those_behind_it,
    a_turn_tells_when_the_next_job_is_due,
    a_turn_forgets_groups_whose_time_has_come,
    a_forged_token_among_true_ones_is_told_apart,
    a_job_that_comes_twice_in_a_report_ends_once,
    outcomes_of_one_claim_may_differ,
    a_report_of_several_queues_counts_for_each,
    one_claim_over_queues_and_kinds_is_reported_job_by_job,
    a_turn_may_leave_its_queue,
    jobs_that_were_touched_before_keep_what_they_know,
);

/// How a worker tells what it has done and asks for more.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One call after the other.
    Apart,
    /// Both in one step.
    Together,
}

/// Every way, each with a queue of its own.
const WAYS: [(Way, &str); 2] = [(Way::Apart, "apart"), (Way::Together, "together")];

/// A turn of the worker `w`: these outcomes, and up to `max` jobs of the queue.
async fn turn(
    ctx: &Ctx,
    (way, queue): (Way, &str),
    outcomes: Vec<Outcome>,
    max: u32,
) -> (Vec<windlass_core::Result<Reported>>, Claimed) {
    let report = ReportRequest { worker: worker_id("w"), outcomes };
    let claim = ctx.claim_request("w", queue, max);
    match way {
        Way::Apart => (ctx.store.report(report).await.unwrap(), ctx.store.claim(claim).await.unwrap()),
        Way::Together => {
            let both = ctx.store.report_and_claim(report, claim).await.unwrap();
            (both.reported, both.claimed)
        }
    }
}

/// A turn that completes these jobs.
async fn next(ctx: &Ctx, way: (Way, &str), done: &[ClaimedJob], max: u32) -> Claimed {
    let outcomes = done.iter().map(|job| outcome(job.lease, complete())).collect();
    let (reported, claimed) = turn(ctx, way, outcomes, max).await;
    assert_eq!(reported, vec![told(State::Succeeded); done.len()]);
    claimed
}

fn outcome(lease: Lease, kind: OutcomeKind) -> Outcome {
    Outcome { lease, kind }
}

fn told(state: State) -> windlass_core::Result<Reported> {
    Ok(Reported { state, repeated: false })
}

/// Twenty plain jobs, the first of which is done by now, and the second and third are at work.
async fn at_work(ctx: &Ctx, way: (Way, &str)) -> (Vec<ClaimedJob>, Vec<JobId>) {
    let made = ctx.enqueue_plain(way.1, 20).await;
    let first = next(ctx, way, &[], 1).await.jobs;
    let held = next(ctx, way, &first, 2).await.jobs;
    assert_eq!(ids(&held), made[1..3]);
    (held, made)
}

/// Sets a queue as another process would.
async fn set(ctx: &Ctx, queue: &str, edit: impl FnOnce(&mut QueueSettings)) {
    let mut settings = QueueSettings::default();
    edit(&mut settings);
    let setting = Setting::Queue { queue: queue_name(queue), settings };
    ctx.handles(2).await[1].configure(setting).await.unwrap();
}

async fn an_atomic_batch_with_an_impossible_job_creates_nothing(ctx: Ctx) {
    ctx.enqueue_plain("q", 1).await;
    let jobs = vec![ctx.job("q", "work"), ctx.job("q", "work"), ctx.job_with("q", |spec| spec.attempts = 0)];
    let before = snapshot(&ctx).await;
    let answers = ctx.store.enqueue(EnqueueRequest { jobs, atomic: true }).await.unwrap();
    let fields = answers.iter().map(|answer| match answer {
        Err(Error::Invalid { field, .. }) => field.as_ref(),
        other => panic!("{other:?}"),
    });
    assert_eq!(fields.collect::<Vec<&str>>(), ["atomic", "atomic", "attempts"]);
    assert_eq!(snapshot(&ctx).await, before);
}

async fn a_pause_stops_the_next_turn(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        set(&ctx, way.1, |settings| settings.paused = true).await;
        assert_eq!(next(&ctx, way, &held, 5).await.jobs, [], "{way:?}");
        set(&ctx, way.1, |_| {}).await;
        assert_eq!(ids(&next(&ctx, way, &[], 5).await.jobs), made[3..8], "{way:?}");
    }
}

async fn a_cap_holds_from_the_next_turn_on(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        set(&ctx, way.1, |settings| settings.cap = Some(3)).await;
        assert_eq!(ids(&next(&ctx, way, &held[..1], 5).await.jobs), made[3..5], "{way:?}: one is active, three may be");
        assert_eq!(next(&ctx, way, &[], 5).await.jobs, [], "{way:?}");
        assert_eq!(ctx.counts(way.1).await.active, 3);
    }
}

async fn a_rate_holds_from_the_next_turn_on(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        set(&ctx, way.1, |settings| settings.rate = Some(Rate { limit: 4, per_ms: 60_000 })).await;
        let started = ctx.now().await;
        assert_eq!(ids(&next(&ctx, way, &held, 3).await.jobs), made[3..6], "{way:?}");
        assert_eq!(ids(&next(&ctx, way, &[], 3).await.jobs), made[6..7], "{way:?}: three have started, four may");
        let none = next(&ctx, way, &[], 3).await;
        assert_eq!((none.jobs, none.next_at), (vec![], Some(started.plus_ms(60_000))), "{way:?}");
    }
}

async fn a_paused_kind_stops_the_next_turn(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        let work = held[0].spec.kind.clone();
        set(&ctx, way.1, |settings| settings.paused_kinds = [work].into()).await;
        assert_eq!(next(&ctx, way, &held, 5).await.jobs, [], "{way:?}");
        set(&ctx, way.1, |_| {}).await;
        assert_eq!(ids(&next(&ctx, way, &[], 5).await.jobs), made[3..8], "{way:?}");
    }
}

async fn a_new_kind_is_seen_by_the_next_turn(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        let mut job = ctx.job(way.1, "new");
        job.spec.priority = -1;
        let urgent = ctx.enqueue(job).await.id();
        assert_eq!(ids(&next(&ctx, way, &held, 2).await.jobs), [urgent, made[3]], "{way:?}");
    }
}

async fn named_groups_have_their_turns_beside_plain_jobs(ctx: Ctx) {
    for way in WAYS {
        let (held, _) = at_work(&ctx, way).await;
        ctx.enqueue_grouped(way.1, "g", 20).await;
        let mut got = next(&ctx, way, &held, 1).await.jobs;
        for _ in 0..9 {
            let last = [got[got.len() - 1].clone()];
            got.extend(next(&ctx, way, &last, 1).await.jobs);
        }
        let counts = by_group(&got);
        assert!(counts[""].abs_diff(5) <= 1 && counts["g"].abs_diff(5) <= 1, "{way:?}: {counts:?}");
        let rest = next(&ctx, way, &[], 8).await.jobs;
        assert!(rest.chunks(2).all(|pair| by_group(pair).len() == 2), "{way:?}: {:?}", by_group(&rest));
    }
}

async fn plain_jobs_that_come_back_have_their_turns_among_slow_groups(ctx: Ctx) {
    let of = |kind: &str, count: usize| (0..count).map(|_| ctx.job("q", kind)).collect();
    ctx.enqueue_all(of("slow", 1)).await;
    assert_eq!(ctx.claim_kinds("w", "q", &["slow"], 1).await.len(), 1);
    for (group, kind) in [("hare", "fast"), ("snail", "slow")] {
        ctx.enqueue_all((0..100).map(|_| ctx.grouped_kind("q", group, kind)).collect()).await;
    }
    assert_eq!(ctx.claim_kinds("w", "q", &["slow"], 2).await.len(), 2);
    assert_eq!(ctx.claim_kinds("w", "q", &["fast"], 90).await.len(), 90);
    ctx.enqueue_all(of("slow", 50)).await;
    let counts = by_group(&ctx.claim_kinds("w", "q", &["slow"], 20).await);
    assert!(counts.len() == 2 && counts[""].abs_diff(10) <= 1, "they need not wait for the fast ones: {counts:?}");
}

async fn plain_jobs_that_were_away_have_saved_up_no_turns(ctx: Ctx) {
    // With settings of its own, it is not forgotten while it is idle.
    ctx.set_group("q", "g", weight(1)).await;
    ctx.enqueue_plain("q", 1).await;
    ctx.work_one("w", "q").await;
    ctx.enqueue_grouped("q", "g", 50).await;
    assert_eq!(ctx.claim("w", "q", 100).await.len(), 50);
    ctx.enqueue_plain("q", 40).await;
    ctx.enqueue_grouped("q", "g", 40).await;
    let counts = by_group(&ctx.claim("w", "q", 20).await);
    assert!(counts.len() == 2 && counts[""].abs_diff(10) <= 1, "{counts:?}");
}

async fn kinds_are_served_in_the_order_of_their_jobs(ctx: Ctx) {
    for way in WAYS {
        let (held, mut made) = at_work(&ctx, way).await;
        // Those of the other kind come last, and one of the first kind behind them.
        made.extend(ctx.enqueue_all((0..3).map(|_| ctx.job(way.1, "other")).collect()).await);
        made.extend(ctx.enqueue_plain(way.1, 1).await);
        let first = next(&ctx, way, &held, 2).await.jobs;
        let second = next(&ctx, way, &first, 1).await.jobs;
        let rest = next(&ctx, way, &second, 30).await.jobs;
        assert_eq!(ids(&[first, second, rest].concat()), made[3..], "{way:?}");
    }
}

async fn a_job_that_is_due_comes_before_those_behind_it(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        let urgent = ctx.job_with(way.1, |spec| spec.priority = -1).due(Due::DelayMs(100));
        let urgent = ctx.enqueue(urgent).await.id();
        let before = next(&ctx, way, &held[..1], 1).await.jobs;
        assert_eq!(ids(&before), made[3..4], "{way:?}");
        ctx.advance_ms(100).await;
        assert_eq!(ids(&next(&ctx, way, &held[1..], 2).await.jobs), [urgent, made[4]], "{way:?}");
    }
}

async fn a_turn_tells_when_the_next_job_is_due(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        let later = ctx.now().await.plus_ms(60_000);
        let scheduled = ctx.enqueue(ctx.job(way.1, "work").due(Due::At(later))).await.id();
        assert_eq!(next(&ctx, way, &held, 1).await.next_at, Some(later), "{way:?}: there is more than it asked for");
        let rest = next(&ctx, way, &[], 100).await;
        assert_eq!((ids(&rest.jobs), rest.next_at), (made[4..].to_vec(), Some(later)), "{way:?}");
        let none = next(&ctx, way, &rest.jobs, 1).await;
        assert_eq!((none.jobs, none.next_at), (vec![], Some(later)), "{way:?}");
        ctx.change(scheduled, ChangeOp::Cancel).await.unwrap();
        assert_eq!(next(&ctx, way, &[], 1).await.next_at, None, "{way:?}");
    }
}

async fn a_turn_forgets_groups_whose_time_has_come(ctx: Ctx) {
    for way in WAYS {
        let rate = GroupSettings { rate: Some(Rate { limit: 2, per_ms: 200 }), ..GroupSettings::default() };
        set(&ctx, way.1, |settings| settings.groups = rate).await;
        let (held, _) = at_work(&ctx, way).await;
        ctx.enqueue_grouped(way.1, "g", 1).await;
        let got = next(&ctx, way, &held, 2).await.jobs;
        assert!(got.iter().any(|job| group_of(job) == "g"), "{way:?}");
        let more = next(&ctx, way, &got, 1).await.jobs;
        ctx.advance_ms(401).await;
        let claimed = next(&ctx, way, &more, 1).await;
        assert_eq!((claimed.jobs.len(), claimed.next_at), (1, None), "{way:?}: no time is left to wait for");
        assert_eq!(ctx.groups(way.1).await, [], "{way:?}");
    }
}

async fn a_forged_token_among_true_ones_is_told_apart(ctx: Ctx) {
    for way in WAYS {
        at_work(&ctx, way).await;
        let held = next(&ctx, way, &[], 3).await.jobs;
        let forged = Lease { token: Token::from_bits(1), ..held[1].lease };
        let outcomes = [held[0].lease, forged, held[2].lease].map(|lease| outcome(lease, complete())).to_vec();
        let (reported, _) = turn(&ctx, way, outcomes, 1).await;
        assert_eq!(reported, [told(State::Succeeded), Err(Error::LeaseLost), told(State::Succeeded)], "{way:?}");
        assert_eq!(ctx.state(held[1].lease.job).await, State::Active, "{way:?}");
        assert_eq!(ctx.counts(way.1).await.succeeded, 3, "{way:?}");
        assert_eq!(ctx.complete("w", held[1].lease).await, told(State::Succeeded), "{way:?}");
    }
}

async fn a_job_that_comes_twice_in_a_report_ends_once(ctx: Ctx) {
    for way in WAYS {
        let (held, _) = at_work(&ctx, way).await;
        let outcomes = [0, 1, 0].map(|k: usize| outcome(held[k].lease, complete())).to_vec();
        let (reported, _) = turn(&ctx, way, outcomes, 1).await;
        let again = Ok(Reported { state: State::Succeeded, repeated: true });
        assert_eq!(reported, [told(State::Succeeded), told(State::Succeeded), again], "{way:?}");
        let counts = ctx.counts(way.1).await;
        assert_eq!((counts.active, counts.succeeded), (1, 3), "{way:?}");
    }
}

async fn outcomes_of_one_claim_may_differ(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        let held = [held, next(&ctx, way, &[], 3).await.jobs].concat();
        let kinds =
            [complete(), complete(), fail("x", Retry::Never), complete(), release(false)].into_iter().zip(&held);
        let outcomes = kinds.map(|(kind, job)| outcome(job.lease, kind)).collect();
        let (reported, claimed) = turn(&ctx, way, outcomes, 2).await;
        let states = [State::Succeeded, State::Succeeded, State::Failed, State::Succeeded, State::Ready];
        assert_eq!(reported, states.map(told), "{way:?}");
        assert_eq!(ids(&claimed.jobs), made[5..7], "{way:?}: what was given back keeps its place");
        let counts = ctx.counts(way.1).await;
        assert_eq!((counts.active, counts.succeeded, counts.failed), (2, 4, 1), "{way:?}");
    }
}

async fn a_report_of_several_queues_counts_for_each(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        ctx.enqueue_plain("aside", 1).await;
        let aside = ctx.claim("w", "aside", 1).await;
        let done = [&held[..1], &aside, &held[1..]].concat();
        assert_eq!(ids(&next(&ctx, way, &done, 1).await.jobs), made[3..4], "{way:?}");
        let (here, there) = (ctx.counts(way.1).await, ctx.counts("aside").await);
        assert_eq!((here.active, here.succeeded), (1, 3), "{way:?}");
        assert_eq!(there.active, 0, "{way:?}");
        assert_eq!(ctx.state(aside[0].lease.job).await, State::Succeeded, "{way:?}");
    }
}

/// What is leased in one step has one token, wherever it comes from.
async fn one_claim_over_queues_and_kinds_is_reported_job_by_job(ctx: Ctx) {
    for way in WAYS {
        let aside = format!("beside-{}", way.1);
        for queue in [way.1, &aside] {
            ctx.enqueue_all(["work", "work", "other"].map(|kind| ctx.job(queue, kind)).to_vec()).await;
            let at_once = RetentionRule { age_ms: Some(0), count: None };
            set(&ctx, queue, |settings| settings.retention.succeeded = at_once).await;
        }
        let first = ctx.claim_one("w", way.1).await;
        ctx.report("w", first.lease, release(true)).await.unwrap();
        let queues = vec![queue_name(way.1), queue_name(&aside)];
        let claim = ClaimRequest { queues, ..ctx.claim_request("w", way.1, 6) };
        let held = ctx.store.claim(claim).await.unwrap().jobs;
        let cursor = ctx.feed_end().await;
        next(&ctx, way, &held, 1).await;
        for queue in [way.1, &aside] {
            let counts = ctx.counts(queue).await;
            assert_eq!((counts.ready, counts.active, counts.succeeded), (0, 0, 3), "{way:?}: {queue}");
        }
        let mut told = Vec::new();
        for event in ctx.feed_after(cursor).await.into_iter().flat_map(|entry| entry.events) {
            let FeedEvent::Job(job) = event else { panic!("{event:?}") };
            told.push((job.job, job.queue, job.attempt));
        }
        let done = |job: &ClaimedJob| (job.lease.job, job.spec.queue.clone(), job.lease.attempt);
        assert_eq!(told, held.iter().map(done).collect::<Vec<_>>(), "{way:?}");
        assert_eq!((held[0].lease.attempt, held[1].lease.attempt), (2, 1), "{way:?}");
        ctx.advance_ms(1).await;
        assert_eq!(ctx.sweep(SweepKind::Prune).await, 6, "{way:?}: none is forgotten");
    }
}

async fn a_turn_may_leave_its_queue(ctx: Ctx) {
    for way in WAYS {
        let (held, _) = at_work(&ctx, way).await;
        let there = ctx.enqueue_plain("elsewhere", 1).await;
        let got = next(&ctx, (way.0, "elsewhere"), &held, 5).await.jobs;
        assert_eq!(ids(&got), there, "{way:?}");
        let counts = ctx.counts(way.1).await;
        assert_eq!((counts.ready, counts.active, counts.succeeded), (17, 0, 3), "{way:?}");
        let counts = ctx.counts("elsewhere").await;
        assert_eq!((counts.ready, counts.active), (0, 1), "{way:?}");
        ctx.complete_all("w", &got).await;
    }
}

async fn jobs_that_were_touched_before_keep_what_they_know(ctx: Ctx) {
    for way in WAYS {
        let (held, made) = at_work(&ctx, way).await;
        ctx.report("w", held[1].lease, release(true)).await.unwrap();
        let got = next(&ctx, way, &held[..1], 2).await.jobs;
        assert_eq!(ids(&got), made[2..4], "{way:?}");
        assert_eq!([got[0].lease.attempt, got[1].lease.attempt], [2, 1], "{way:?}");
        ctx.report("w", got[1].lease, release(false)).await.unwrap();
        assert_eq!(ids(&next(&ctx, way, &got[..1], 1).await.jobs), made[3..4], "{way:?}");
        let counts = ctx.counts(way.1).await;
        assert_eq!((counts.ready, counts.active, counts.succeeded), (16, 1, 3), "{way:?}");
    }
}
