//! Lanes: a worker gets what it may run, and what it may not run stands in nobody's way.

use crate::ctx::{Ctx, queue_name};
use crate::look::{ids, release};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::job::JobSpec;
use windlass_core::name::{Kind, Labels};
use windlass_core::store::{ChangeOp, ClaimRequest, Setting};

cases!("lanes":
    required_labels_must_be_offered,
    slow_ten_thousand_jobs_nobody_may_run_block_no_other,
    only_the_kinds_that_the_claim_names,
    a_kind_without_a_handler_is_never_claimed,
    a_paused_queue_gives_nothing_until_it_is_resumed,
    a_paused_kind_leaves_the_others_alone,
    a_pause_leaves_active_jobs_alone,
    priority_then_sequence_over_many_lanes,
    one_at_a_time_over_many_lanes_is_the_same_order,
    a_released_job_is_first_again_over_lanes,
    a_reprioritised_job_is_found_in_its_lane,
    queues_are_served_in_the_order_of_the_claim,
    lanes_are_bounded_and_empty_ones_make_room,
);

fn labelled<'l>(labels: &'l [&'l str]) -> impl FnOnce(&mut JobSpec) + 'l {
    move |spec| spec.labels = Labels::parse(labels).unwrap()
}

async fn required_labels_must_be_offered(ctx: Ctx) {
    let both = ctx.enqueue(ctx.job_with("q", labelled(&["gpu", "linux"]))).await.id();
    let one = ctx.enqueue(ctx.job_with("q", labelled(&["linux"]))).await.id();
    let none = ctx.enqueue(ctx.job_with("q", labelled(&[]))).await.id();
    assert_eq!(ids(&ctx.claim_with("w", "q", &["gpu", "mac"], 10).await), [none], "gpu alone is not enough");
    assert_eq!(ids(&ctx.claim_with("w", "q", &["linux", "mac"], 10).await), [one]);
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    assert_eq!(
        ids(&ctx.claim_with("w", "q", &["arm", "linux", "gpu"], 10).await),
        [both],
        "more than required is fine"
    );
}

async fn slow_ten_thousand_jobs_nobody_may_run_block_no_other(ctx: Ctx) {
    let unrunnable = |n: usize| {
        ctx.job_with("q", |spec| {
            spec.priority = -1;
            spec.labels = Labels::parse([["gpu", "tpu", "fpga"][n % 3]]).unwrap();
        })
    };
    ctx.enqueue_all((0..10_000).map(unrunnable).collect()).await;
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    assert_eq!(ids(&ctx.claim("w", "q", 1).await), [id]);
    assert!(ctx.claim("w", "q", 1).await.is_empty());
    assert_eq!(ctx.claim_with("w", "q", &["gpu"], 10).await.len(), 10);
}

async fn only_the_kinds_that_the_claim_names(ctx: Ctx) {
    let mail = ctx.enqueue(ctx.job("q", "mail")).await.id();
    let sms = ctx.enqueue(ctx.job("q", "sms")).await.id();
    let fax = ctx.enqueue(ctx.job("q", "fax")).await.id();
    assert_eq!(ids(&ctx.claim_kinds("w", "q", &["sms"], 10).await), [sms]);
    assert_eq!(ids(&ctx.claim_kinds("w", "q", &["fax", "mail"], 10).await), [mail, fax]);
}

async fn a_kind_without_a_handler_is_never_claimed(ctx: Ctx) {
    ctx.enqueue(ctx.job("q", "mail@2")).await;
    assert!(ctx.claim_kinds("w", "q", &["mail", "mail@1"], 10).await.is_empty(), "another version is another kind");
    assert!(ctx.claim_kinds("w", "q", &[], 10).await.is_empty(), "no kind is none, not any");
    assert_eq!(ctx.counts("q").await.ready, 1);
}

async fn a_paused_queue_gives_nothing_until_it_is_resumed(ctx: Ctx) {
    ctx.pause("q", true).await;
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    let other = ctx.enqueue(ctx.job("other", "work")).await.id();
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    assert!(ctx.status("q").await.settings.paused);
    assert_eq!(ids(&ctx.claim("w", "other", 10).await), [other], "other queues go on");
    ctx.pause("q", true).await;
    ctx.pause("q", false).await;
    assert_eq!(ids(&ctx.claim("w", "q", 10).await), [id]);
}

async fn a_paused_kind_leaves_the_others_alone(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(7)).await;
    let set = |paused| Setting::KindPaused { queue: queue_name("q"), kind: Kind::new("mail").unwrap(), paused };
    ctx.store.configure(set(true)).await.unwrap();
    let plain = ctx.enqueue(ctx.job("q", "mail")).await.id();
    let mut job = ctx.job("q", "mail");
    job.spec.labels = Labels::parse(["gpu"]).unwrap();
    let with_label = ctx.enqueue(job).await.id();
    let sms = ctx.enqueue(ctx.job("q", "sms")).await.id();
    assert_eq!(ids(&ctx.claim_with("w", "q", &["gpu"], 10).await), [sms], "all lanes of a paused kind are paused");
    assert_eq!(ctx.status("q").await.settings.cap, Some(7), "everything else is left");
    ctx.store.configure(set(false)).await.unwrap();
    assert_eq!(ids(&ctx.claim_with("w", "q", &["gpu"], 10).await), [plain, with_label]);
}

async fn a_pause_leaves_active_jobs_alone(ctx: Ctx) {
    ctx.enqueue(ctx.job("q", "work")).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.pause("q", true).await;
    ctx.progress(job.lease, 50, "").await.unwrap();
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(ctx.counts("q").await.succeeded, 1);
}

/// Jobs over twelve lanes and three priorities; answers their ids in the order in which they must come.
async fn spread_over_lanes(ctx: &Ctx) -> Vec<windlass_core::id::JobId> {
    let mut jobs = Vec::new();
    for n in 0..120usize {
        let mut job = ctx.job("q", ["a", "b", "c", "d"][n * 7 % 4]);
        job.spec.labels = Labels::parse([&[][..], &["x"], &["x", "y"]][n * 5 % 3]).unwrap();
        job.spec.priority = [0, -5, 5, 0, 0][n % 5];
        jobs.push(job);
    }
    let made = ctx.enqueue_all(jobs.clone()).await;
    let mut order: Vec<_> = jobs.iter().map(|job| job.spec.priority).zip(0..).zip(made).collect();
    order.sort();
    order.into_iter().map(|(_, id)| id).collect()
}

async fn priority_then_sequence_over_many_lanes(ctx: Ctx) {
    let order = spread_over_lanes(&ctx).await;
    assert_eq!(ctx.status("q").await.lanes, 12);
    assert_eq!(ids(&ctx.claim_with("w", "q", &["x", "y"], 200).await), order);
}

async fn one_at_a_time_over_many_lanes_is_the_same_order(ctx: Ctx) {
    let order = spread_over_lanes(&ctx).await;
    let mut got = Vec::new();
    for step in 0..60 {
        got.extend(ids(&ctx.claim_with("w", "q", &["x", "y"], 1 + step % 3).await));
    }
    assert_eq!(got, order);
}

async fn a_released_job_is_first_again_over_lanes(ctx: Ctx) {
    let mut made = Vec::new();
    for n in 0..12 {
        made.push(ctx.enqueue(ctx.job("q", ["a", "b", "c"][n % 3])).await.id());
    }
    let taken = ctx.claim("w", "q", 6).await;
    assert_eq!(ids(&taken), made[..6]);
    for place in [4, 1] {
        ctx.report("w", taken[place].lease, release(false)).await.unwrap();
    }
    let got = ids(&ctx.claim("w", "q", 4).await);
    assert_eq!(got, [made[1], made[4], made[6], made[7]], "released jobs keep their places");
}

async fn a_reprioritised_job_is_found_in_its_lane(ctx: Ctx) {
    let mut made = Vec::new();
    for n in 0..9 {
        made.push(ctx.enqueue(ctx.job("q", ["a", "b", "c"][n % 3])).await.id());
    }
    ctx.change(made[8], ChangeOp::Reprioritise(-1)).await.unwrap();
    ctx.change(made[0], ChangeOp::Reprioritise(1)).await.unwrap();
    assert_eq!(ids(&ctx.claim("w", "q", 1).await), [made[8]]);
    assert_eq!(ids(&ctx.claim("w", "q", 1).await), [made[1]]);
    assert_eq!(ctx.claim("w", "q", 10).await.last().unwrap().lease.job, made[0]);
}

async fn queues_are_served_in_the_order_of_the_claim(ctx: Ctx) {
    let low = ctx.enqueue_plain("low", 3).await;
    let high = ctx.enqueue_plain("high", 3).await;
    let claim = |max| ClaimRequest {
        queues: ["high", "missing", "low"].map(queue_name).to_vec(),
        ..ctx.claim_request("w", "high", max)
    };
    let got = ctx.store.claim(claim(4)).await.unwrap().jobs;
    assert_eq!(ids(&got), [&high[..], &low[..1]].concat());
    let got = ctx.store.claim(claim(4)).await.unwrap().jobs;
    assert_eq!(ids(&got), low[1..]);
}

async fn lanes_are_bounded_and_empty_ones_make_room(ctx: Ctx) {
    let kinds = (0..1_024).map(|n| ctx.job("q", &format!("kind-{n}"))).collect();
    let made = ctx.enqueue_all(kinds).await;
    assert_eq!(ctx.status("q").await.lanes, 1_024);
    let refused = ctx.try_enqueue(ctx.job("q", "one-more")).await;
    assert!(matches!(refused, Err(Error::Limit { max: 1_024, .. })), "{refused:?}");
    ctx.enqueue(ctx.job("q", "kind-7")).await;
    ctx.enqueue(ctx.job("other", "one-more")).await;
    ctx.change(made[3], ChangeOp::Remove).await.unwrap();
    ctx.enqueue(ctx.job("q", "one-more")).await;
    assert_eq!(ctx.counts("q").await.ready, 1_025);
    assert_eq!(ctx.claim("w", "q", 2_000).await.len(), 1_025);
}
