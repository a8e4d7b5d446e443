//! The rate of a group: never more than the limit in any window.

use crate::ctx::{Ctx, queue_name};
use crate::look::{assert_rate, ids};
use crate::runner::cases;
use windlass_core::job::Due;
use windlass_core::rate::Rate;
use windlass_core::store::{GroupSettings, SweepKind, WaitFor};
use windlass_core::time::HANG_GUARD;

cases!("groups_rate":
    no_window_holds_more_than_the_limit,
    large_limits_hold_too,
    a_claim_says_when_the_group_may_go_again,
    a_claim_does_not_speak_for_other_queues,
    the_rate_of_one_group_holds_back_no_other,
    idleness_forgets_no_start,
    a_group_that_was_idle_is_back_when_its_rate_allows,
    a_job_that_comes_after_the_window_goes_at_once,
    the_sweep_brings_a_group_back_and_tells_those_who_wait,
    a_default_rate_counts_for_each_group_apart,
    a_changed_rate_counts_at_once,
    a_group_with_nothing_to_remember_vanishes,
);

fn rate(limit: u32, per_ms: u64) -> GroupSettings {
    GroupSettings { rate: Some(Rate { limit, per_ms }), ..GroupSettings::default() }
}

/// Claims and completes over and over while time passes in small steps; answers when the jobs started.
async fn starts(ctx: &Ctx, steps: usize, step_ms: u64) -> Vec<i64> {
    let mut starts = Vec::new();
    for step in 0..steps {
        let jobs = ctx.claim("w", "q", 1 + u32::try_from(step % 4).unwrap()).await;
        for job in &jobs {
            starts.push(ctx.get(job.lease.job).await.unwrap().claimed_at.unwrap().as_ms());
        }
        ctx.complete_all("w", &jobs).await;
        ctx.advance_ms(step_ms).await;
    }
    starts
}

async fn no_window_holds_more_than_the_limit(ctx: Ctx) {
    ctx.set_group("q", "g", rate(5, 300)).await;
    ctx.enqueue_grouped("q", "g", 100).await;
    let starts = starts(&ctx, 60, 25).await;
    assert!(starts.len() >= 20, "only {} of at least 20 started", starts.len());
    assert_rate(starts, 5, 300);
}

async fn large_limits_hold_too(ctx: Ctx) {
    ctx.set_group("q", "g", rate(120, 400)).await;
    ctx.enqueue_grouped("q", "g", 1_000).await;
    let mut starts = Vec::new();
    for _ in 0..40 {
        for job in ctx.claim("w", "q", 50).await {
            starts.push(ctx.get(job.lease.job).await.unwrap().claimed_at.unwrap().as_ms());
        }
        ctx.advance_ms(25).await;
    }
    assert!(starts.len() >= 240, "only {} started in a second", starts.len());
    assert_rate(starts, 120, 400);
}

async fn a_claim_says_when_the_group_may_go_again(ctx: Ctx) {
    ctx.set_group("q", "g", rate(2, 1_000)).await;
    ctx.enqueue_grouped("q", "g", 5).await;
    let jobs = ctx.claim("w", "q", 10).await;
    assert_eq!(jobs.len(), 2);
    let started = ctx.get(jobs[0].lease.job).await.unwrap().claimed_at.unwrap();
    let empty = ctx.store.claim(ctx.claim_request("w", "q", 10)).await.unwrap();
    assert!(empty.jobs.is_empty());
    assert_eq!(empty.next_at, Some(started.plus_ms(1_000)));
    let status = ctx.group_status("q", "g").await.unwrap();
    assert_eq!(status.rate_limited_until, Some(started.plus_ms(1_000)));
    ctx.advance_ms(1_000).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 2);
}

async fn a_claim_does_not_speak_for_other_queues(ctx: Ctx) {
    ctx.set_group("q", "g", rate(1, 1_000)).await;
    ctx.enqueue_grouped("q", "g", 2).await;
    assert_eq!(ctx.claim("w", "q", 2).await.len(), 1);
    let waiting = ctx.enqueue(ctx.job("other", "work").due(Due::DelayMs(5_000))).await.id();
    let due_at = ctx.get(waiting).await.unwrap().due_at;
    let empty = ctx.store.claim(ctx.claim_request("w", "other", 1)).await.unwrap();
    assert!(empty.jobs.is_empty());
    assert_eq!(empty.next_at, due_at, "a group of another queue wakes nobody here");
}

async fn the_rate_of_one_group_holds_back_no_other(ctx: Ctx) {
    ctx.set_group("q", "slow", rate(1, 60_000)).await;
    ctx.enqueue_grouped("q", "slow", 50).await;
    let free = ctx.enqueue_grouped("q", "free", 5).await;
    let got = ids(&ctx.claim("w", "q", 100).await);
    assert_eq!(got.len(), 6);
    assert!(free.iter().all(|id| got.contains(id)));
}

async fn idleness_forgets_no_start(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = rate(2, 60_000)).await;
    for _ in 0..2 {
        ctx.enqueue_grouped("q", "g", 1).await;
        ctx.work_one("w", "q").await;
    }
    ctx.sweep(SweepKind::Promote).await;
    ctx.sweep(SweepKind::Prune).await;
    ctx.enqueue_grouped("q", "g", 1).await;
    assert!(ctx.claim("w", "q", 1).await.is_empty(), "two started, though nothing is left of them");
    assert!(ctx.group_status("q", "g").await.unwrap().rate_limited_until.is_some());
}

async fn a_group_that_was_idle_is_back_when_its_rate_allows(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = rate(1, 1_000)).await;
    ctx.enqueue_grouped("q", "g", 1).await;
    let first = ctx.claim_one("w", "q").await;
    let started = ctx.get(first.lease.job).await.unwrap().claimed_at.unwrap();
    ctx.advance_ms(100).await;
    ctx.complete("w", first.lease).await.unwrap();
    let second = ctx.enqueue_grouped("q", "g", 1).await;
    let empty = ctx.store.claim(ctx.claim_request("w", "q", 1)).await.unwrap();
    assert!(empty.jobs.is_empty());
    assert_eq!(empty.next_at, Some(started.plus_ms(1_000)));
    ctx.advance_ms(900).await;
    assert_eq!(ids(&ctx.claim("w", "q", 1).await), second);
}

async fn a_job_that_comes_after_the_window_goes_at_once(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = rate(1, 500)).await;
    ctx.enqueue_grouped("q", "g", 1).await;
    ctx.work_one("w", "q").await;
    ctx.advance_ms(500).await;
    ctx.enqueue_grouped("q", "g", 1).await;
    ctx.work_one("w", "q").await;
}

async fn the_sweep_brings_a_group_back_and_tells_those_who_wait(ctx: Ctx) {
    ctx.set_group("q", "g", rate(1, 500)).await;
    ctx.enqueue_grouped("q", "g", 2).await;
    ctx.work_one("w", "q").await;
    let mark = ctx.store.claim(ctx.claim_request("w", "q", 1)).await.unwrap().mark;
    ctx.advance_ms(500).await;
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 1);
    let wait = ctx.store.wait(WaitFor::Work { queues: vec![queue_name("q")], mark });
    tokio::time::timeout(HANG_GUARD, wait).await.expect("told").unwrap();
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
}

async fn a_default_rate_counts_for_each_group_apart(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = rate(2, 60_000)).await;
    ctx.set_group("q", "own", rate(3, 60_000)).await;
    for name in ["a", "b", "own"] {
        ctx.enqueue_grouped("q", name, 5).await;
    }
    let counts = crate::look::by_group(&ctx.claim("w", "q", 100).await);
    assert_eq!(counts, [("a", 2), ("b", 2), ("own", 3)].map(|(name, n)| (name.to_owned(), n)).into());
    assert!(ctx.claim("w", "q", 100).await.is_empty());
}

async fn a_changed_rate_counts_at_once(ctx: Ctx) {
    ctx.set_group("q", "g", rate(1, 60_000)).await;
    ctx.enqueue_grouped("q", "g", 10).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
    ctx.set_group("q", "g", rate(3, 60_000)).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 2, "what started before still counts");
    ctx.set_group("q", "g", GroupSettings::default()).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 7);
}

async fn a_group_with_nothing_to_remember_vanishes(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = rate(2, 200)).await;
    ctx.enqueue_grouped("q", "g", 1).await;
    ctx.work_one("w", "q").await;
    ctx.advance_ms(401).await;
    ctx.sweep(SweepKind::Promote).await;
    assert_eq!(ctx.groups("q").await, []);
}
