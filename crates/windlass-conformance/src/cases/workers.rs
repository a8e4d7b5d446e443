//! The worker registry.

use crate::ctx::{Ctx, queue_name, worker_id};
use crate::look::beat;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::name::{Kind, Labels, WORKER_LABELS_MAX};
use windlass_core::store::{Beat, ChangeOp, Kinds, WorkerStatus};

cases!("workers":
    the_first_beat_registers,
    a_later_beat_replaces_what_was_said,
    a_worker_is_live_until_its_time_runs_out,
    leaving_twice_is_fine,
    a_worker_that_left_may_come_back,
    workers_are_listed_by_id,
    a_beat_tells_of_cancelled_jobs,
    leases_outlive_a_worker_that_leaves,
    a_claim_registers_nobody,
    beats_that_cannot_be_meant_are_refused,
);

async fn workers(ctx: &Ctx) -> Vec<WorkerStatus> {
    ctx.store.workers().await.unwrap()
}

async fn the_first_beat_registers(ctx: Ctx) {
    assert_eq!(workers(&ctx).await, []);
    let said = Beat {
        queues: vec![queue_name("b"), queue_name("a")],
        kinds: Kinds::Only(vec![Kind::new("mail").unwrap()]),
        labels: Labels::parse(["gpu", "linux"]).unwrap(),
        slots: 8,
        running: 3,
        about: "host ü, 42".to_owned(),
        ..beat("w", "q")
    };
    let before = ctx.now().await;
    let answer = ctx.store.heartbeat(said.clone()).await.unwrap();
    assert_eq!(answer.cancelled, []);
    let all = workers(&ctx).await;
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].beat, all[0].live), (&said, true));
    assert!(all[0].since >= before && all[0].seen_at == all[0].since);
}

async fn a_later_beat_replaces_what_was_said(ctx: Ctx) {
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    let first = workers(&ctx).await.remove(0);
    ctx.advance_ms(50).await;
    let said = Beat { running: 2, ..beat("w", "other") };
    ctx.store.heartbeat(said.clone()).await.unwrap();
    let second = workers(&ctx).await.remove(0);
    assert_eq!((second.beat, second.since), (said, first.since));
    assert!(second.seen_at >= first.seen_at.plus_ms(50));
}

async fn a_worker_is_live_until_its_time_runs_out(ctx: Ctx) {
    let said = || Beat { ttl_ms: 600, ..beat("w", "q") };
    ctx.store.heartbeat(said()).await.unwrap();
    ctx.advance_ms(300).await;
    ctx.store.heartbeat(said()).await.unwrap();
    ctx.advance_ms(500).await;
    let status = workers(&ctx).await.remove(0);
    assert_eq!(status.live, ctx.now().await.ms_since(status.seen_at) <= 600, "{status:?}");
    ctx.advance_ms(200).await;
    let status = workers(&ctx).await.remove(0);
    assert!(!status.live, "it is still listed, and dead");
    ctx.store.heartbeat(said()).await.unwrap();
    assert!(workers(&ctx).await[0].live, "and lives again when it is heard of");
}

async fn leaving_twice_is_fine(ctx: Ctx) {
    ctx.store.heartbeat(beat("a", "q")).await.unwrap();
    ctx.store.heartbeat(beat("b", "q")).await.unwrap();
    for _ in 0..2 {
        ctx.store.deregister(worker_id("a")).await.unwrap();
    }
    ctx.store.deregister(worker_id("never")).await.unwrap();
    let left: Vec<_> = workers(&ctx).await.into_iter().map(|status| status.beat.worker).collect();
    assert_eq!(left, [worker_id("b")]);
}

async fn a_worker_that_left_may_come_back(ctx: Ctx) {
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    let first = workers(&ctx).await.remove(0);
    ctx.store.deregister(worker_id("w")).await.unwrap();
    ctx.advance_ms(20).await;
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    assert!(workers(&ctx).await[0].since >= first.since.plus_ms(20), "since its return");
}

async fn workers_are_listed_by_id(ctx: Ctx) {
    for name in ["c", "a", "ü", "b", "B"] {
        ctx.store.heartbeat(beat(name, "q")).await.unwrap();
    }
    let all: Vec<_> = workers(&ctx).await.into_iter().map(|status| status.beat.worker.to_string()).collect();
    assert_eq!(all, ["B", "a", "b", "c", "ü"]);
}

async fn a_beat_tells_of_cancelled_jobs(ctx: Ctx) {
    ctx.enqueue_plain("q", 4).await;
    let mine = ctx.claim("w", "q", 3).await;
    let others = ctx.claim("x", "q", 1).await;
    for job in [&mine[0], &mine[2], &others[0]] {
        ctx.change(job.lease.job, ChangeOp::Cancel).await.unwrap();
    }
    let mut told = ctx.store.heartbeat(beat("w", "q")).await.unwrap().cancelled;
    told.sort();
    let mut expected = vec![mine[0].lease.job, mine[2].lease.job];
    expected.sort();
    assert_eq!(told, expected);
    let again = ctx.store.heartbeat(beat("w", "q")).await.unwrap().cancelled;
    assert_eq!(again.len(), 2, "until they have ended");
    ctx.complete("w", mine[0].lease).await.unwrap();
    let told = ctx.store.heartbeat(beat("w", "q")).await.unwrap().cancelled;
    assert_eq!(told, [mine[2].lease.job]);
    assert_eq!(ctx.store.heartbeat(beat("x", "q")).await.unwrap().cancelled, [others[0].lease.job]);
}

async fn leases_outlive_a_worker_that_leaves(ctx: Ctx) {
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    ctx.enqueue_plain("q", 1).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.store.deregister(worker_id("w")).await.unwrap();
    assert!(ctx.claim("x", "q", 1).await.is_empty());
    ctx.complete("w", job.lease).await.unwrap();
}

async fn a_claim_registers_nobody(ctx: Ctx) {
    ctx.enqueue_plain("q", 1).await;
    ctx.work_one("w", "q").await;
    assert_eq!(workers(&ctx).await, []);
}

async fn beats_that_cannot_be_meant_are_refused(ctx: Ctx) {
    let labels = |count| Labels::parse((0..count).map(|n| n.to_string())).unwrap();
    let kind = Kind::new("k").unwrap();
    let bad = [
        Beat { ttl_ms: 0, ..beat("w", "q") },
        Beat { ttl_ms: u64::MAX, ..beat("w", "q") },
        Beat { labels: labels(WORKER_LABELS_MAX + 1), ..beat("w", "q") },
        Beat { about: "x".repeat(4_097), ..beat("w", "q") },
        Beat { kinds: Kinds::Only(vec![kind; 10_001]), ..beat("w", "q") },
        Beat { queues: vec![queue_name("q"); 10_001], ..beat("w", "q") },
    ];
    for said in bad {
        let refused = ctx.store.heartbeat(said).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{refused:?}");
    }
    assert_eq!(workers(&ctx).await, []);
    ctx.store.heartbeat(Beat { labels: labels(WORKER_LABELS_MAX), ..beat("w", "q") }).await.unwrap();
}
