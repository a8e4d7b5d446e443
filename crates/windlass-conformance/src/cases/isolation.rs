//! Two stores side by side do not see each other.

use crate::ctx::Ctx;
use crate::look::{beat, on};
use crate::runner::cases;
use std::sync::Arc;
use windlass_core::schedule::Schedule;
use windlass_core::store::{Enqueued, FeedCursor, Filter, SweepKind};

cases!("isolation":
    two_stores_do_not_see_each_other,
    the_same_names_and_ids_are_others_in_another_store,
    a_closed_store_leaves_the_other_open,
);

async fn two_stores_do_not_see_each_other(ctx: Ctx) {
    let other = Ctx::open(Arc::clone(&ctx.factory)).await;
    let id = ctx.enqueue(ctx.grouped("q", "g")).await.id();
    ctx.pause("paused", true).await;
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    let schedule = super::schedule_help::every("s", 60_000);
    ctx.store.put_schedule(Schedule { next_tick: Some(ctx.now().await), ..schedule }).await.unwrap();
    assert!(other.get(id).await.is_none());
    assert_eq!(other.list_all(Filter::default()).await, []);
    assert_eq!(other.store.queues().await.unwrap(), []);
    assert_eq!(other.store.workers().await.unwrap(), []);
    assert_eq!(other.store.schedules().await.unwrap(), []);
    assert_eq!(other.store.due_schedules(10).await.unwrap(), []);
    assert_eq!(other.feed_end().await, FeedCursor(0));
    assert!(other.claim("w", "q", 10).await.is_empty());
    for kind in SweepKind::ALL {
        assert_eq!(other.sweep(kind).await, 0);
    }
    assert_eq!(ctx.claim_one("w", "q").await.lease.job, id);
}

async fn the_same_names_and_ids_are_others_in_another_store(ctx: Ctx) {
    let other = Ctx::open(Arc::clone(&ctx.factory)).await;
    let job = ctx.job("q", "work");
    let id = job.id;
    assert_eq!(ctx.enqueue(job.clone()).await, Enqueued::Created { id });
    assert_eq!(other.enqueue(job).await, Enqueued::Created { id });
    let mine = ctx.claim_one("w", "q").await;
    let theirs = other.claim_one("w", "q").await;
    if mine.lease.token != theirs.lease.token {
        assert!(other.complete("w", mine.lease).await.unwrap_err().is_lease_lost());
    }
    ctx.complete("w", mine.lease).await.unwrap();
    assert_eq!(other.counts("q").await.active, 1);
    ctx.change_all(windlass_core::store::ChangeManyOp::Obliterate { force: true }, on("q"), 10).await;
    assert!(other.get(id).await.is_some());
    other.complete("w", theirs.lease).await.unwrap();
}

async fn a_closed_store_leaves_the_other_open(ctx: Ctx) {
    let other = Ctx::open(Arc::clone(&ctx.factory)).await;
    ctx.store.close().await.unwrap();
    other.enqueue_plain("q", 1).await;
    other.work_one("w", "q").await;
}
