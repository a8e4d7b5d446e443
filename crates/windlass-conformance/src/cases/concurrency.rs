//! Many at once: nobody gets what another one has, and limits hold, whatever the interleaving. Where a store can be
//! opened twice, every other task works through the handle of another process.

use crate::ctx::{Ctx, LEASE_MS, complete, queue_name, worker_id};
use crate::runner::cases;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use windlass_core::id::JobId;
use windlass_core::job::{Due, JobSpec, NewJob};
use windlass_core::name::{GroupName, Labels};
use windlass_core::rate::Rate;
use windlass_core::store::{
    ClaimRequest, ClaimedJob, GroupSettings, Kinds, Outcome, QueueSettings, ReportRequest, Setting, Store, Sweep,
    SweepKind,
};

cases!("concurrency":
    claimers_never_share_a_job,
    claimers_never_share_a_grouped_job,
    claimers_and_promoters_never_share_a_due_job,
    a_storm_of_report_and_claim_does_each_job_once,
    group_caps_hold,
    a_queue_cap_holds,
    a_queue_rate_holds,
    a_large_queue_rate_holds,
    group_rates_hold,
    turns_stay_fair,
);

/// As many tasks as the contract is tested with.
pub(super) const TASKS: usize = 8;
const JOBS: usize = 2_000;

/// Runs a task per handle, all let go at the same moment; answers in the order of the tasks.
pub(super) async fn race<T, F>(ctx: &Ctx, n: usize, task: impl Fn(Arc<dyn Store>, usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(n));
    let mut tasks = JoinSet::new();
    for (k, store) in ctx.handles(n).await.into_iter().enumerate() {
        let (start, work) = (Arc::clone(&start), task(store, k));
        tasks.spawn(async move {
            start.wait().await;
            (k, work.await)
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(k, _)| *k);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

pub(super) fn claim_of(k: usize, request_id: u64, queue: &str, max: u32) -> ClaimRequest {
    ClaimRequest {
        worker: worker_id(&format!("w{k}")),
        request_id,
        queues: vec![queue_name(queue)],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max,
        lease_ms: LEASE_MS,
    }
}

/// Batches of all sizes, different for every task.
fn size(k: usize, round: u64) -> u32 {
    [1, 7, 64, 3, 20, 2, 40, 11][(k + usize::try_from(round).unwrap()) % 8]
}

pub(super) fn group_name(k: usize) -> GroupName {
    GroupName::new(format!("g{k}")).unwrap()
}

async fn fill(ctx: &Ctx, queue: &str, count: usize, edit: impl Fn(usize, &mut JobSpec)) -> BTreeSet<JobId> {
    let jobs: Vec<NewJob> = (0..count).map(|i| ctx.job_with(queue, |spec| edit(i, spec))).collect();
    ctx.enqueue_all(jobs).await.into_iter().collect()
}

/// Claims until nothing is left, or `most` jobs were claimed.
async fn claim_all(store: Arc<dyn Store>, k: usize, queue: &'static str, most: usize) -> Vec<ClaimedJob> {
    let mut all = Vec::new();
    for round in 1.. {
        let left = u32::try_from(most - all.len()).unwrap_or(u32::MAX);
        if left == 0 {
            break;
        }
        let claimed = store.claim(claim_of(k, round, queue, size(k, round).min(left))).await.unwrap().jobs;
        if claimed.is_empty() {
            break;
        }
        all.extend(claimed);
    }
    all
}

/// Everything was claimed, and nothing twice.
fn assert_shared_out(shares: &[Vec<ClaimedJob>], jobs: &BTreeSet<JobId>) {
    let all: Vec<JobId> = shares.iter().flatten().map(|job| job.lease.job).collect();
    let once: BTreeSet<JobId> = all.iter().copied().collect();
    assert_eq!(once.len(), all.len(), "a job was given to two workers");
    assert_eq!(once, *jobs, "a job was given to nobody");
    assert!(shares.iter().flatten().all(|job| job.lease.attempt == 1), "an attempt was spent twice");
}

async fn claimers_never_share_a_job(ctx: Ctx) {
    let jobs = fill(&ctx, "mail", JOBS, |i, spec| spec.priority = i16::try_from(i % 3).unwrap()).await;
    let shares = race(&ctx, TASKS, |store, k| claim_all(store, k, "mail", usize::MAX)).await;
    assert_shared_out(&shares, &jobs);
    assert_eq!(ctx.counts("mail").await.active, JOBS as u64);
}

async fn claimers_never_share_a_grouped_job(ctx: Ctx) {
    let edit = |i: usize, spec: &mut JobSpec| spec.group = (!i.is_multiple_of(11)).then(|| group_name(i % 11));
    let jobs = fill(&ctx, "mail", JOBS, edit).await;
    let shares = race(&ctx, TASKS, |store, k| claim_all(store, k, "mail", usize::MAX)).await;
    assert_shared_out(&shares, &jobs);
}

async fn claimers_and_promoters_never_share_a_due_job(ctx: Ctx) {
    let later: Vec<NewJob> = (0..500).map(|_| ctx.job("mail", "email").due(Due::DelayMs(200))).collect();
    let jobs: BTreeSet<JobId> = ctx.enqueue_all(later).await.into_iter().collect();
    ctx.advance_ms(200).await;
    let shares = race(&ctx, TASKS, |store, k| async move {
        if k % 2 == 0 {
            return claim_all(store, k, "mail", usize::MAX).await;
        }
        while store.sweep(Sweep { kind: SweepKind::Promote, max: 9 }).await.unwrap().more {}
        Vec::new()
    })
    .await;
    // A claim that found nothing may have come between a promotion and the next.
    let rest = claim_all(Arc::clone(&ctx.store), 99, "mail", usize::MAX).await;
    assert_shared_out(&[shares, vec![rest]].concat(), &jobs);
}

async fn a_storm_of_report_and_claim_does_each_job_once(ctx: Ctx) {
    let jobs = fill(&ctx, "mail", JOBS, |i, spec| spec.group = (!i.is_multiple_of(5)).then(|| group_name(i % 5))).await;
    let shares = race(&ctx, TASKS, |store, k| async move {
        let (mut done, mut report) = (Vec::new(), Vec::new());
        for round in 1.. {
            let outcomes: Vec<Outcome> = std::mem::take(&mut report);
            let request = ReportRequest { worker: worker_id(&format!("w{k}")), outcomes };
            let both = store.report_and_claim(request, claim_of(k, round, "mail", size(k, round))).await.unwrap();
            let first = |answer: &windlass_core::Result<_>| {
                matches!(answer, Ok(windlass_core::store::Reported { repeated: false, .. }))
            };
            assert!(both.reported.iter().all(first), "{:?}", both.reported);
            if both.claimed.jobs.is_empty() {
                break;
            }
            report.extend(both.claimed.jobs.iter().map(|job| Outcome { lease: job.lease, kind: complete() }));
            done.extend(both.claimed.jobs);
        }
        done
    })
    .await;
    assert_shared_out(&shares, &jobs);
    let counts = ctx.counts("mail").await;
    assert_eq!((counts.succeeded, counts.active, counts.ready), (JOBS as u64, 0, 0));
}

/// How many jobs the workers know to be active, by group, and the most they ever knew of.
#[derive(Default)]
struct Gauge(Mutex<BTreeMap<Option<GroupName>, (u64, u64)>>);

impl Gauge {
    /// Noted after the store has granted and before it is told, so that never more is noted than is active.
    fn add(&self, jobs: &[ClaimedJob]) {
        let mut all = self.0.lock();
        for job in jobs {
            let (now, most) = all.entry(job.spec.group.clone()).or_default();
            *now += 1;
            *most = (*now).max(*most);
        }
    }

    fn remove(&self, jobs: &[ClaimedJob]) {
        let mut all = self.0.lock();
        jobs.iter().for_each(|job| all.entry(job.spec.group.clone()).or_default().0 -= 1);
    }
}

/// Works a queue off under a cap; answers the most that was active at once, by group.
async fn work_off(ctx: &Ctx, jobs: u64) -> BTreeMap<Option<GroupName>, (u64, u64)> {
    let gauge = Arc::new(Gauge::default());
    race(ctx, TASKS, |store, k| {
        let gauge = Arc::clone(&gauge);
        async move {
            for round in 1..100_000 {
                let jobs = store.claim(claim_of(k, round, "mail", size(k, round))).await.unwrap().jobs;
                gauge.add(&jobs);
                tokio::task::yield_now().await;
                gauge.remove(&jobs);
                let outcomes = jobs.iter().map(|job| Outcome { lease: job.lease, kind: complete() }).collect();
                let request = ReportRequest { worker: worker_id(&format!("w{k}")), outcomes };
                store.report(request).await.unwrap();
                if jobs.is_empty() && store.queues().await.unwrap().iter().all(|queue| queue.counts.ready == 0) {
                    break;
                }
            }
        }
    })
    .await;
    assert_eq!(ctx.counts("mail").await.succeeded, jobs, "something was never done");
    gauge.0.lock().clone()
}

async fn group_caps_hold(ctx: Ctx) {
    let groups = GroupSettings { cap: Some(3), ..GroupSettings::default() };
    let settings = QueueSettings { groups, ..QueueSettings::default() };
    ctx.store.configure(Setting::Queue { queue: queue_name("mail"), settings }).await.unwrap();
    fill(&ctx, "mail", 400, |i, spec| spec.group = Some(group_name(i % 4))).await;
    for (group, (_, most)) in work_off(&ctx, 400).await {
        assert!(most <= 3, "{group:?} had {most} active jobs, allowed are 3");
    }
}

async fn a_queue_cap_holds(ctx: Ctx) {
    let settings = QueueSettings { cap: Some(5), ..QueueSettings::default() };
    ctx.store.configure(Setting::Queue { queue: queue_name("mail"), settings }).await.unwrap();
    fill(&ctx, "mail", 300, |_, _| {}).await;
    let most = work_off(&ctx, 300).await[&None].1;
    assert!(most <= 5, "{most} jobs were active, allowed are 5");
}

/// Everybody claims what there is; the window is longer than any test.
async fn started(ctx: &Ctx, settings: QueueSettings) -> Vec<ClaimedJob> {
    ctx.store.configure(Setting::Queue { queue: queue_name("mail"), settings }).await.unwrap();
    fill(ctx, "mail", 600, |i, spec| spec.group = Some(group_name(i % 3))).await;
    race(ctx, TASKS, |store, k| claim_all(store, k, "mail", usize::MAX)).await.concat()
}

async fn a_queue_rate_holds(ctx: Ctx) {
    let rate = Some(Rate { limit: 37, per_ms: 3_600_000 });
    assert_eq!(started(&ctx, QueueSettings { rate, ..QueueSettings::default() }).await.len(), 37);
}

async fn a_large_queue_rate_holds(ctx: Ctx) {
    let rate = Some(Rate { limit: 250, per_ms: 3_600_000 });
    assert_eq!(started(&ctx, QueueSettings { rate, ..QueueSettings::default() }).await.len(), 250);
}

async fn group_rates_hold(ctx: Ctx) {
    let groups = GroupSettings { rate: Some(Rate { limit: 20, per_ms: 3_600_000 }), ..GroupSettings::default() };
    let started = started(&ctx, QueueSettings { groups, ..QueueSettings::default() }).await;
    for k in 0..3 {
        let count = started.iter().filter(|job| job.spec.group == Some(group_name(k))).count();
        assert_eq!(count, 20, "starts of group {k}");
    }
}

async fn turns_stay_fair(ctx: Ctx) {
    // The first group is far ahead in the queue; it gains nothing by that.
    for k in 0..4 {
        fill(&ctx, "mail", 200, |_, spec| spec.group = Some(group_name(k))).await;
    }
    let shares = race(&ctx, TASKS, |store, k| claim_all(store, k, "mail", 50)).await;
    let all = shares.concat();
    assert_eq!(all.len(), TASKS * 50);
    for k in 0..4 {
        let served = all.iter().filter(|job| job.spec.group == Some(group_name(k))).count();
        assert_eq!(served, all.len() / 4, "group {k} was served {served} times of {}", all.len());
    }
}
