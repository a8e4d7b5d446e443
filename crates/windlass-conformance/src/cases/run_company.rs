//! Runs beside others: several engines, other kinds, other jobs, and time.

use super::run_help::{LEASE_MS, claim_request, claim_run, claim_runs, inbox_jobs, job_of, new_run};
use super::runs::begun;
use crate::ctx::{Ctx, complete, fail, queue_name, worker_id};
use crate::runner::cases;
use std::sync::Arc;
use windlass_core::Error;
use windlass_core::job::{Due, Retry};
use windlass_core::name::Kind;
use windlass_core::store::{
    ClaimedJob, Outcome, QueueSettings, ReportRequest, RunRead, RunState, Setting, Store, Sweep, SweepKind, WaitFor,
};
use windlass_core::time::HANG_GUARD;

cases!("run_company":
    many_claimers_never_share_a_run,
    a_waiting_engine_is_told,
    a_job_that_ends_together_with_others_is_told,
    ended_runs_go_after_their_time,
    the_sweep_of_leases_finds_runs_for_those_who_wait,
    jobs_of_a_run_pass_a_full_queue,
    nobody_else_makes_jobs_of_a_run,
    one_run_can_be_asked_for,
    runs_of_other_kinds_are_left_alone,
);

async fn many_claimers_never_share_a_run(ctx: Ctx) {
    let mut wanted = Vec::new();
    for _ in 0..40 {
        let mut run = new_run(&ctx, "build");
        run.step.wake = Some(Due::Now);
        wanted.push(run.id);
        ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    }
    let handles = ctx.handles(4).await;
    let claim_all = |store: Arc<dyn Store>, n: usize| async move {
        let mut mine = Vec::new();
        for _ in 0..20 {
            let mut request = claim_request(3);
            request.engine = worker_id(&format!("engine {n}"));
            mine.extend(store.claim_runs(request).await.unwrap().runs.into_iter().map(|run| run.lease.run));
        }
        mine
    };
    let all = handles.into_iter().enumerate().map(|(n, store)| claim_all(store, n));
    let mut claimed: Vec<_> = futures::future::join_all(all).await.concat();
    claimed.sort();
    wanted.sort();
    assert_eq!(claimed, wanted);
}

async fn a_waiting_engine_is_told(ctx: Ctx) {
    begun(&ctx, 1).await;
    let job = ctx.claim_one("w", "q").await;
    let mark = ctx.store.claim_runs(claim_request(1)).await.unwrap().mark;
    let waits = ctx.store.wait(WaitFor::Runs(mark));
    let ends = async {
        ctx.complete("w", job.lease).await.unwrap();
    };
    let both = futures::future::join(waits, ends);
    let (waited, ()) = tokio::time::timeout(HANG_GUARD, both).await.expect("it is told");
    waited.unwrap();
    claim_run(&ctx).await;
}

async fn a_job_that_ends_together_with_others_is_told(ctx: Ctx) {
    begun(&ctx, 2).await;
    ctx.enqueue_all(vec![ctx.job("q", "work"), ctx.job("q", "work")]).await;
    let jobs = ctx.claim("w", "q", 4).await;
    let outcome = |job: &ClaimedJob| match job.spec.run {
        Some(_) => Outcome { lease: job.lease, kind: complete() },
        None => Outcome { lease: job.lease, kind: fail("boom", Retry::Never) },
    };
    // A success and a failure in turn.
    let outcomes = [0, 2, 1, 3].map(|at: usize| outcome(&jobs[at])).to_vec();
    for answer in ctx.store.report(ReportRequest { worker: worker_id("w"), outcomes }).await.unwrap() {
        answer.unwrap();
    }
    assert_eq!(inbox_jobs(&claim_run(&ctx).await), [jobs[0].lease.job, jobs[1].lease.job]);
}

async fn ended_runs_go_after_their_time(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.keep_ms = Some(200);
    run.step.state = RunState::Succeeded;
    let mut kept = new_run(&ctx, "build");
    kept.step.state = RunState::Failed;
    let running = new_run(&ctx, "build");
    let ids = [run.id, kept.id, running.id];
    ctx.store.create_runs(vec![run, kept, running]).await.unwrap();
    ctx.advance_ms(200).await;
    ctx.sweep(SweepKind::Prune).await;
    let brief = ids.map(RunRead::brief).to_vec();
    let left: Vec<bool> = ctx.store.read_runs(brief).await.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(left, [false, true, true]);
    let removed = ctx.store.remove_runs(ids.to_vec()).await.unwrap();
    assert!(matches!(removed[0], Err(Error::NotFound { .. })), "{removed:?}");
    assert_eq!(removed[1], Ok(()));
    assert!(matches!(removed[2], Err(Error::RunRefused { .. })), "{removed:?}");
}

async fn jobs_of_a_run_pass_a_full_queue(ctx: Ctx) {
    let settings = QueueSettings { len_max: Some(1), ..QueueSettings::default() };
    let setting = Setting::Queue { queue: queue_name("q"), settings };
    ctx.store.configure(setting).await.unwrap();
    begun(&ctx, 3).await;
    assert_eq!(ctx.counts("q").await.ready, 3);
    assert!(matches!(ctx.try_enqueue(ctx.job("q", "work")).await, Err(Error::Full { .. })));
}

async fn nobody_else_makes_jobs_of_a_run(ctx: Ctx) {
    let id = begun(&ctx, 0).await;
    let refused = ctx.try_enqueue(job_of(&ctx, id)).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}

async fn one_run_can_be_asked_for(ctx: Ctx) {
    let (one, two) = (begun(&ctx, 0).await, begun(&ctx, 0).await);
    let mut request = claim_request(10);
    request.run = Some(two);
    let claimed = ctx.store.claim_runs(request.clone()).await.unwrap().runs;
    assert_eq!(claimed.iter().map(|run| run.lease.run).collect::<Vec<_>>(), [two]);
    assert!(ctx.store.claim_runs(request.clone()).await.unwrap().runs.is_empty(), "somebody holds it");
    ctx.advance_ms(LEASE_MS).await;
    assert_eq!(ctx.store.claim_runs(request.clone()).await.unwrap().runs.len(), 1, "somebody held it too long");
    request.run = Some(ctx.ids.next_run());
    let missing = ctx.store.claim_runs(request.clone()).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    request.run = Some(one);
    request.kinds = vec![Kind::new("code").unwrap()];
    assert!(ctx.store.claim_runs(request).await.unwrap().runs.is_empty(), "of another kind");
}

async fn runs_of_other_kinds_are_left_alone(ctx: Ctx) {
    let mut run = new_run(&ctx, "code");
    run.kind = Kind::new("code").unwrap();
    run.step.wake = Some(Due::Now);
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    assert!(claim_runs(&ctx, 10).await.is_empty());
    let mut request = claim_request(10);
    request.kinds.push(run.kind.clone());
    assert_eq!(ctx.store.claim_runs(request.clone()).await.unwrap().runs.len(), 1);
    // The same for one whose engine vanished.
    ctx.advance_ms(LEASE_MS).await;
    assert!(claim_runs(&ctx, 10).await.is_empty());
    assert_eq!(ctx.store.claim_runs(request).await.unwrap().runs.len(), 1);
}

async fn the_sweep_of_leases_finds_runs_for_those_who_wait(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step.wake = Some(Due::DelayMs(300));
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let mark = ctx.store.claim_runs(claim_request(1)).await.unwrap().mark;
    let sweep = Sweep { kind: SweepKind::Reap, max: 10 };
    let early = ctx.store.sweep(sweep).await.unwrap();
    let wake_at = super::run_help::read(&ctx, run.id).await.run.wake_at;
    assert_eq!((early.handled, early.next_at), (0, wake_at));
    ctx.advance_ms(300).await;
    let waits = ctx.store.wait(WaitFor::Runs(mark));
    let both = futures::future::join(waits, ctx.store.sweep(sweep));
    let (waited, swept) = tokio::time::timeout(HANG_GUARD, both).await.expect("it is told");
    waited.unwrap();
    assert_eq!(swept.unwrap().handled, 1);
    // The same for an engine that vanished.
    claim_run(&ctx).await;
    ctx.advance_ms(LEASE_MS).await;
    assert_eq!(ctx.store.sweep(sweep).await.unwrap().handled, 1);
    assert_eq!(claim_run(&ctx).await.lease.run, run.id);
}
