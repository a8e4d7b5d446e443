//! Time: delays, due jobs, and whose clock counts.

use crate::ctx::Ctx;
use crate::look::ids;
use crate::runner::cases;
use windlass_core::job::{Due, Retry, State};
use windlass_core::store::{ChangeOp, Sweep, SweepKind};
use windlass_core::time::Timestamp;

cases!("time":
    a_delayed_job_waits_for_its_time,
    run_at_is_kept_as_it_was_given,
    run_at_in_the_past_is_ready_at_once,
    clocks_of_clients_do_not_order_jobs,
    a_claim_promotes_what_is_due,
    a_sweep_promotes_what_is_due,
    due_jobs_come_in_the_order_of_their_times,
    a_promoted_job_stands_behind_those_that_waited,
    a_claim_says_when_the_next_job_is_due,
    a_sweep_says_when_time_will_bring_more,
    a_claim_says_since_when_its_job_was_ready,
    a_paused_queue_promotes_all_the_same,
    slow_a_hundred_thousand_due_jobs_are_promoted_in_bounded_steps,
    a_small_claim_promotes_a_bounded_number,
    sweeps_are_bounded,
    times_outside_the_calendar_are_refused,
);

async fn a_delayed_job_waits_for_its_time(ctx: Ctx) {
    let before = ctx.now().await;
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(500))).await.id();
    let job = ctx.get(id).await.unwrap();
    let due_at = job.due_at.unwrap();
    assert_eq!((job.state, due_at), (State::Scheduled, job.created_at.plus_ms(500)));
    assert!(due_at >= before.plus_ms(500));
    assert!(ctx.claim("w", "q", 1).await.is_empty());
    ctx.advance_ms(due_at.ms_since(ctx.now().await).saturating_sub(1)).await;
    ctx.sweep(SweepKind::Promote).await;
    let early = ctx.state(id).await == State::Ready;
    assert!(!early || ctx.now().await >= due_at, "promoted before its time");
    ctx.advance_ms(due_at.ms_since(ctx.now().await)).await;
    let job = ctx.claim("w", "q", 1).await;
    assert_eq!(ids(&job), [id]);
    assert!(ctx.get(id).await.unwrap().claimed_at.unwrap() >= due_at);
}

async fn run_at_is_kept_as_it_was_given(ctx: Ctx) {
    let at = ctx.now().await.plus_ms(86_400_123);
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::At(at))).await.id();
    assert_eq!(ctx.get(id).await.unwrap().due_at, Some(at));
    assert!(ctx.claim("w", "q", 1).await.is_empty());
}

async fn run_at_in_the_past_is_ready_at_once(ctx: Ctx) {
    let first = ctx.enqueue(ctx.job("q", "work")).await.id();
    let past = ctx.now().await.minus_ms(3_600_000);
    let second = ctx.enqueue(ctx.job("q", "work").due(Due::At(past))).await.id();
    let epoch = ctx.enqueue(ctx.job("q", "work").due(Due::At(Timestamp::from_ms(0)))).await.id();
    assert_eq!(ctx.state(second).await, State::Ready);
    assert_eq!(ctx.get(second).await.unwrap().due_at, None);
    assert_eq!(ids(&ctx.claim("w", "q", 3).await), [first, second, epoch], "it does not overtake those that are ready");
}

async fn clocks_of_clients_do_not_order_jobs(ctx: Ctx) {
    // Three clients whose clocks are an hour behind, right, and an hour ahead make the ids.
    let now = ctx.now().await.as_ms();
    let client = |skew: i64, seed| {
        let clock = windlass_core::time::VirtualClock::new(Timestamp::from_ms(now + skew));
        let random = windlass_core::random::StrongRandom::seeded(seed);
        windlass_core::id::Ids::new(std::sync::Arc::new(clock), std::sync::Arc::new(random))
    };
    let clients = [client(3_600_000, 1), client(-3_600_000, 2), client(0, 3)];
    let mut made = Vec::new();
    for n in 0..30 {
        let mut job = ctx.job("q", "work");
        job.id = clients[n % 3].next();
        // A client that is behind names times that have passed already.
        job.due = if n % 3 == 1 { Due::At(Timestamp::from_ms(now - 3_600_000)) } else { Due::Now };
        made.push(ctx.enqueue(job).await.id());
    }
    assert_eq!(ids(&ctx.claim("w", "q", 30).await), made, "the store's sequence decides");
}

async fn a_claim_promotes_what_is_due(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(50))).await.id();
    ctx.advance_ms(50).await;
    assert_eq!(ids(&ctx.claim("w", "q", 1).await), [id], "no sweep was needed");
}

async fn a_sweep_promotes_what_is_due(ctx: Ctx) {
    let due = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(50))).await.id();
    let other = ctx.enqueue(ctx.job("other", "work").due(Due::DelayMs(60))).await.id();
    let later = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(3_600_000))).await.id();
    ctx.advance_ms(60).await;
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 2);
    assert_eq!(ctx.state(due).await, State::Ready);
    assert_eq!(ctx.state(other).await, State::Ready);
    assert_eq!(ctx.state(later).await, State::Scheduled);
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 0);
}

async fn due_jobs_come_in_the_order_of_their_times(ctx: Ctx) {
    let now = ctx.now().await;
    let mut jobs = Vec::new();
    for n in 0..50u64 {
        jobs.push(ctx.job("q", "work").due(Due::At(now.plus_ms(500 + n * 37 % 50))));
    }
    let made = ctx.enqueue_all(jobs).await;
    ctx.advance_ms(600).await;
    let mut order: Vec<_> = (0..50usize).map(|n| (n * 37 % 50, made[n])).collect();
    order.sort_unstable();
    let got: Vec<_> = ids(&ctx.claim("w", "q", 50).await);
    assert_eq!(got, order.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
}

async fn a_promoted_job_stands_behind_those_that_waited(ctx: Ctx) {
    let delayed = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(50))).await.id();
    let ready = ctx.enqueue(ctx.job("q", "work")).await.id();
    ctx.advance_ms(50).await;
    assert_eq!(ids(&ctx.claim("w", "q", 2).await), [ready, delayed], "it takes a new number when it becomes ready");
}

async fn a_claim_says_when_the_next_job_is_due(ctx: Ctx) {
    let far = ctx.now().await.plus_ms(7_200_000);
    let near = ctx.now().await.plus_ms(3_600_000);
    let none = ctx.store.claim(ctx.claim_request("w", "q", 1)).await.unwrap();
    assert_eq!(none.next_at, None);
    ctx.enqueue(ctx.job("q", "work").due(Due::At(far))).await;
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::At(near))).await.id();
    assert_eq!(ctx.store.claim(ctx.claim_request("w", "q", 1)).await.unwrap().next_at, Some(near));
    ctx.change(id, ChangeOp::Cancel).await.unwrap();
    assert_eq!(ctx.store.claim(ctx.claim_request("w", "q", 1)).await.unwrap().next_at, Some(far));
    // A back-off is a time, too.
    ctx.enqueue(ctx.job("q", "work")).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::AfterMs(60_000)).await.unwrap();
    let due_at = ctx.get(job.lease.job).await.unwrap().due_at;
    assert_eq!(ctx.store.claim(ctx.claim_request("w", "q", 1)).await.unwrap().next_at, due_at);
}

async fn a_sweep_says_when_time_will_bring_more(ctx: Ctx) {
    let next = async |kind| {
        let swept = ctx.store.sweep(Sweep { kind, max: 10 }).await.unwrap();
        assert_eq!((swept.handled, swept.more), (0, false), "{kind:?}");
        swept.next_at
    };
    for kind in SweepKind::ALL {
        assert_eq!(next(kind).await, None, "{kind:?}");
    }
    let later = ctx.enqueue(ctx.job("b", "work").due(Due::DelayMs(90_000))).await.id();
    let sooner = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(60_000))).await.id();
    let due_at = ctx.get(sooner).await.unwrap().due_at;
    assert!(due_at.is_some() && due_at < ctx.get(later).await.unwrap().due_at);
    assert_eq!(next(SweepKind::Promote).await, due_at);
    assert_eq!(next(SweepKind::Reap).await, None);
    ctx.enqueue_plain("q", 2).await;
    let (first, second) = (ctx.claim_one("w", "q").await, ctx.claim_one("w", "q").await);
    assert_eq!(next(SweepKind::Reap).await, Some(first.expires_at));
    ctx.complete("w", first.lease).await.unwrap();
    assert_eq!(next(SweepKind::Reap).await, Some(second.expires_at));
}

async fn a_claim_says_since_when_its_job_was_ready(ctx: Ctx) {
    ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(300))).await;
    ctx.advance_ms(300).await;
    ctx.sweep(SweepKind::Promote).await;
    ctx.advance_ms(200).await;
    let job = ctx.claim_one("w", "q").await;
    let claimed_at = ctx.get(job.lease.job).await.unwrap().claimed_at.unwrap();
    assert!(job.ready_at >= job.created_at.plus_ms(300), "its delay is no wait for a worker: {job:?}");
    assert!(job.ready_at.plus_ms(200) <= claimed_at, "{job:?} was claimed at {claimed_at}");
    // And so does the next one, after a failure.
    ctx.fail("w", job.lease, Retry::AfterMs(0)).await.unwrap();
    assert!(ctx.claim_one("w", "q").await.ready_at >= claimed_at);
}

async fn a_paused_queue_promotes_all_the_same(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(50))).await.id();
    ctx.pause("q", true).await;
    ctx.advance_ms(50).await;
    ctx.sweep(SweepKind::Promote).await;
    assert_eq!(ctx.state(id).await, State::Ready);
    assert!(ctx.claim("w", "q", 1).await.is_empty());
}

async fn slow_a_hundred_thousand_due_jobs_are_promoted_in_bounded_steps(ctx: Ctx) {
    let at = ctx.now().await.plus_ms(60_000);
    let at = if matches!(ctx.clock, crate::TestClock::Real) { ctx.now().await.plus_ms(1) } else { at };
    for _ in 0..10 {
        ctx.enqueue_all((0..10_000).map(|_| ctx.job("q", "work").due(Due::At(at))).collect()).await;
    }
    ctx.advance_ms(at.ms_since(ctx.now().await)).await;
    let before = ctx.counts("q").await;
    let step = ctx.store.sweep(Sweep { kind: SweepKind::Promote, max: 700 }).await.unwrap();
    let after = ctx.counts("q").await;
    assert_eq!(step.handled, before.scheduled - after.scheduled);
    assert!(step.handled <= 700);
    let mut handled = step.handled;
    while handled < before.scheduled {
        let step = ctx.store.sweep(Sweep { kind: SweepKind::Promote, max: 10_000 }).await.unwrap();
        assert!(step.handled > 0 && step.handled <= 10_000, "{step:?}");
        assert!(step.more || handled + step.handled == before.scheduled, "{step:?} after {handled}");
        handled += step.handled;
    }
    assert_eq!(ctx.counts("q").await.ready, 100_000);
}

async fn a_small_claim_promotes_a_bounded_number(ctx: Ctx) {
    ctx.enqueue_all((0..2_000).map(|_| ctx.job("q", "work").due(Due::DelayMs(50))).collect()).await;
    ctx.advance_ms(1_000).await;
    let before = ctx.counts("q").await.scheduled;
    ctx.claim_one("w", "q").await;
    let promoted = before - ctx.counts("q").await.scheduled;
    assert!(before == 0 || (1..=1_000).contains(&promoted), "a claim of one promoted {promoted}");
    let mut got = 1;
    while got < 2_000 {
        let jobs = ctx.claim("w", "q", 100).await;
        assert!(!jobs.is_empty(), "claims alone find all that is due; {got} so far");
        got += jobs.len();
    }
}

async fn sweeps_are_bounded(ctx: Ctx) {
    for kind in SweepKind::ALL {
        for max in [0, 10_001, u32::MAX] {
            assert!(ctx.store.sweep(Sweep { kind, max }).await.is_err(), "{kind:?} of {max}");
        }
        let idle = ctx.store.sweep(Sweep { kind, max: 10_000 }).await.unwrap();
        assert_eq!((idle.handled, idle.more), (0, false));
    }
}

async fn times_outside_the_calendar_are_refused(ctx: Ctx) {
    let year_9999 = Timestamp::from_ms(253_370_764_800_000);
    for due in [Due::At(Timestamp::from_ms(-1)), Due::At(year_9999), Due::DelayMs(u64::MAX)] {
        assert!(ctx.try_enqueue(ctx.job("q", "work").due(due)).await.is_err(), "{due:?}");
        let id = ctx.enqueue(ctx.job("q", "work")).await.id();
        assert!(ctx.change(id, ChangeOp::Reschedule(due)).await.is_err(), "{due:?}");
        assert_eq!(ctx.state(id).await, State::Ready);
    }
}
