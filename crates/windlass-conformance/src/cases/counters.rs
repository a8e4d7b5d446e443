//! Counters and metrics: maintained, and equal to a recount.

use super::mixed::{assert_lively, mixed_run};
use crate::ctx::{Ctx, queue_name};
use crate::look::{on_in, release};
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::job::{Due, Retry, State};
use windlass_core::store::{ChangeOp, MetricsRequest, MinuteMetrics, QueueCounts, SweepKind};
use windlass_core::time::Timestamp;

cases!("counters":
    counters_equal_a_recount_after_a_long_mixed_run,
    group_counts_equal_a_recount_after_a_long_mixed_run,
    queues_are_listed_by_name_with_settings_and_lanes,
    a_minute_counts_what_was_accepted_and_leased,
    a_minute_counts_each_outcome,
    a_minute_counts_time_waited_and_run,
    minutes_are_apart_and_empty_ones_left_out,
    metrics_are_of_one_queue_and_bounded,
);

async fn recount(ctx: &Ctx, queue: &str) -> QueueCounts {
    let mut counts = [0; 6];
    for state in State::ALL {
        counts[state.index()] = ctx.list_all(on_in(queue, state)).await.len() as u64;
    }
    QueueCounts::from_array(counts)
}

async fn counters_equal_a_recount_after_a_long_mixed_run(ctx: Ctx) {
    for _ in 0..4 {
        mixed_run(&ctx, 400).await;
        for status in ctx.store.queues().await.unwrap() {
            assert_eq!(status.counts, recount(&ctx, status.name.as_str()).await, "{}", status.name);
        }
    }
    assert_lively(&ctx).await;
}

async fn group_counts_equal_a_recount_after_a_long_mixed_run(ctx: Ctx) {
    mixed_run(&ctx, 1_000).await;
    assert_lively(&ctx).await;
    for status in ctx.store.queues().await.unwrap() {
        let queue = status.name.as_str();
        let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for job in ctx.list_all(on_in(queue, State::Ready)).await {
            found.entry(job.group.map_or(String::new(), String::from)).or_default().0 += 1;
        }
        for job in ctx.list_all(on_in(queue, State::Active)).await {
            found.entry(job.group.map_or(String::new(), String::from)).or_default().1 += 1;
        }
        found.remove("");
        let listed: BTreeMap<_, _> =
            ctx.groups(queue).await.into_iter().map(|g| (g.name.to_string(), (g.ready, g.active))).collect();
        assert_eq!(listed, found, "{queue}");
    }
}

async fn queues_are_listed_by_name_with_settings_and_lanes(ctx: Ctx) {
    ctx.set_queue("b", |settings| settings.len_max = Some(9)).await;
    ctx.enqueue(ctx.job("c", "one")).await;
    ctx.enqueue(ctx.job("c", "two")).await;
    ctx.enqueue(ctx.job("a", "one")).await;
    let all = ctx.store.queues().await.unwrap();
    let listed: Vec<_> = all.iter().map(|status| (status.name.as_str(), status.counts.ready, status.lanes)).collect();
    assert_eq!(listed, [("a", 1, 1), ("b", 0, 0), ("c", 2, 2)]);
    assert_eq!(all[1].settings.len_max, Some(9));
    assert_eq!(all[0].settings, Default::default());
}

/// The sum of all minutes of a queue; on a server's clock a case may touch two of them.
async fn total(ctx: &Ctx, queue: &str, from: Timestamp) -> MinuteMetrics {
    let to = ctx.now().await.plus_ms(60_000);
    let minutes = ctx.store.metrics(MetricsRequest { queue: queue_name(queue), from, to }).await.unwrap();
    minutes.into_iter().fold(MinuteMetrics::default(), |sum, minute| MinuteMetrics {
        minute: sum.minute,
        enqueued: sum.enqueued + minute.enqueued,
        claimed: sum.claimed + minute.claimed,
        succeeded: sum.succeeded + minute.succeeded,
        failed: sum.failed + minute.failed,
        cancelled: sum.cancelled + minute.cancelled,
        retried: sum.retried + minute.retried,
        stalled: sum.stalled + minute.stalled,
        waited_ms: sum.waited_ms + minute.waited_ms,
        ran_ms: sum.ran_ms + minute.ran_ms,
    })
}

async fn a_minute_counts_what_was_accepted_and_leased(ctx: Ctx) {
    let from = ctx.now().await;
    let job = ctx.job("q", "work");
    ctx.enqueue(job.clone()).await;
    ctx.enqueue(job).await;
    ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(60_000))).await;
    let claimed = ctx.claim_one("w", "q").await;
    ctx.report("w", claimed.lease, release(false)).await.unwrap();
    ctx.claim_one("w", "q").await;
    let sum = total(&ctx, "q", from).await;
    assert_eq!((sum.enqueued, sum.claimed), (2, 2), "the same job again is not another one");
    assert_eq!((sum.succeeded, sum.failed, sum.cancelled, sum.retried, sum.stalled), (0, 0, 0, 0, 0));
}

async fn a_minute_counts_each_outcome(ctx: Ctx) {
    let from = ctx.now().await;
    ctx.enqueue_plain("q", 7).await;
    let jobs = ctx.claim("w", "q", 6).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    ctx.fail("w", jobs[1].lease, Retry::Never).await.unwrap();
    ctx.fail("w", jobs[2].lease, Retry::AfterMs(60_000)).await.unwrap();
    ctx.change(jobs[3].lease.job, ChangeOp::Cancel).await.unwrap();
    ctx.complete("w", jobs[3].lease).await.unwrap();
    ctx.complete("w", jobs[0].lease).await.unwrap();
    let waiting = ctx.ids_where(on_in("q", State::Ready)).await[0];
    ctx.change(waiting, ChangeOp::Cancel).await.unwrap();
    ctx.report("w", jobs[4].lease, release(true)).await.unwrap();
    ctx.enqueue(ctx.job_with("r", |spec| spec.stalls = 0)).await;
    ctx.claim_short("w", "r", 50).await;
    ctx.expire(50).await;
    let sum = total(&ctx, "q", from).await;
    assert_eq!((sum.succeeded, sum.failed, sum.cancelled, sum.retried, sum.stalled), (1, 1, 2, 1, 0));
    let sum = total(&ctx, "r", from).await;
    assert_eq!((sum.succeeded, sum.failed, sum.cancelled, sum.retried, sum.stalled), (0, 1, 0, 0, 1));
}

async fn a_minute_counts_time_waited_and_run(ctx: Ctx) {
    let from = ctx.now().await;
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    ctx.advance_ms(300).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.advance_ms(200).await;
    ctx.fail("w", job.lease, Retry::AfterMs(0)).await.unwrap();
    ctx.advance_ms(100).await;
    ctx.claim_one("w", "q").await;
    ctx.advance_ms(50).await;
    let sum = total(&ctx, "q", from).await;
    let job = ctx.get(id).await.unwrap();
    let passed = ctx.now().await.ms_since(job.created_at);
    assert!((400..=passed - 250).contains(&sum.waited_ms), "{sum:?} of {passed} ms");
    assert!((200..=passed - 450).contains(&sum.ran_ms), "{sum:?}: the running attempt has not ended");
    // What a delay takes is no wait for a worker.
    ctx.enqueue(ctx.job("late", "work").due(Due::DelayMs(300))).await;
    ctx.advance_ms(300).await;
    ctx.claim_one("w", "late").await;
    assert!(total(&ctx, "late", from).await.waited_ms < 300);
}

async fn minutes_are_apart_and_empty_ones_left_out(ctx: Ctx) {
    let from = ctx.now().await;
    ctx.enqueue(ctx.job("q", "work")).await;
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(90_000))).await.id();
    let ask = async || {
        let to = ctx.now().await;
        ctx.store.metrics(MetricsRequest { queue: queue_name("q"), from, to }).await.unwrap()
    };
    assert!(ask().await.iter().all(|minute| minute.minute.as_ms() % 60_000 == 0));
    if matches!(ctx.clock, crate::TestClock::Real) {
        // Minutes of a server's clock are too long to wait for; that they are apart is a matter of the others.
        assert_eq!(total(&ctx, "q", from).await.enqueued, 2);
        return;
    }
    ctx.advance_ms(120_000).await;
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 1);
    ctx.change(id, ChangeOp::Reprioritise(3)).await.unwrap();
    let minutes = ask().await;
    assert_eq!(minutes.len(), 1, "nothing that is counted happened later: {minutes:?}");
    assert_eq!(minutes[0].minute, Timestamp::from_ms(from.minute() * 60_000));
    ctx.advance_ms(60_000).await;
    ctx.work_one("w", "q").await;
    let minutes = ask().await;
    assert_eq!(minutes.len(), 2);
    assert_eq!(minutes[1].minute, Timestamp::from_ms(ctx.now().await.minute() * 60_000));
    assert_eq!((minutes[0].enqueued, minutes[0].claimed, minutes[1].enqueued, minutes[1].claimed), (2, 0, 0, 1));
}

async fn metrics_are_of_one_queue_and_bounded(ctx: Ctx) {
    let now = ctx.now().await;
    ctx.enqueue_plain("q", 3).await;
    ctx.enqueue_plain("other", 5).await;
    assert_eq!(total(&ctx, "q", now).await.enqueued, 3);
    let ask = |queue: &str, from, to| ctx.store.metrics(MetricsRequest { queue: queue_name(queue), from, to });
    assert!(ask("none", now, now).await.unwrap_err().is_not_found());
    assert!(matches!(ask("q", now, now.minus_ms(1)).await, Err(Error::Invalid { .. })));
    assert!(matches!(ask("q", now.minus_ms(10 * 24 * 3_600_000), now).await, Err(Error::Limit { .. })));
    assert!(ask("q", now.minus_ms(47 * 3_600_000), now).await.is_ok());
}
