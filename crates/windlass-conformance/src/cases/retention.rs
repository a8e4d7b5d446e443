//! Retention: what goes, when, and what goes with it.

use crate::ctx::{Ctx, queue_name, worker_id};
use crate::look::{beat, on, on_in};
use crate::runner::cases;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, KeepFor, NewJob, Retry, State};
use windlass_core::name::DedupKey;
use windlass_core::payload::Payload;
use windlass_core::store::{
    ChangeOp, Enqueued, LogAppend, LogLine, LogRequest, LogStream, MetricsRequest, OutcomeKind, Retention,
    RetentionRule, Sweep, SweepKind, WaitFor,
};
use windlass_core::time::HANG_GUARD;

cases!("retention":
    jobs_go_when_they_are_too_old,
    only_the_latest_are_kept,
    both_rules_hold,
    each_outcome_has_its_own_rule,
    without_a_rule_everything_stays,
    jobs_that_have_not_ended_stay,
    keep_for_zero_goes_at_once,
    keep_for_stands_in_place_of_the_age,
    keep_for_is_per_outcome,
    jobs_that_say_how_long_count_like_all_others,
    a_retried_job_is_not_removed,
    removal_takes_everything,
    a_removed_job_may_be_enqueued_again,
    dedup_keys_are_pruned,
    dead_workers_and_old_metrics_are_pruned,
    pruning_is_bounded_per_step,
);

fn rule(age_ms: Option<u64>, count: Option<u64>) -> RetentionRule {
    RetentionRule { age_ms, count }
}

async fn keep(ctx: &Ctx, queue: &str, rule: RetentionRule) {
    ctx.set_queue(queue, |settings| settings.retention = Retention { succeeded: rule, failed: rule, cancelled: rule })
        .await;
}

async fn done(ctx: &Ctx, job: NewJob) -> JobId {
    let queue = job.spec.queue.to_string();
    ctx.enqueue(job).await;
    ctx.work_one("w", &queue).await
}

async fn jobs_go_when_they_are_too_old(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(1_000), None)).await;
    let old = done(&ctx, ctx.job("q", "work")).await;
    ctx.advance_ms(600).await;
    let new = done(&ctx, ctx.job("q", "other")).await;
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 0);
    ctx.advance_ms(400).await;
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 1);
    assert!(ctx.get(old).await.is_none());
    assert_eq!(ctx.state(new).await, State::Succeeded);
}

async fn only_the_latest_are_kept(ctx: Ctx) {
    keep(&ctx, "q", rule(None, Some(3))).await;
    let mut ended = Vec::new();
    for n in 0..8 {
        ended.push(done(&ctx, ctx.job("q", ["a", "b", "c"][n % 3])).await);
        ctx.advance_ms(2).await;
    }
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 5);
    let mut latest = ended.split_off(5);
    latest.sort();
    assert_eq!(ctx.ids_where(on("q")).await, latest, "over all lanes");
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 0);
}

async fn both_rules_hold(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(500), Some(2))).await;
    for _ in 0..3 {
        done(&ctx, ctx.job("q", "work")).await;
    }
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.counts("q").await.succeeded, 2);
    ctx.advance_ms(500).await;
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.counts("q").await.succeeded, 0);
}

async fn each_outcome_has_its_own_rule(ctx: Ctx) {
    ctx.set_queue("q", |settings| {
        settings.retention = Retention {
            succeeded: rule(Some(0), None),
            failed: rule(None, Some(2)),
            cancelled: rule(Some(3_600_000), None),
        };
    })
    .await;
    for state in [State::Succeeded, State::Failed, State::Cancelled] {
        for _ in 0..3 {
            ctx.job_in("q", state).await;
        }
    }
    ctx.sweep(SweepKind::Prune).await;
    let counts = ctx.counts("q").await;
    assert_eq!((counts.succeeded, counts.failed, counts.cancelled), (0, 2, 3));
}

async fn without_a_rule_everything_stays(ctx: Ctx) {
    keep(&ctx, "q", rule(None, None)).await;
    for state in State::ALL {
        ctx.job_in("q", state).await;
    }
    ctx.advance_ms(100).await;
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 0);
    assert_eq!(ctx.ids_where(on("q")).await.len(), 6);
}

async fn jobs_that_have_not_ended_stay(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(0), Some(0))).await;
    for state in State::ALL {
        ctx.job_in("q", state).await;
    }
    ctx.advance_ms(1).await;
    ctx.sweep(SweepKind::Prune).await;
    let counts = ctx.counts("q").await;
    assert_eq!((counts.scheduled, counts.ready, counts.active), (1, 1, 1));
    assert_eq!((counts.succeeded, counts.failed, counts.cancelled), (0, 0, 0));
}

fn keeping(ctx: &Ctx, succeeded_ms: Option<u64>, failed_ms: Option<u64>) -> NewJob {
    ctx.job_with("q", |spec| spec.keep_for = KeepFor { succeeded_ms, failed_ms })
}

async fn keep_for_zero_goes_at_once(ctx: Ctx) {
    let id = ctx.enqueue(keeping(&ctx, Some(0), Some(0))).await.id();
    let job = ctx.claim_one("w", "q").await;
    assert_eq!(ctx.complete("w", job.lease).await.unwrap().state, State::Succeeded);
    assert!(ctx.get(id).await.is_none(), "no sweep was needed");
    assert_eq!(ctx.counts("q").await, Default::default());
    let again = ctx.complete("w", job.lease).await.unwrap();
    assert_eq!((again.state, again.repeated), (State::Succeeded, true), "a lost reply is answered all the same");
    let failed = ctx.enqueue(keeping(&ctx, None, Some(0))).await.id();
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::Never).await.unwrap();
    assert!(ctx.get(failed).await.is_none());
    let cancelled = ctx.enqueue(keeping(&ctx, Some(0), None)).await.id();
    ctx.change(cancelled, ChangeOp::Cancel).await.unwrap();
    assert!(ctx.get(cancelled).await.is_none());
    let wait = ctx.store.wait(WaitFor::Job(cancelled));
    tokio::time::timeout(HANG_GUARD, wait).await.expect("no hang").unwrap();
}

async fn keep_for_stands_in_place_of_the_age(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(500), None)).await;
    let long = done(&ctx, keeping(&ctx, Some(3_600_000), None)).await;
    let short = done(&ctx, keeping(&ctx, Some(100), None)).await;
    let plain = done(&ctx, ctx.job("q", "work")).await;
    ctx.advance_ms(100).await;
    ctx.sweep(SweepKind::Prune).await;
    assert!(ctx.get(short).await.is_none());
    assert!(ctx.get(plain).await.is_some());
    ctx.advance_ms(400).await;
    ctx.sweep(SweepKind::Prune).await;
    assert!(ctx.get(plain).await.is_none());
    assert!(ctx.get(long).await.is_some());
}

async fn keep_for_is_per_outcome(ctx: Ctx) {
    keep(&ctx, "q", rule(None, None)).await;
    let failed = ctx.enqueue(keeping(&ctx, Some(0), None)).await.id();
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::Never).await.unwrap();
    let succeeded = done(&ctx, keeping(&ctx, None, Some(0))).await;
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.state(failed).await, State::Failed, "what it says about success is not about failure");
    assert_eq!(ctx.state(succeeded).await, State::Succeeded);
}

async fn jobs_that_say_how_long_count_like_all_others(ctx: Ctx) {
    keep(&ctx, "q", rule(None, Some(2))).await;
    let mut ended = Vec::new();
    for n in 0..5 {
        let job = if n % 2 == 0 { keeping(&ctx, Some(3_600_000), None) } else { ctx.job("q", "work") };
        ended.push(done(&ctx, job).await);
        ctx.advance_ms(2).await;
    }
    ctx.sweep(SweepKind::Prune).await;
    let mut latest = ended.split_off(3);
    latest.sort();
    assert_eq!(ctx.ids_where(on("q")).await, latest, "their age is their own, the number is the queue's");
}

async fn a_retried_job_is_not_removed(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(100), None)).await;
    let own = done(&ctx, keeping(&ctx, Some(100), None)).await;
    let plain = done(&ctx, ctx.job("q", "work")).await;
    for id in [own, plain] {
        ctx.change(id, ChangeOp::Retry(windlass_core::job::Due::Now)).await.unwrap();
    }
    ctx.advance_ms(200).await;
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 0);
    assert_eq!(ctx.counts("q").await.ready, 2);
}

async fn removal_takes_everything(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(0), None)).await;
    let id = ctx.enqueue(ctx.grouped("q", "g")).await.id();
    let job = ctx.claim_one("w", "q").await;
    let line = LogLine { at: ctx.now().await, stream: LogStream::Log, text: "line".into() };
    let append = LogAppend { lease: job.lease, first: 0, lines: vec![line] };
    ctx.store.append_logs(vec![append]).await.unwrap().remove(0).unwrap();
    let result = Some(Payload::json("result").unwrap());
    let outputs = [("key".to_owned(), "value".to_owned())].into();
    ctx.report("w", job.lease, OutcomeKind::Complete { result, outputs }).await.unwrap();
    ctx.sweep(SweepKind::Prune).await;
    assert!(ctx.get(id).await.is_none());
    let logs = ctx.store.read_logs(LogRequest { job: id, from: 0, limit: 10 }).await;
    assert!(logs.unwrap_err().is_not_found());
    assert!(ctx.store.explain(id).await.unwrap_err().is_not_found());
    assert_eq!(ctx.list_all(on("q")).await, []);
    assert_eq!(ctx.list_all(on_in("q", State::Succeeded)).await, []);
    let status = ctx.status("q").await;
    assert_eq!((status.counts, status.lanes), (Default::default(), 0));
    assert_eq!(ctx.groups("q").await, []);
}

async fn a_removed_job_may_be_enqueued_again(ctx: Ctx) {
    keep(&ctx, "q", rule(Some(0), None)).await;
    let job = ctx.job("q", "work");
    let id = job.id;
    ctx.enqueue(job.clone()).await;
    let first = ctx.claim_one("w", "q").await;
    let line = LogLine { at: ctx.now().await, stream: LogStream::Log, text: "old".into() };
    ctx.store.append_logs(vec![LogAppend { lease: first.lease, first: 0, lines: vec![line] }]).await.unwrap();
    ctx.complete("w", first.lease).await.unwrap();
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.enqueue(job).await, Enqueued::Created { id });
    let fresh = ctx.get(id).await.unwrap();
    assert_eq!((fresh.state, fresh.attempt, fresh.result, fresh.failures.len()), (State::Ready, 0, None, 0));
    let logs = ctx.store.read_logs(LogRequest { job: id, from: 0, limit: 10 }).await.unwrap();
    assert_eq!((logs.lines.len(), logs.next), (0, 0));
}

async fn dedup_keys_are_pruned(ctx: Ctx) {
    let throttled = |key: &str| {
        let by = DedupBy::Key(DedupKey::new(key).unwrap());
        ctx.job_with("q", |spec| spec.dedup = Some(Dedup { by, mode: DedupMode::Throttle, ttl_ms: Some(200) }))
    };
    keep(&ctx, "q", rule(Some(0), None)).await;
    for key in ["a", "b", "c"] {
        done(&ctx, throttled(key)).await;
    }
    ctx.sweep(SweepKind::Prune).await;
    assert!(matches!(ctx.enqueue(throttled("a")).await, Enqueued::Deduplicated { .. }), "the key outlives its job");
    ctx.advance_ms(200).await;
    assert_eq!(ctx.sweep(SweepKind::Prune).await, 3);
    assert!(matches!(ctx.enqueue(throttled("a")).await, Enqueued::Created { .. }));
}

async fn dead_workers_and_old_metrics_are_pruned(ctx: Ctx) {
    ctx.enqueue_plain("q", 1).await;
    ctx.store.heartbeat(beat("dead", "q")).await.unwrap();
    let then = ctx.now().await;
    let metrics = || ctx.store.metrics(MetricsRequest { queue: queue_name("q"), from: then, to: then });
    // Only a long time makes them old; stores on a server's clock cannot be asked this.
    if matches!(ctx.clock, crate::TestClock::Real) {
        ctx.sweep(SweepKind::Prune).await;
        assert_eq!((metrics().await.unwrap().len(), ctx.store.workers().await.unwrap().len()), (1, 1));
        return;
    }
    ctx.advance_ms(23 * 3_600_000).await;
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.store.workers().await.unwrap().len(), 1);
    ctx.advance_ms(2 * 3_600_000).await;
    ctx.store.heartbeat(beat("live", "q")).await.unwrap();
    ctx.sweep(SweepKind::Prune).await;
    let left: Vec<_> = ctx.store.workers().await.unwrap().into_iter().map(|worker| worker.beat.worker).collect();
    assert_eq!(left, [worker_id("live")]);
    assert_eq!(metrics().await.unwrap().len(), 1, "a day is not too old for metrics");
    ctx.advance_ms(25 * 3_600_000).await;
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(metrics().await.unwrap(), []);
}

async fn pruning_is_bounded_per_step(ctx: Ctx) {
    keep(&ctx, "q", rule(None, None)).await;
    ctx.enqueue_plain("q", 250).await;
    let jobs = ctx.claim("w", "q", 250).await;
    ctx.complete_all("w", &jobs).await;
    keep(&ctx, "q", rule(Some(0), Some(10))).await;
    let mut left = 250;
    while left > 0 {
        let step = ctx.store.sweep(Sweep { kind: SweepKind::Prune, max: 40 }).await.unwrap();
        let now_left = ctx.counts("q").await.succeeded;
        assert!((1..=40).contains(&step.handled), "{step:?} with {left} left");
        assert_eq!(step.handled, left - now_left);
        assert!(step.more || now_left == 0);
        left = now_left;
    }
}
