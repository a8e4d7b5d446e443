//! Limits of a whole queue: its cap and its rate, over lanes, groups and workers.

use crate::ctx::{Ctx, queue_name};
use crate::look::{assert_rate, release};
use crate::runner::cases;
use std::sync::Arc;
use tokio::task::JoinSet;
use windlass_core::Error;
use windlass_core::job::{NewJob, Retry};
use windlass_core::name::Labels;
use windlass_core::rate::Rate;
use windlass_core::store::{ChangeOp, ClaimRequest, QueueSettings, Setting};

cases!("limits":
    no_more_than_the_cap_are_active,
    every_way_out_makes_room_under_the_cap,
    a_changed_cap_counts_at_once,
    eight_workers_never_exceed_the_cap,
    an_exact_rate_holds_in_every_window,
    a_large_rate_holds_in_every_window,
    eight_workers_never_exceed_the_rate,
    a_claim_says_when_the_rate_allows_more,
    an_exact_rate_frees_one_place_per_start,
    a_changed_rate_counts_at_once,
    a_full_queue_holds_back_no_other,
    settings_that_cannot_be_meant_are_refused,
);

/// Jobs over several lanes and groups.
fn spread(ctx: &Ctx, count: usize) -> Vec<NewJob> {
    let job = |n: usize| {
        let mut job = ctx.job("q", ["a", "b", "c"][n % 3]);
        job.spec.labels = Labels::parse([&[][..], &["x"]][n % 2]).unwrap();
        job.spec.group = [None, Some("g"), Some("h")][n / 2 % 3].map(crate::look::group);
        job
    };
    (0..count).map(job).collect()
}

async fn claim_x(ctx: &Ctx, worker: &str, max: u32) -> Vec<windlass_core::store::ClaimedJob> {
    ctx.claim_with(worker, "q", &["x"], max).await
}

fn rate(limit: u32, per_ms: u64) -> impl FnOnce(&mut QueueSettings) {
    move |settings| settings.rate = Some(Rate { limit, per_ms })
}

async fn no_more_than_the_cap_are_active(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(5)).await;
    ctx.enqueue_all(spread(&ctx, 30)).await;
    let mut jobs = Vec::new();
    for worker in ["a", "b", "c", "d"] {
        jobs.extend(claim_x(&ctx, worker, 2).await);
    }
    assert_eq!(jobs.len(), 5);
    assert_eq!(ctx.counts("q").await.active, 5);
    ctx.complete_all("a", &jobs[..2]).await;
    assert_eq!(claim_x(&ctx, "d", 10).await.len(), 2);
}

async fn every_way_out_makes_room_under_the_cap(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(1)).await;
    ctx.enqueue_all(spread(&ctx, 12)).await;
    for way in 0..6 {
        let job = ctx.store.claim(ClaimRequest {
            labels: Labels::parse(["x"]).unwrap(),
            lease_ms: 100,
            ..ctx.claim_request("w", "q", 5)
        });
        let jobs = job.await.unwrap().jobs;
        assert_eq!(jobs.len(), 1, "after way {way}");
        let lease = jobs[0].lease;
        assert!(claim_x(&ctx, "w", 5).await.is_empty());
        match way {
            0 => drop(ctx.complete("w", lease).await.unwrap()),
            1 => drop(ctx.fail("w", lease, Retry::AfterMs(60_000)).await.unwrap()),
            2 => drop(ctx.fail("w", lease, Retry::Never).await.unwrap()),
            3 => drop(ctx.report("w", lease, release(true)).await.unwrap()),
            4 => ctx.expire(100).await,
            _ => {
                ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
                ctx.complete("w", lease).await.unwrap();
            }
        }
    }
    assert_eq!(claim_x(&ctx, "w", 5).await.len(), 1);
}

async fn a_changed_cap_counts_at_once(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(2)).await;
    ctx.enqueue_all(spread(&ctx, 20)).await;
    let jobs = claim_x(&ctx, "w", 10).await;
    ctx.set_queue("q", |settings| settings.cap = Some(4)).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 2);
    ctx.set_queue("q", |settings| settings.cap = Some(3)).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    assert!(claim_x(&ctx, "w", 10).await.is_empty(), "three are active, three are allowed");
    ctx.set_queue("q", |_| {}).await;
    assert_eq!(claim_x(&ctx, "w", 100).await.len(), 16);
}

async fn eight_workers_never_exceed_the_cap(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(4)).await;
    ctx.enqueue_all(spread(&ctx, 200)).await;
    let ctx = Arc::new(ctx);
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let ctx = Arc::clone(&ctx);
        tasks.spawn(async move {
            let worker = format!("w{n}");
            let mut done = 0;
            for _ in 0..2_000 {
                let jobs = claim_x(&ctx, &worker, 1 + n % 3).await;
                let counts = ctx.counts("q").await;
                assert!(counts.active <= 4, "{counts:?}");
                done += jobs.len();
                ctx.complete_all(&worker, &jobs).await;
                if counts.ready == 0 && jobs.is_empty() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            done
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 200);
}

/// Claims while time passes in small steps; answers when the jobs started.
async fn starts(ctx: &Ctx, steps: usize, step_ms: u64, max: u32) -> Vec<i64> {
    let mut starts = Vec::new();
    for step in 0..steps {
        let jobs = claim_x(ctx, &format!("w{}", step % 3), max).await;
        for job in &jobs {
            starts.push(ctx.get(job.lease.job).await.unwrap().claimed_at.unwrap().as_ms());
        }
        ctx.advance_ms(step_ms).await;
    }
    starts
}

async fn an_exact_rate_holds_in_every_window(ctx: Ctx) {
    ctx.set_queue("q", rate(10, 250)).await;
    ctx.enqueue_all(spread(&ctx, 200)).await;
    let starts = starts(&ctx, 80, 15, 3).await;
    assert!(starts.len() >= 40, "only {} started", starts.len());
    assert_rate(starts, 10, 250);
}

async fn a_large_rate_holds_in_every_window(ctx: Ctx) {
    ctx.set_queue("q", rate(150, 250)).await;
    ctx.enqueue_all(spread(&ctx, 1_500)).await;
    let starts = starts(&ctx, 60, 17, 60).await;
    assert!(starts.len() >= 400, "only {} started", starts.len());
    assert_rate(starts, 150, 250);
}

async fn eight_workers_never_exceed_the_rate(ctx: Ctx) {
    ctx.set_queue("q", rate(20, 60_000)).await;
    ctx.enqueue_all(spread(&ctx, 100)).await;
    let ctx = Arc::new(ctx);
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let ctx = Arc::clone(&ctx);
        tasks.spawn(async move {
            let mut got = 0;
            for _ in 0..20 {
                let jobs = claim_x(&ctx, &format!("w{n}"), 2).await;
                got += jobs.len();
                // What is given back has started all the same.
                for job in jobs {
                    ctx.report(&format!("w{n}"), job.lease, release(false)).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            got
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 20);
}

async fn a_claim_says_when_the_rate_allows_more(ctx: Ctx) {
    ctx.set_queue("q", rate(3, 1_000)).await;
    ctx.enqueue_all(spread(&ctx, 20)).await;
    let jobs = claim_x(&ctx, "w", 10).await;
    assert_eq!(jobs.len(), 3);
    let started = ctx.get(jobs[0].lease.job).await.unwrap().claimed_at.unwrap();
    let empty = ctx.store.claim(ctx.claim_request("w2", "q", 10)).await.unwrap();
    assert!(empty.jobs.is_empty());
    assert_eq!(empty.next_at, Some(started.plus_ms(1_000)));
    ctx.advance_ms(1_000).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 3);
}

async fn an_exact_rate_frees_one_place_per_start(ctx: Ctx) {
    ctx.set_queue("q", rate(2, 1_000)).await;
    ctx.enqueue_all(spread(&ctx, 20)).await;
    assert_eq!(claim_x(&ctx, "w", 1).await.len(), 1);
    ctx.advance_ms(500).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 1);
    ctx.advance_ms(500).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 1, "the first has left the window, the second has not");
    ctx.advance_ms(500).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 1);
}

async fn a_changed_rate_counts_at_once(ctx: Ctx) {
    ctx.set_queue("q", rate(2, 60_000)).await;
    ctx.enqueue_all(spread(&ctx, 20)).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 2);
    ctx.set_queue("q", rate(5, 60_000)).await;
    assert_eq!(claim_x(&ctx, "w", 10).await.len(), 3);
    ctx.set_queue("q", rate(4, 60_000)).await;
    assert!(claim_x(&ctx, "w", 10).await.is_empty());
    ctx.set_queue("q", |_| {}).await;
    assert_eq!(claim_x(&ctx, "w", 100).await.len(), 15);
}

async fn a_full_queue_holds_back_no_other(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(1)).await;
    ctx.enqueue_plain("q", 3).await;
    ctx.enqueue_plain("other", 3).await;
    let queues = vec![queue_name("q"), queue_name("other")];
    let request = ClaimRequest { queues, ..ctx.claim_request("w", "q", 10) };
    assert_eq!(ctx.store.claim(request).await.unwrap().jobs.len(), 4);
}

async fn settings_that_cannot_be_meant_are_refused(ctx: Ctx) {
    let bad: [fn(&mut QueueSettings); 5] = [
        |settings| settings.cap = Some(0),
        |settings| settings.rate = Some(Rate { limit: 0, per_ms: 1 }),
        |settings| settings.rate = Some(Rate { limit: 1, per_ms: 0 }),
        |settings| settings.rate = Some(Rate { limit: 1, per_ms: u64::MAX }),
        |settings| settings.groups.cap = Some(0),
    ];
    for edit in bad {
        let mut settings = QueueSettings::default();
        edit(&mut settings);
        let refused = ctx.store.configure(Setting::Queue { queue: queue_name("q"), settings }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{refused:?}");
    }
    assert_eq!(ctx.store.queues().await.unwrap(), []);
}
