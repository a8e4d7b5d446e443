//! The cap of a group: never exceeded, and the group comes back each time a job of it ends.

use crate::ctx::Ctx;
use crate::look::{by_group, cap, ids, release};
use crate::runner::cases;
use std::sync::Arc;
use tokio::task::JoinSet;
use windlass_core::job::{Due, Lease, Retry, State};
use windlass_core::store::{ChangeOp, ClaimRequest, GroupSettings};

cases!("groups_cap":
    no_more_than_the_cap_are_active,
    the_cap_of_one_group_holds_back_no_other,
    every_way_out_brings_the_group_back,
    every_way_out_brings_the_group_back_in_another_lane,
    a_parked_group_that_gets_a_job_in_a_new_lane_comes_back_there,
    a_job_retried_or_promoted_into_a_parked_group_waits,
    a_raised_cap_counts_at_once,
    a_lowered_cap_counts_at_once,
    defaults_of_the_queue_and_own_settings,
    a_group_cap_holds_over_queues_workers_and_batches,
    eight_claimers_never_exceed_the_cap,
    the_cap_is_of_one_queue,
);

async fn no_more_than_the_cap_are_active(ctx: Ctx) {
    ctx.set_group("q", "g", cap(2)).await;
    let made = ctx.enqueue_grouped("q", "g", 5).await;
    let first = ctx.claim("w", "q", 10).await;
    assert_eq!(ids(&first), made[..2]);
    assert!(ctx.claim("w2", "q", 10).await.is_empty());
    ctx.complete("w", first[1].lease).await.unwrap();
    assert_eq!(ids(&ctx.claim("w2", "q", 10).await), [made[2]]);
    let status = ctx.group_status("q", "g").await.unwrap();
    assert_eq!((status.ready, status.active, status.settings), (2, 2, cap(2)));
}

async fn the_cap_of_one_group_holds_back_no_other(ctx: Ctx) {
    ctx.set_group("q", "full", cap(1)).await;
    ctx.enqueue_grouped("q", "full", 50).await;
    let free = ctx.enqueue_grouped("q", "free", 3).await;
    let plain = ctx.enqueue_plain("q", 3).await;
    let got = ids(&ctx.claim("w", "q", 100).await);
    assert_eq!(got.len(), 7);
    assert!(free.iter().chain(&plain).all(|id| got.contains(id)));
}

/// How an active job can stop being active.
#[derive(Clone, Copy, Debug)]
enum Way {
    Complete,
    FailForGood,
    FailAndBackOff,
    FailAndTryAgain,
    Release,
    Reap,
    ReapForGood,
    CancelAndComplete,
    CancelAndReap,
}

impl Way {
    const ALL: [Self; 9] = [
        Self::Complete,
        Self::FailForGood,
        Self::FailAndBackOff,
        Self::FailAndTryAgain,
        Self::Release,
        Self::Reap,
        Self::ReapForGood,
        Self::CancelAndComplete,
        Self::CancelAndReap,
    ];

    async fn take(self, ctx: &Ctx, lease: Lease) {
        match self {
            Self::Complete => drop(ctx.complete("w", lease).await.unwrap()),
            Self::FailForGood => drop(ctx.fail("w", lease, Retry::Never).await.unwrap()),
            Self::FailAndBackOff => drop(ctx.fail("w", lease, Retry::AfterMs(3_600_000)).await.unwrap()),
            Self::FailAndTryAgain => drop(ctx.fail("w", lease, Retry::AfterMs(0)).await.unwrap()),
            Self::Release => drop(ctx.report("w", lease, release(false)).await.unwrap()),
            Self::Reap | Self::ReapForGood => ctx.expire(LEASE_MS).await,
            Self::CancelAndComplete => {
                ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
                assert_eq!(ctx.complete("w", lease).await.unwrap().state, State::Cancelled);
            }
            Self::CancelAndReap => {
                ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
                ctx.expire(LEASE_MS).await;
            }
        }
    }

    fn stalls(self) -> u32 {
        if matches!(self, Self::ReapForGood) { 0 } else { 1 }
    }
}

/// Short, because some ways wait for its end.
const LEASE_MS: u64 = 100;

async fn every_way_out_brings_the_group_back(ctx: Ctx) {
    for way in Way::ALL {
        let queue = format!("{way:?}");
        ctx.set_group(&queue, "g", cap(1)).await;
        let job = || {
            let mut job = ctx.grouped(&queue, "g");
            job.spec.stalls = way.stalls();
            job
        };
        ctx.enqueue_all(vec![job(), job(), job()]).await;
        let first = ctx.claim_short("w", &queue, LEASE_MS).await;
        assert!(ctx.claim("w", &queue, 10).await.is_empty(), "{way:?}: one is the cap");
        way.take(&ctx, first.lease).await;
        let status = ctx.group_status(&queue, "g").await.unwrap();
        assert_eq!(status.active, 0, "{way:?}");
        assert_eq!(ctx.claim("w", &queue, 10).await.len(), 1, "{way:?}: the group is back, and only one goes");
        assert_eq!(ctx.group_status(&queue, "g").await.unwrap().active, 1, "{way:?}");
    }
}

async fn every_way_out_brings_the_group_back_in_another_lane(ctx: Ctx) {
    for way in Way::ALL {
        let queue = format!("{way:?}");
        ctx.set_group(&queue, "g", cap(1)).await;
        let mut job = ctx.grouped_kind(&queue, "g", "a");
        job.spec.stalls = way.stalls();
        ctx.enqueue(job).await;
        let waiting = ctx.enqueue(ctx.grouped_kind(&queue, "g", "b")).await.id();
        let first = ctx.claim_short("w", &queue, LEASE_MS).await;
        assert!(ctx.claim_kinds("w", &queue, &["b"], 10).await.is_empty(), "{way:?}");
        way.take(&ctx, first.lease).await;
        assert_eq!(ids(&ctx.claim_kinds("w", &queue, &["b"], 10).await), [waiting], "{way:?}");
        assert!(ctx.claim_kinds("w", &queue, &["a"], 10).await.is_empty(), "{way:?}: the cap holds over lanes");
    }
}

async fn a_parked_group_that_gets_a_job_in_a_new_lane_comes_back_there(ctx: Ctx) {
    ctx.set_group("q", "g", cap(1)).await;
    ctx.enqueue(ctx.grouped_kind("q", "g", "a")).await;
    let first = ctx.claim_one("w", "q").await;
    // The group is out of turn, and this lane does not know it yet.
    let late = ctx.enqueue(ctx.grouped_kind("q", "g", "b")).await.id();
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    ctx.complete("w", first.lease).await.unwrap();
    assert_eq!(ids(&ctx.claim_kinds("w", "q", &["b"], 10).await), [late]);
}

async fn a_job_retried_or_promoted_into_a_parked_group_waits(ctx: Ctx) {
    ctx.set_group("q", "g", cap(1)).await;
    let failed = ctx.enqueue(ctx.grouped("q", "g")).await.id();
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::Never).await.unwrap();
    let later = Due::DelayMs(3_600_000);
    let scheduled = ctx.enqueue(ctx.grouped("q", "g").due(later)).await.id();
    ctx.enqueue(ctx.grouped("q", "g")).await;
    let active = ctx.claim_one("w", "q").await;
    ctx.change(failed, ChangeOp::Retry(Due::Now)).await.unwrap();
    ctx.change(scheduled, ChangeOp::Promote).await.unwrap();
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    ctx.complete("w", active.lease).await.unwrap();
    assert_eq!(ids(&ctx.claim("w", "q", 10).await), [failed]);
}

async fn a_raised_cap_counts_at_once(ctx: Ctx) {
    ctx.set_group("q", "g", cap(1)).await;
    ctx.enqueue_grouped("q", "g", 9).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
    ctx.set_group("q", "g", cap(3)).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 2);
    ctx.set_group("q", "g", GroupSettings::default()).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 6, "no cap any more");
}

async fn a_lowered_cap_counts_at_once(ctx: Ctx) {
    ctx.set_group("q", "g", cap(4)).await;
    ctx.enqueue_grouped("q", "g", 9).await;
    let jobs = ctx.claim("w", "q", 3).await;
    ctx.set_group("q", "g", cap(2)).await;
    assert!(ctx.claim("w", "q", 10).await.is_empty(), "three are active, two are allowed");
    ctx.complete("w", jobs[0].lease).await.unwrap();
    assert!(ctx.claim("w", "q", 10).await.is_empty(), "two are active, two are allowed");
    ctx.complete("w", jobs[1].lease).await.unwrap();
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
}

async fn defaults_of_the_queue_and_own_settings(ctx: Ctx) {
    ctx.set_group("q", "own", cap(3)).await;
    ctx.set_queue("q", |settings| settings.groups = cap(1)).await;
    for name in ["own", "a", "b"] {
        ctx.enqueue_grouped("q", name, 5).await;
    }
    ctx.enqueue_plain("q", 5).await;
    let counts = by_group(&ctx.claim("w", "q", 100).await);
    let expected = [("", 5), ("a", 1), ("b", 1), ("own", 3)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(counts, expected.into(), "jobs without a group have no limits of a group");
    assert!(ctx.group_status("q", "a").await.unwrap().settings.is_default(), "only own settings are shown");
    ctx.set_queue("q", |settings| settings.groups = cap(2)).await;
    let counts = by_group(&ctx.claim("w", "q", 100).await);
    assert_eq!(counts, [("a", 1), ("b", 1)].map(|(name, n)| (name.to_owned(), n)).into(), "raised for all at once");
    ctx.set_queue("q", |settings| settings.groups = cap(1)).await;
    ctx.enqueue_grouped("q", "new", 5).await;
    let counts = by_group(&ctx.claim("w", "q", 100).await);
    assert_eq!(counts, [("new".to_owned(), 1)].into(), "lowered for all at once");
    ctx.set_group("q", "own", GroupSettings::default()).await;
    assert!(ctx.claim("w", "q", 100).await.is_empty(), "without its own it has the queue's");
}

async fn a_group_cap_holds_over_queues_workers_and_batches(ctx: Ctx) {
    ctx.set_group("q", "g", cap(4)).await;
    ctx.enqueue_grouped("q", "g", 20).await;
    let mut active = Vec::new();
    for worker in ["a", "b", "c", "d", "e", "f"] {
        active.extend(ctx.claim(worker, "q", 3).await);
    }
    assert_eq!(active.len(), 4);
}

async fn the_cap_is_of_one_queue(ctx: Ctx) {
    ctx.set_group("q", "g", cap(1)).await;
    ctx.enqueue_grouped("q", "g", 3).await;
    ctx.enqueue_grouped("other", "g", 3).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
    assert_eq!(ctx.claim("w", "other", 10).await.len(), 3, "a group of the same name on another queue is another one");
}

async fn eight_claimers_never_exceed_the_cap(ctx: Ctx) {
    const CAP: u64 = 3;
    ctx.set_queue("q", |settings| settings.groups = cap(3)).await;
    for name in ["a", "b", "c", "d"] {
        ctx.enqueue_grouped("q", name, 50).await;
    }
    let ctx = Arc::new(ctx);
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let ctx = Arc::clone(&ctx);
        tasks.spawn(async move {
            let worker = format!("w{n}");
            let mut done = 0;
            for _ in 0..2_000 {
                let request = ClaimRequest { max: 1 + n % 3, ..ctx.claim_request(&worker, "q", 1) };
                let jobs = ctx.store.claim(request).await.unwrap().jobs;
                let groups = ctx.groups("q").await;
                assert!(groups.iter().all(|status| status.active <= CAP), "{groups:?}");
                done += jobs.len();
                ctx.complete_all(&worker, &jobs).await;
                let counts = ctx.counts("q").await;
                if counts.ready + counts.active == 0 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            done
        });
    }
    let done: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(done, 200);
    assert_eq!(ctx.groups("q").await, []);
}
