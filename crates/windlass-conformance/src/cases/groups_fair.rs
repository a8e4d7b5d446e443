//! Fair turns between groups.

use crate::ctx::Ctx;
use crate::look::{by_group, cap, group_of, weight};
use crate::runner::cases;
use std::collections::BTreeSet;
use windlass_core::store::ClaimedJob;

cases!("groups_fair":
    one_big_group_does_not_starve_small_ones,
    equal_groups_take_turns,
    weights_three_to_one_are_exact_within_one_turn,
    weights_of_the_queue_and_of_the_group,
    a_changed_weight_counts_for_the_next_turns,
    a_newcomer_starts_at_the_present_time,
    a_newcomer_has_no_credit_after_a_large_claim,
    an_idle_group_does_not_save_up_turns,
    a_group_that_was_at_its_cap_does_not_save_up_turns,
    jobs_without_a_group_are_one_group,
    turns_are_fair_over_lanes,
    a_newcomer_among_slow_workers_has_its_turns,
    slow_workers_give_newcomers_of_others_no_credit,
    a_group_back_from_its_cap_has_its_turns_among_slow_workers,
    jobs_that_no_worker_may_run_earn_no_turns_in_other_lanes,
    plain_jobs_that_no_worker_may_run_earn_no_turns_in_other_lanes,
    jobs_that_a_new_worker_may_run_bring_no_saved_up_turns,
    a_group_back_from_its_cap_earned_no_turns_by_jobs_that_no_worker_may_run,
    priority_orders_within_a_group_only,
    slow_ten_thousand_groups_take_turns,
);

/// Claims `total` jobs, `max` at a time.
async fn claim_by(ctx: &Ctx, total: usize, max: u32) -> Vec<ClaimedJob> {
    let mut got: Vec<ClaimedJob> = Vec::new();
    while got.len() < total {
        let left = u32::try_from(total - got.len()).unwrap();
        let jobs = ctx.claim("w", "q", max.min(left)).await;
        assert!(!jobs.is_empty(), "only {} of {total}", got.len());
        got.extend(jobs);
    }
    got
}

async fn one_big_group_does_not_starve_small_ones(ctx: Ctx) {
    ctx.enqueue_grouped("q", "big", 1_000).await;
    for n in 0..20 {
        ctx.enqueue_grouped("q", &format!("small-{n}"), 1).await;
    }
    let counts = by_group(&ctx.claim("w", "q", 21).await);
    assert_eq!(counts.len(), 21, "everybody has had a turn: {counts:?}");
}

async fn equal_groups_take_turns(ctx: Ctx) {
    for name in ["a", "b", "c", "d"] {
        ctx.enqueue_grouped("q", name, 50).await;
    }
    for max in [1, 3, 4, 10, 32] {
        let got = claim_by(&ctx, 32, max).await;
        for turn in got.chunks(4) {
            assert_eq!(by_group(turn).len(), 4, "each once per round");
        }
        ctx.complete_all("w", &got).await;
    }
}

async fn weights_three_to_one_are_exact_within_one_turn(ctx: Ctx) {
    for max in [1, 7, 64, 400] {
        let (heavy, light) = (format!("heavy-{max}"), format!("light-{max}"));
        ctx.set_group("q", &heavy, weight(3)).await;
        ctx.enqueue_grouped("q", &heavy, 400).await;
        ctx.enqueue_grouped("q", &light, 400).await;
        let got = claim_by(&ctx, 400, max).await;
        let mut heavies = 0i64;
        for (n, job) in (1i64..).zip(&got) {
            heavies += i64::from(group_of(job) == heavy);
            assert!((4 * heavies - 3 * n).abs() <= 4, "{heavies} of the first {n}, by {max}");
        }
        assert_eq!(ctx.claim("w", "q", 1_000).await.len(), 400, "all of them come");
    }
}

async fn weights_of_the_queue_and_of_the_group(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = weight(2)).await;
    ctx.set_group("q", "one", weight(1)).await;
    ctx.enqueue_grouped("q", "one", 100).await;
    ctx.enqueue_grouped("q", "two", 100).await;
    ctx.enqueue_plain("q", 100).await;
    let counts = by_group(&claim_by(&ctx, 100, 9).await);
    for (name, share) in [("one", 25), ("two", 50), ("", 25)] {
        assert!(counts[name].abs_diff(share) <= 2, "{counts:?}: the default weight is not for those without a group");
    }
}

async fn a_changed_weight_counts_for_the_next_turns(ctx: Ctx) {
    ctx.enqueue_grouped("q", "a", 300).await;
    ctx.enqueue_grouped("q", "b", 300).await;
    claim_by(&ctx, 20, 20).await;
    ctx.set_group("q", "a", weight(4)).await;
    let counts = by_group(&claim_by(&ctx, 100, 10).await);
    assert!(counts["a"].abs_diff(80) <= 2, "{counts:?}");
}

async fn a_newcomer_starts_at_the_present_time(ctx: Ctx) {
    ctx.enqueue_grouped("q", "old", 300).await;
    ctx.enqueue_grouped("q", "other", 300).await;
    claim_by(&ctx, 200, 1).await;
    ctx.enqueue_grouped("q", "new", 300).await;
    let counts = by_group(&claim_by(&ctx, 30, 1).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 1), "{counts:?}");
}

async fn a_newcomer_has_no_credit_after_a_large_claim(ctx: Ctx) {
    ctx.enqueue_grouped("q", "old", 300).await;
    claim_by(&ctx, 100, 100).await;
    ctx.enqueue_grouped("q", "new", 300).await;
    let counts = by_group(&claim_by(&ctx, 20, 20).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 1), "{counts:?}");
}

async fn an_idle_group_does_not_save_up_turns(ctx: Ctx) {
    ctx.enqueue_grouped("q", "busy", 300).await;
    ctx.enqueue_grouped("q", "idle", 1).await;
    ctx.set_group("q", "idle", weight(1)).await;
    let got = claim_by(&ctx, 100, 5).await;
    ctx.complete_all("w", &got).await;
    ctx.enqueue_grouped("q", "idle", 100).await;
    let counts = by_group(&claim_by(&ctx, 20, 5).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 1), "{counts:?}");
}

async fn a_group_that_was_at_its_cap_does_not_save_up_turns(ctx: Ctx) {
    ctx.set_group("q", "capped", cap(1)).await;
    ctx.enqueue_grouped("q", "capped", 100).await;
    ctx.enqueue_grouped("q", "free", 300).await;
    claim_by(&ctx, 100, 5).await;
    ctx.set_group("q", "capped", weight(1)).await;
    let counts = by_group(&claim_by(&ctx, 20, 5).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 1), "{counts:?}");
}

async fn jobs_without_a_group_are_one_group(ctx: Ctx) {
    ctx.enqueue_plain("q", 100).await;
    ctx.enqueue_grouped("q", "g", 100).await;
    let counts = by_group(&claim_by(&ctx, 100, 8).await);
    assert!(counts[""].abs_diff(50) <= 1, "{counts:?}");
    assert_eq!(ctx.groups("q").await.len(), 1, "and that group is not listed");
}

async fn turns_are_fair_over_lanes(ctx: Ctx) {
    // One group in many lanes has no more turns than one in a single lane.
    for n in 0..200 {
        ctx.enqueue(ctx.grouped_kind("q", "wide", &format!("kind-{}", n % 10))).await;
        ctx.enqueue(ctx.grouped_kind("q", "narrow", "kind-0")).await;
    }
    for max in [1, 6, 40] {
        let counts = by_group(&claim_by(&ctx, 40, max).await);
        assert!(counts["wide"].abs_diff(20) <= 1, "by {max}: {counts:?}");
    }
}

/// Two kinds with workers of their own: a hundred times more is done of `fast` than of `slow`.
async fn at_two_speeds(ctx: &Ctx) {
    for _ in 0..300 {
        ctx.enqueue(ctx.grouped_kind("q", "hare", "fast")).await;
        ctx.enqueue(ctx.grouped_kind("q", "snail", "slow")).await;
    }
    assert_eq!(ctx.claim_kinds("w", "q", &["slow"], 2).await.len(), 2);
    for _ in 0..20 {
        assert_eq!(ctx.claim_kinds("w", "q", &["fast"], 10).await.len(), 10);
    }
}

async fn a_newcomer_among_slow_workers_has_its_turns(ctx: Ctx) {
    at_two_speeds(&ctx).await;
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "new", "slow")).collect()).await;
    let counts = by_group(&ctx.claim_kinds("w", "q", &["slow"], 20).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 1), "it need not wait for the fast ones: {counts:?}");
}

async fn slow_workers_give_newcomers_of_others_no_credit(ctx: Ctx) {
    at_two_speeds(&ctx).await;
    assert_eq!(ctx.claim_kinds("w", "q", &["slow"], 2).await.len(), 2);
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "new", "fast")).collect()).await;
    let counts = by_group(&ctx.claim_kinds("w", "q", &["fast"], 20).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 1), "{counts:?}");
}

async fn a_group_back_from_its_cap_has_its_turns_among_slow_workers(ctx: Ctx) {
    ctx.set_group("q", "capped", cap(1)).await;
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "capped", "slow")).collect()).await;
    assert_eq!(ctx.claim_kinds("w", "q", &["slow"], 9).await.len(), 1);
    at_two_speeds(&ctx).await;
    ctx.set_group("q", "capped", weight(1)).await;
    let counts = by_group(&ctx.claim_kinds("w", "q", &["slow"], 20).await);
    assert!(counts.values().all(|count| count.abs_diff(10) <= 2), "{counts:?}");
}

/// Two groups have had a hundred turns each at `work`, and a hundred jobs of each are ready.
async fn after_many_turns(ctx: &Ctx) {
    for name in ["a", "b"] {
        ctx.enqueue_all((0..200).map(|_| ctx.grouped_kind("q", name, "work")).collect()).await;
    }
    for _ in 0..20 {
        let got = ctx.claim_kinds("w", "q", &["work"], 10).await;
        assert_eq!(got.len(), 10);
        ctx.complete_all("w", &got).await;
    }
}

/// Claims thirty jobs of these kinds; each of three groups gets ten.
async fn shares_with_two_others(ctx: &Ctx, kinds: &[&str]) {
    let mut got = Vec::new();
    for _ in 0..6 {
        got.extend(ctx.claim_kinds("w", "q", kinds, 5).await);
    }
    let counts = by_group(&got);
    assert!(counts.len() == 3 && counts.values().all(|count| count.abs_diff(10) <= 1), "{counts:?}");
}

async fn jobs_that_no_worker_may_run_earn_no_turns_in_other_lanes(ctx: Ctx) {
    ctx.enqueue(ctx.grouped_kind("q", "waits", "unknown")).await;
    after_many_turns(&ctx).await;
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "waits", "work")).collect()).await;
    shares_with_two_others(&ctx, &["work"]).await;
}

async fn plain_jobs_that_no_worker_may_run_earn_no_turns_in_other_lanes(ctx: Ctx) {
    ctx.enqueue(ctx.job("q", "unknown")).await;
    after_many_turns(&ctx).await;
    ctx.enqueue_all((0..50).map(|_| ctx.job("q", "work")).collect()).await;
    shares_with_two_others(&ctx, &["work"]).await;
}

async fn jobs_that_a_new_worker_may_run_bring_no_saved_up_turns(ctx: Ctx) {
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "waits", "unknown")).collect()).await;
    after_many_turns(&ctx).await;
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "waits", "work")).collect()).await;
    shares_with_two_others(&ctx, &["unknown", "work"]).await;
}

async fn a_group_back_from_its_cap_earned_no_turns_by_jobs_that_no_worker_may_run(ctx: Ctx) {
    ctx.set_group("q", "waits", cap(1)).await;
    ctx.enqueue_all((0..50).map(|_| ctx.grouped_kind("q", "waits", "work")).collect()).await;
    assert_eq!(ctx.claim_kinds("w", "q", &["work"], 9).await.len(), 1);
    for name in ["waits", "other"] {
        ctx.enqueue(ctx.grouped_kind("q", name, "unknown")).await;
    }
    after_many_turns(&ctx).await;
    ctx.set_group("q", "waits", weight(1)).await;
    shares_with_two_others(&ctx, &["work"]).await;
}

async fn priority_orders_within_a_group_only(ctx: Ctx) {
    let job = |name: &str, priority| {
        let mut job = ctx.grouped("q", name);
        job.spec.priority = priority;
        job
    };
    let mut jobs = Vec::new();
    for priority in [3, 1, 2] {
        jobs.push(job("urgent", -priority));
        jobs.push(job("patient", priority));
    }
    ctx.enqueue_all(jobs).await;
    let got = ctx.claim("w", "q", 6).await;
    for turn in got.chunks(2) {
        assert_eq!(by_group(turn).len(), 2, "urgency does not buy turns");
    }
    for (name, order) in [("urgent", [-3, -2, -1]), ("patient", [1, 2, 3])] {
        let priorities: Vec<_> = got.iter().filter(|job| group_of(job) == name).map(|job| job.spec.priority).collect();
        assert_eq!(priorities, order);
    }
}

async fn slow_ten_thousand_groups_take_turns(ctx: Ctx) {
    for _ in 0..2 {
        ctx.enqueue_all((0..10_000).map(|n| ctx.grouped("q", &format!("group-{n}"))).collect()).await;
    }
    let mut served = BTreeSet::new();
    for round in 0..2 {
        for _ in 0..10 {
            let jobs = ctx.claim("w", "q", 1_000).await;
            assert_eq!(jobs.len(), 1_000);
            served.extend(jobs.iter().map(group_of));
        }
        assert_eq!(served.len(), 10_000, "everybody once in round {round}");
        served.clear();
    }
    assert_eq!(ctx.groups("q").await.len(), 10_000);
}
