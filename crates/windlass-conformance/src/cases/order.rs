//! The order in which one consumer gets jobs: priority, then the store's sequence.

use crate::ctx::{Ctx, queue_name};
use crate::runner::cases;
use windlass_core::id::JobId;
use windlass_core::job::{Due, Retry};
use windlass_core::name::{Kind, Labels};
use windlass_core::store::{ChangeOp, OutcomeKind, SweepKind};

cases!("order":
    jobs_come_in_the_order_of_enqueue,
    priority_comes_before_sequence,
    the_extremes_of_priority_are_in_order,
    lifo_jobs_head_their_priority,
    a_retried_job_goes_behind,
    a_promoted_job_goes_behind,
    a_reaped_job_goes_behind,
    a_rescheduled_job_goes_behind,
    a_lifo_job_that_comes_back_heads_its_priority_again,
    lifo_jobs_head_their_priority_in_a_batch_of_all_sorts,
    a_released_job_keeps_its_place,
    reprioritise_moves_a_job_and_keeps_its_number,
    reprioritise_counts_across_lanes,
    reprioritise_counts_for_a_scheduled_job,
    kinds_and_labels_of_one_queue_share_one_order,
    a_batch_comes_in_the_same_order_as_single_claims,
    queues_come_in_the_order_of_the_request,
);

/// All that can be claimed, one by one.
async fn drained(ctx: &Ctx, queue: &str) -> Vec<JobId> {
    let mut order = Vec::new();
    while let Some(job) = ctx.claim("drain", queue, 1).await.pop() {
        order.push(job.lease.job);
    }
    order
}

async fn put(ctx: &Ctx, queue: &str, priority: i16, lifo: bool) -> JobId {
    let edit = |spec: &mut windlass_core::job::JobSpec| (spec.priority, spec.lifo) = (priority, lifo);
    ctx.enqueue(ctx.job_with(queue, edit)).await.id()
}

async fn jobs_come_in_the_order_of_enqueue(ctx: Ctx) {
    let mut ids = ctx.enqueue_all((0..50).map(|_| ctx.job("q", "work")).collect()).await;
    for _ in 0..10 {
        ids.push(put(&ctx, "q", 0, false).await);
    }
    assert_eq!(drained(&ctx, "q").await, ids, "not by id: those are random");
}

async fn priority_comes_before_sequence(ctx: Ctx) {
    let mut put_all = Vec::new();
    for priority in [0, 5, -5, 0, 5, -5, 1, -1] {
        put_all.push((priority, put(&ctx, "q", priority, false).await));
    }
    put_all.sort_by_key(|(priority, _)| *priority);
    assert_eq!(drained(&ctx, "q").await, put_all.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
}

async fn the_extremes_of_priority_are_in_order(ctx: Ctx) {
    let priorities = [0, i16::MAX, i16::MIN, 1, -1, i16::MAX - 1, i16::MIN + 1, 256, -256];
    let mut put_all = Vec::new();
    for priority in priorities {
        for lifo in [false, true] {
            put_all.push(((priority, !lifo), put(&ctx, "q", priority, lifo).await));
        }
    }
    put_all.sort_by_key(|(rank, _)| *rank);
    assert_eq!(drained(&ctx, "q").await, put_all.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
}

async fn lifo_jobs_head_their_priority(ctx: Ctx) {
    let a = put(&ctx, "q", 0, false).await;
    let x = put(&ctx, "q", 0, true).await;
    let b = put(&ctx, "q", 0, false).await;
    let y = put(&ctx, "q", 0, true).await;
    let first = put(&ctx, "q", -1, false).await;
    let last = put(&ctx, "q", 1, true).await;
    assert_eq!(drained(&ctx, "q").await, [first, y, x, a, b, last]);
}

async fn a_retried_job_goes_behind(ctx: Ctx) {
    let a = put(&ctx, "q", 0, false).await;
    let b = put(&ctx, "q", 0, false).await;
    let c = put(&ctx, "q", 0, false).await;
    let lease = ctx.claim_one("w1", "q").await.lease;
    ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap();
    let lease = ctx.claim_one("w1", "q").await.lease;
    assert_eq!(lease.job, b);
    ctx.fail("w1", lease, Retry::Never).await.unwrap();
    ctx.change(b, ChangeOp::Retry(Due::Now)).await.unwrap();
    assert_eq!(drained(&ctx, "q").await, [c, a, b], "failed attempts and explicit retries alike");
}

async fn a_promoted_job_goes_behind(ctx: Ctx) {
    let by_hand = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(3_600_000))).await.id();
    let late = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(60))).await.id();
    let early = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(20))).await.id();
    let urgent = ctx.enqueue(ctx.job_with("q", |spec| spec.priority = -1).due(Due::DelayMs(70))).await.id();
    let ready = put(&ctx, "q", 0, false).await;
    ctx.change(by_hand, ChangeOp::Promote).await.unwrap();
    ctx.advance_ms(100).await;
    assert_eq!(drained(&ctx, "q").await, [urgent, ready, by_hand, early, late], "due ones in the order of their times");
}

async fn a_reaped_job_goes_behind(ctx: Ctx) {
    let a = put(&ctx, "q", 0, false).await;
    let b = put(&ctx, "q", 0, false).await;
    let mut request = ctx.claim_request("w1", "q", 1);
    request.lease_ms = 20;
    ctx.store.claim(request).await.unwrap();
    ctx.advance_ms(20).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
    assert_eq!(drained(&ctx, "q").await, [b, a]);
}

async fn a_rescheduled_job_goes_behind(ctx: Ctx) {
    let a = put(&ctx, "q", 0, false).await;
    let b = put(&ctx, "q", 0, false).await;
    let c = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(3_600_000))).await.id();
    let d = put(&ctx, "q", 0, false).await;
    ctx.change(a, ChangeOp::Reschedule(Due::Now)).await.unwrap();
    ctx.change(c, ChangeOp::Reschedule(Due::Now)).await.unwrap();
    assert_eq!(drained(&ctx, "q").await, [b, d, a, c]);
}

async fn lifo_jobs_head_their_priority_in_a_batch_of_all_sorts(ctx: Ctx) {
    put(&ctx, "q", 0, false).await;
    let mut jobs: Vec<_> = [false, true, true].map(|lifo| ctx.job_with("q", |spec| spec.lifo = lifo)).to_vec();
    // One that is not due, so that not all of them are alike.
    jobs.push(ctx.job("q", "work").due(Due::DelayMs(600_000)));
    let ids = ctx.enqueue_all(jobs).await;
    let order = drained(&ctx, "q").await;
    assert_eq!((&order[..2], order[3]), (&[ids[2], ids[1]][..], ids[0]));
}

async fn a_lifo_job_that_comes_back_heads_its_priority_again(ctx: Ctx) {
    let x = put(&ctx, "q", 0, true).await;
    let lease = ctx.claim_one("w1", "q").await.lease;
    let y = put(&ctx, "q", 0, true).await;
    let a = put(&ctx, "q", 0, false).await;
    ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap();
    assert_eq!(drained(&ctx, "q").await, [x, y, a]);
}

async fn a_released_job_keeps_its_place(ctx: Ctx) {
    let mut ids = Vec::new();
    for lifo in [false, false, true, false] {
        ids.push(put(&ctx, "q", 0, lifo).await);
    }
    let expected = [ids[2], ids[0], ids[1], ids[3]];
    for (started, release) in [(false, [2, 0, 1]), (true, [1, 2, 0])] {
        let claimed = ctx.claim("w1", "q", 3).await;
        assert_eq!(claimed.iter().map(|job| job.lease.job).collect::<Vec<_>>(), expected[..3]);
        for i in release {
            ctx.report("w1", claimed[i].lease, OutcomeKind::Release { started }).await.unwrap();
        }
    }
    let newcomer = put(&ctx, "q", 0, false).await;
    let all: Vec<JobId> = expected.into_iter().chain([newcomer]).collect();
    assert_eq!(drained(&ctx, "q").await, all, "whatever the order of the releases");
}

async fn reprioritise_moves_a_job_and_keeps_its_number(ctx: Ctx) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(put(&ctx, "q", 0, false).await);
    }
    ctx.change(ids[3], ChangeOp::Reprioritise(-1)).await.unwrap();
    ctx.change(ids[1], ChangeOp::Reprioritise(-1)).await.unwrap();
    ctx.change(ids[0], ChangeOp::Reprioritise(i16::MAX)).await.unwrap();
    ctx.change(ids[2], ChangeOp::Reprioritise(i16::MIN)).await.unwrap();
    ctx.change(ids[2], ChangeOp::Reprioritise(0)).await.unwrap();
    assert_eq!(ctx.get(ids[3]).await.unwrap().spec.priority, -1);
    let order = drained(&ctx, "q").await;
    assert_eq!(order, [ids[1], ids[3], ids[2], ids[4], ids[0]], "among equals the earlier one comes first, as before");
}

async fn reprioritise_counts_across_lanes(ctx: Ctx) {
    let kinds = ["a", "b", "c", "a", "b", "c", "a", "b", "c"];
    let ids = ctx.enqueue_all(kinds.iter().map(|kind| ctx.job("q", kind)).collect()).await;
    assert_eq!(ctx.claim_one("w1", "q").await.lease.job, ids[0]);
    ctx.change(ids[7], ChangeOp::Reprioritise(-1)).await.unwrap();
    ctx.change(ids[8], ChangeOp::Reprioritise(-2)).await.unwrap();
    ctx.change(ids[2], ChangeOp::Reprioritise(1)).await.unwrap();
    let expected = [8, 7, 1, 3, 4, 5, 6, 2].map(|i| ids[i]);
    assert_eq!(drained(&ctx, "q").await, expected);
}

async fn reprioritise_counts_for_a_scheduled_job(ctx: Ctx) {
    let later = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(20))).await.id();
    let ready = put(&ctx, "q", 0, false).await;
    ctx.change(later, ChangeOp::Reprioritise(-1)).await.unwrap();
    ctx.advance_ms(20).await;
    let claimed = ctx.claim_one("w1", "q").await;
    assert_eq!((claimed.lease.job, claimed.spec.priority), (later, -1));
    ctx.fail("w1", claimed.lease, Retry::AfterMs(0)).await.unwrap();
    assert_eq!(drained(&ctx, "q").await, [later, ready], "and on the next attempt, too");
}

/// Jobs in many lanes, in the order of enqueue.
async fn many_lanes(ctx: &Ctx, queue: &str) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for i in 0..60_u32 {
        let mut job = ctx.job(queue, &format!("kind{}", i * 7 % 5));
        if i % 3 == 0 {
            job.spec.labels = Labels::parse([format!("label{}", i % 4)]).unwrap();
        }
        job.spec.priority = i16::try_from(i % 2).unwrap();
        jobs.push(job);
    }
    let ids = ctx.enqueue_all(jobs).await;
    let (even, odd): (Vec<_>, Vec<_>) = ids.into_iter().enumerate().partition(|(i, _)| i.is_multiple_of(2));
    even.into_iter().chain(odd).map(|(_, id)| id).collect()
}

async fn kinds_and_labels_of_one_queue_share_one_order(ctx: Ctx) {
    let ids = many_lanes(&ctx, "q").await;
    let mut order = Vec::new();
    loop {
        let mut request = ctx.claim_request("w1", "q", 1);
        request.labels = Labels::parse(["label0", "label1", "label2", "label3"]).unwrap();
        let Some(job) = ctx.store.claim(request).await.unwrap().jobs.pop() else { break };
        order.push(job.lease.job);
    }
    assert_eq!(order, ids);
}

async fn a_batch_comes_in_the_same_order_as_single_claims(ctx: Ctx) {
    let ids = many_lanes(&ctx, "q").await;
    let mut order = Vec::new();
    for max in [1, 7, 2, 30, 100] {
        let mut request = ctx.claim_request("w1", "q", max);
        request.labels = Labels::parse(["label0", "label1", "label2", "label3"]).unwrap();
        order.extend(ctx.store.claim(request).await.unwrap().jobs.iter().map(|job| job.lease.job));
    }
    assert_eq!(order, ids);
}

async fn queues_come_in_the_order_of_the_request(ctx: Ctx) {
    let mut by_queue = Vec::new();
    for queue in ["a", "b", "c"] {
        let mut job = ctx.job(queue, "work");
        // Priority orders the jobs of one queue, not queues.
        job.spec.priority = if queue == "a" { -9 } else { 9 };
        let other = ctx.job_with(queue, |spec| spec.kind = Kind::new("other").unwrap());
        let mut ids = ctx.enqueue_all(vec![job, other]).await;
        if queue != "a" {
            ids.reverse();
        }
        by_queue.push(ids);
    }
    let mut request = ctx.claim_request("w1", "a", 5);
    request.queues = ["c", "missing", "a", "b"].map(queue_name).to_vec();
    let order: Vec<JobId> = ctx.store.claim(request).await.unwrap().jobs.iter().map(|job| job.lease.job).collect();
    let expected = [&by_queue[2][..], &by_queue[0][..], &by_queue[1][..1]].concat();
    assert_eq!(order, expected);
}
