//! Changes to all jobs that match, in bounded steps.

use crate::ctx::{Ctx, TestClock, queue_name};
use crate::look::{group, on, on_in};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, Retry, State};
use windlass_core::name::{DedupKey, Kind};
use windlass_core::store::{ChangeMany, ChangeManyOp, Filter, QueueCounts};

cases!("bulk":
    drain_removes_what_is_ready,
    drain_removes_what_is_scheduled_if_asked,
    clean_removes_what_ended_long_ago,
    clean_removes_what_ended_before_the_clock_was_set_back,
    clean_removes_one_state,
    retry_failed_gives_a_new_life,
    retry_failed_ends_when_jobs_fail_again_at_once,
    promote_all_makes_scheduled_jobs_ready,
    promote_all_leaves_held_jobs,
    promote_all_ends_when_jobs_are_scheduled_again_at_once,
    cancel_all_ends_what_waits_and_tells_what_runs,
    obliterate_is_refused_while_jobs_are_active,
    obliterate_by_force_takes_leases_away,
    an_obliterated_queue_is_usable_again,
    obliterate_takes_no_other_filter,
    every_operation_goes_in_bounded_steps,
    filters_narrow_every_operation,
    other_queues_are_left_alone,
    requests_that_cannot_be_meant_are_refused,
    a_cursor_of_another_operation_is_refused,
    a_cursor_with_another_time_is_refused,
);

/// A queue with `count` jobs in each state.
async fn filled(ctx: &Ctx, queue: &str, count: u64) {
    for state in State::ALL {
        for _ in 0..count {
            ctx.job_in(queue, state).await;
        }
    }
}

fn counts(scheduled: u64, ready: u64, active: u64, ended: [u64; 3]) -> QueueCounts {
    QueueCounts::from_array([scheduled, ready, active, ended[0], ended[1], ended[2]])
}

async fn drain_removes_what_is_ready(ctx: Ctx) {
    filled(&ctx, "q", 5).await;
    assert_eq!(ctx.change_all(ChangeManyOp::Drain { scheduled: false }, on("q"), 2).await, 5);
    assert_eq!(ctx.counts("q").await, counts(5, 0, 5, [5, 5, 5]));
    assert!(ctx.claim("w", "q", 10).await.is_empty());
}

async fn drain_removes_what_is_scheduled_if_asked(ctx: Ctx) {
    filled(&ctx, "q", 5).await;
    assert_eq!(ctx.change_all(ChangeManyOp::Drain { scheduled: true }, on("q"), 3).await, 10);
    assert_eq!(ctx.counts("q").await, counts(0, 0, 5, [5, 5, 5]));
}

async fn clean_removes_what_ended_long_ago(ctx: Ctx) {
    filled(&ctx, "q", 3).await;
    ctx.advance_ms(1_000).await;
    let young = [State::Succeeded, State::Failed, State::Cancelled];
    for state in young {
        ctx.job_in("q", state).await;
    }
    assert_eq!(ctx.change_all(ChangeManyOp::Clean { older_than_ms: 1_000 }, on("q"), 2).await, 9);
    assert_eq!(ctx.counts("q").await, counts(3, 3, 3, [1, 1, 1]));
    assert_eq!(ctx.change_all(ChangeManyOp::Clean { older_than_ms: 0 }, on("q"), 2).await, 3);
    assert_eq!(ctx.counts("q").await, counts(3, 3, 3, [0, 0, 0]));
}

async fn clean_removes_what_ended_before_the_clock_was_set_back(ctx: Ctx) {
    let TestClock::Virtual(clock) = &ctx.clock else { return };
    ctx.job_in("q", State::Cancelled).await;
    clock.set(ctx.now().await.minus_ms(1));
    assert_eq!(ctx.change_all(ChangeManyOp::Clean { older_than_ms: 1 }, on("q"), 2).await, 0, "its age is 0");
    assert_eq!(ctx.change_all(ChangeManyOp::Clean { older_than_ms: 0 }, on("q"), 2).await, 1);
}

async fn clean_removes_one_state(ctx: Ctx) {
    filled(&ctx, "q", 4).await;
    let op = ChangeManyOp::Clean { older_than_ms: 0 };
    assert_eq!(ctx.change_all(op, on_in("q", State::Failed), 3).await, 4);
    assert_eq!(ctx.counts("q").await, counts(4, 4, 4, [4, 0, 4]));
    let request = ChangeMany { op, filter: on_in("q", State::Ready), max: 10, cursor: None };
    assert!(
        matches!(ctx.store.change_many(request).await, Err(Error::Invalid { .. })),
        "only ended jobs can be cleaned"
    );
}

async fn retry_failed_gives_a_new_life(ctx: Ctx) {
    filled(&ctx, "q", 5).await;
    let failed = ctx.ids_where(on_in("q", State::Failed)).await;
    assert_eq!(ctx.change_all(ChangeManyOp::RetryFailed, on("q"), 2).await, 5);
    assert_eq!(ctx.counts("q").await, counts(5, 10, 5, [5, 0, 5]));
    for id in failed {
        let job = ctx.get(id).await.unwrap();
        assert_eq!((job.state, job.attempt, job.retry_count), (State::Ready, 0, 1));
    }
}

async fn promote_all_makes_scheduled_jobs_ready(ctx: Ctx) {
    filled(&ctx, "q", 5).await;
    assert_eq!(ctx.change_all(ChangeManyOp::PromoteAll, on("q"), 2).await, 5);
    assert_eq!(ctx.counts("q").await, counts(0, 10, 5, [5, 5, 5]));
    assert_eq!(ctx.claim("w", "q", 20).await.len(), 10);
}

async fn promote_all_leaves_held_jobs(ctx: Ctx) {
    let job = || {
        let by = DedupBy::Key(DedupKey::new("k").unwrap());
        ctx.job_with("q", |spec| spec.dedup = Some(Dedup { by, mode: DedupMode::KeepLast, ttl_ms: None }))
    };
    ctx.enqueue(job()).await;
    ctx.claim_one("w", "q").await;
    let held = ctx.enqueue(job()).await.id();
    ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(60_000))).await;
    assert_eq!(ctx.change_all(ChangeManyOp::PromoteAll, on("q"), 10).await, 1);
    assert_eq!(ctx.state(held).await, State::Scheduled);
}

async fn cancel_all_ends_what_waits_and_tells_what_runs(ctx: Ctx) {
    filled(&ctx, "q", 5).await;
    assert_eq!(ctx.change_all(ChangeManyOp::CancelAll, on("q"), 4).await, 15);
    assert_eq!(ctx.counts("q").await, counts(0, 0, 5, [5, 5, 15]));
    for id in ctx.ids_where(on_in("q", State::Active)).await {
        assert!(ctx.get(id).await.unwrap().cancel_requested);
    }
    let told = ctx.store.heartbeat(crate::look::beat("maker", "q")).await.unwrap().cancelled;
    assert_eq!(told.len(), 5);
    assert_eq!(ctx.change_all(ChangeManyOp::CancelAll, on("q"), 4).await, 0, "once is enough");
}

async fn obliterate_is_refused_while_jobs_are_active(ctx: Ctx) {
    filled(&ctx, "q", 2).await;
    let before = (ctx.status("q").await, ctx.feed_end().await);
    let op = ChangeManyOp::Obliterate { force: false };
    let refused = ctx.store.change_many(ChangeMany { op, filter: on("q"), max: 10, cursor: None }).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!((ctx.status("q").await, ctx.feed_end().await), before, "nothing was changed");
}

async fn obliterate_by_force_takes_leases_away(ctx: Ctx) {
    filled(&ctx, "q", 5).await;
    ctx.enqueue_grouped("q", "g", 3).await;
    ctx.enqueue_plain("q", 1).await;
    let mut held = ctx.claim("w", "q", 20).await;
    let lease = held.remove(0).lease;
    assert_eq!(ctx.change_all(ChangeManyOp::Obliterate { force: true }, on("q"), 4).await, 34);
    assert_eq!(ctx.complete("w", lease).await, Err(Error::LeaseLost));
    assert_eq!(ctx.progress(lease, 5, "").await, Err(Error::LeaseLost));
    assert!(ctx.get(lease.job).await.is_none());
    assert_eq!(ctx.list_all(Filter::default()).await, []);
    assert_eq!(ctx.store.queues().await.unwrap(), [], "the queue is gone");
    assert_eq!(ctx.sweep(windlass_core::store::SweepKind::Reap).await, 0);
}

async fn an_obliterated_queue_is_usable_again(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(1)).await;
    ctx.set_group("q", "g", crate::look::cap(1)).await;
    let job = ctx.job("q", "work");
    ctx.enqueue(job.clone()).await;
    ctx.enqueue_grouped("q", "g", 2).await;
    let op = ChangeManyOp::Obliterate { force: false };
    assert_eq!(ctx.change_all(op, on("q"), 1).await, 3);
    assert_eq!(ctx.change_all(op, on("q"), 1).await, 0, "a queue that is not there has nothing to remove");
    ctx.enqueue(job).await;
    ctx.enqueue_grouped("q", "g", 2).await;
    assert_eq!(ctx.status("q").await.settings, Default::default(), "its settings are gone, its pause included");
    assert!(ctx.groups("q").await[0].settings.is_default());
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 3);
}

async fn obliterate_takes_no_other_filter(ctx: Ctx) {
    filled(&ctx, "q", 1).await;
    let before = ctx.status("q").await;
    let filters = [
        Filter { kind: Some(Kind::new("other").unwrap()), ..on("q") },
        on_in("q", State::Failed),
        Filter { group: Some(group("g")), ..on("q") },
        Filter { text: Some("x".to_owned()), ..on("q") },
    ];
    for filter in filters {
        let op = ChangeManyOp::Obliterate { force: true };
        let refused = ctx.store.change_many(ChangeMany { op, filter, max: 10, cursor: None }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "it would remove more than was named: {refused:?}");
    }
    assert_eq!(ctx.status("q").await, before);
}

async fn every_operation_goes_in_bounded_steps(ctx: Ctx) {
    let operations = [
        (ChangeManyOp::Drain { scheduled: true }, 60),
        (ChangeManyOp::Clean { older_than_ms: 0 }, 90),
        (ChangeManyOp::RetryFailed, 30),
        (ChangeManyOp::PromoteAll, 30),
        (ChangeManyOp::CancelAll, 90),
        (ChangeManyOp::Obliterate { force: true }, 180),
    ];
    for (n, (op, total)) in operations.into_iter().enumerate() {
        let queue = format!("q{n}");
        filled(&ctx, &queue, 30).await;
        let first = ctx.store.change_many(ChangeMany { op, filter: on(&queue), max: 7, cursor: None }).await.unwrap();
        assert!((1..=7).contains(&first.changed), "{op:?}: {first:?}");
        let (mut changed, mut steps, mut cursor) = (first.changed, 1, first.cursor);
        while let Some(at) = cursor {
            let request = ChangeMany { op, filter: on(&queue), max: 7, cursor: Some(at) };
            let step = ctx.store.change_many(request).await.unwrap();
            assert!(step.changed <= 7, "{op:?}: {step:?}");
            changed += step.changed;
            cursor = step.cursor;
            steps += 1;
            assert!(steps <= 60, "{op:?} does not end");
        }
        assert_eq!(changed, total, "{op:?}");
    }
}

async fn filters_narrow_every_operation(ctx: Ctx) {
    let filters = [
        Filter { kind: Some(Kind::new("mail").unwrap()), ..on("q") },
        Filter { group: Some(group("g")), ..on("q") },
        Filter { text: Some("needle".to_owned()), ..on("q") },
    ];
    for filter in filters {
        for _ in 0..20 {
            ctx.enqueue(ctx.job("q", "work")).await;
            let mut job = ctx.grouped_kind("q", "g", "mail");
            job.spec.payload = windlass_core::payload::Payload::json("needle").unwrap();
            ctx.enqueue(job).await;
        }
        let matching = ctx.ids_where(filter.clone()).await;
        assert_eq!(matching.len(), 20);
        assert_eq!(ctx.change_all(ChangeManyOp::CancelAll, filter.clone(), 3).await, 20);
        for id in matching {
            assert_eq!(ctx.state(id).await, State::Cancelled);
        }
        assert_eq!(ctx.change_all(ChangeManyOp::Clean { older_than_ms: 0 }, filter.clone(), 3).await, 20);
        assert_eq!(ctx.ids_where(filter).await, []);
    }
    assert_eq!(ctx.counts("q").await, counts(0, 60, 0, [0, 0, 0]));
}

async fn other_queues_are_left_alone(ctx: Ctx) {
    filled(&ctx, "other", 2).await;
    let before = ctx.status("other").await;
    for op in [
        ChangeManyOp::Drain { scheduled: true },
        ChangeManyOp::Clean { older_than_ms: 0 },
        ChangeManyOp::RetryFailed,
        ChangeManyOp::PromoteAll,
        ChangeManyOp::CancelAll,
        ChangeManyOp::Obliterate { force: true },
    ] {
        let queue = format!("{op:?}");
        filled(&ctx, &queue, 2).await;
        ctx.change_all(op, on(&queue), 100).await;
    }
    assert_eq!(ctx.status("other").await, before);
}

async fn requests_that_cannot_be_meant_are_refused(ctx: Ctx) {
    ctx.enqueue_plain("q", 1).await;
    let op = ChangeManyOp::Drain { scheduled: true };
    let ask = |filter: Filter, max| ctx.store.change_many(ChangeMany { op, filter, max, cursor: None });
    for max in [0, 10_001] {
        assert!(matches!(ask(on("q"), max).await, Err(Error::Invalid { .. })));
    }
    assert!(matches!(ask(Filter::default(), 10).await, Err(Error::Invalid { .. })), "a queue must be named");
    assert!(ask(Filter { text: Some(String::new()), ..on("q") }, 10).await.is_err());
    assert_eq!(
        ask(Filter { queue: Some(queue_name("none")), ..Filter::default() }, 10).await.unwrap(),
        Default::default()
    );
    assert_eq!(ctx.counts("q").await.ready, 1);
}

async fn a_cursor_of_another_operation_is_refused(ctx: Ctx) {
    ctx.enqueue_plain("q", 9).await;
    let ask = |op, filter, cursor| ctx.store.change_many(ChangeMany { op, filter, max: 3, cursor });
    let cursor = ask(ChangeManyOp::CancelAll, on("q"), None).await.unwrap().cursor;
    assert!(cursor.is_some());
    let foreign = [
        ask(ChangeManyOp::Drain { scheduled: true }, on("q"), cursor.clone()).await,
        ask(ChangeManyOp::CancelAll, on_in("q", State::Ready), cursor.clone()).await,
        ask(ChangeManyOp::CancelAll, on("q"), cursor.map(|text| text.replace('0', "1"))).await,
    ];
    for refused in foreign {
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(ctx.counts("q").await.ready, 6);
}

/// Changes jobs two at a time, while a worker fails whatever becomes ready. Answers how many were changed.
async fn change_while_all_fail(ctx: &Ctx, op: ChangeManyOp, retry: Retry) -> u64 {
    let (mut cursor, mut changed) = (None, 0);
    for _ in 0..50 {
        let answer = ctx.store.change_many(ChangeMany { op, filter: on("q"), max: 2, cursor }).await.unwrap();
        changed += answer.changed;
        if answer.cursor.is_none() {
            return changed;
        }
        cursor = answer.cursor;
        ctx.advance_ms(1).await;
        for job in ctx.claim("w", "q", 10).await {
            ctx.fail("w", job.lease, retry).await.unwrap();
        }
    }
    panic!("{changed} changes, and no end");
}

async fn retry_failed_ends_when_jobs_fail_again_at_once(ctx: Ctx) {
    for _ in 0..6 {
        ctx.job_in("q", State::Failed).await;
    }
    assert_eq!(change_while_all_fail(&ctx, ChangeManyOp::RetryFailed, Retry::Never).await, 6);
    // A new change begins anew.
    assert_eq!(ctx.change_all(ChangeManyOp::RetryFailed, on("q"), 4).await, 6);
}

async fn promote_all_ends_when_jobs_are_scheduled_again_at_once(ctx: Ctx) {
    for _ in 0..6 {
        let job = ctx.job_with("q", |spec| spec.attempts = 1_000);
        ctx.enqueue(job.due(Due::DelayMs(3_600_000))).await;
    }
    assert_eq!(change_while_all_fail(&ctx, ChangeManyOp::PromoteAll, Retry::AfterMs(7_200_000)).await, 6);
    assert_eq!(ctx.change_all(ChangeManyOp::PromoteAll, on("q"), 4).await, 6);
}

async fn a_cursor_with_another_time_is_refused(ctx: Ctx) {
    for _ in 0..4 {
        ctx.job_in("q", State::Failed).await;
    }
    let step = |cursor| ChangeMany { op: ChangeManyOp::RetryFailed, filter: on("q"), max: 2, cursor };
    let cursor = ctx.store.change_many(step(None)).await.unwrap().cursor.unwrap();
    let (time, place) = cursor.split_once('.').unwrap();
    let later = format!("{}.{place}", time.parse::<i64>().unwrap() + 1);
    for forged in [later, place.to_owned(), format!("x.{place}"), format!("{time}.")] {
        let refused = ctx.store.change_many(step(Some(forged.clone()))).await;
        assert!(matches!(&refused, Err(Error::Invalid { field, .. }) if field == "cursor"), "{forged}: {refused:?}");
    }
    assert_eq!(ctx.store.change_many(step(Some(cursor))).await.unwrap().changed, 2);
}
