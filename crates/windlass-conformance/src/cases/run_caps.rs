//! Caps of groups that the jobs of runs bring: they hold while the group is in use, and leave nothing behind.

use super::run_help::{commit_of, job_of, new_run, step};
use crate::ctx::{Ctx, queue_name};
use crate::look::{cap, group, ids};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Due, NewJob, Retry, State};
use windlass_core::store::{ChangeOp, GroupSettings, Reason, RunCreated, RunStep, SweepKind};

cases!("run_caps":
    the_cap_of_a_runs_jobs_holds_for_their_group,
    a_job_that_backed_off_brings_the_cap_of_its_group_back,
    a_job_that_was_delayed_or_retried_brings_the_cap_of_its_group,
    of_two_runs_the_later_one_sets_the_cap,
    a_job_that_becomes_ready_again_does_not_replace_the_cap_of_a_later_run,
    the_cap_of_the_groups_settings_comes_before_that_of_runs,
    the_cap_of_runs_comes_before_that_of_the_queue,
    no_group_of_ended_runs_remains,
    a_cap_that_cannot_be_meant_is_refused,
);

/// A job of a run in the group `g` of the queue `q`, with this cap.
fn capped(ctx: &Ctx, run: RunId, name: &str, max: Option<u32>) -> NewJob {
    let mut job = job_of(ctx, run);
    (job.spec.group, job.spec.group_cap) = (Some(group(name)), max);
    job
}

/// Starts a run with so many jobs in the group `g`, all with this cap.
async fn start(ctx: &Ctx, count: usize, max: u32) -> Vec<JobId> {
    let mut run = new_run(ctx, "capped");
    run.step.jobs = (0..count).map(|_| capped(ctx, run.id, "g", Some(max))).collect();
    let jobs = run.step.jobs.iter().map(|job| job.id).collect();
    assert_eq!(ctx.store.create_runs(vec![run]).await.unwrap(), [Ok(RunCreated::Created)]);
    jobs
}

async fn run_cap(ctx: &Ctx) -> Option<u32> {
    ctx.group_status("q", "g").await.expect("the group is there").run_cap
}

async fn the_cap_of_a_runs_jobs_holds_for_their_group(ctx: Ctx) {
    let made = start(&ctx, 5, 2).await;
    let others = ctx.enqueue_grouped("q", "other", 3).await;
    let first = ctx.claim("w", "q", 10).await;
    let got = ids(&first);
    assert_eq!(got.len(), 5, "{got:?}");
    assert!(made[..2].iter().chain(&others).all(|id| got.contains(id)), "{got:?}");
    let status = ctx.group_status("q", "g").await.unwrap();
    assert_eq!((status.ready, status.active, status.run_cap), (3, 2, Some(2)));
    assert_eq!(status.settings, GroupSettings::default());
    assert_eq!(status.limits(cap(7)), cap(2));
    assert_eq!(ctx.reason(made[2]).await, Reason::GroupAtCap { group: group("g"), cap: 2 });
    assert_eq!(ctx.get(made[0]).await.unwrap().spec.group_cap, Some(2));
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    let done = first.iter().find(|job| job.lease.job == made[1]).unwrap();
    ctx.complete("w", done.lease).await.unwrap();
    assert_eq!(ids(&ctx.claim("w", "q", 10).await), [made[2]]);
    // Jobs without a cap count, too.
    let plain = ctx.enqueue_grouped("q", "g", 1).await;
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    assert_eq!(ctx.state(plain[0]).await, State::Ready);
}

async fn a_job_that_backed_off_brings_the_cap_of_its_group_back(ctx: Ctx) {
    // The other job of the group has a cap of its own, or none.
    for other_cap in [Some(1), None] {
        let backing_off = start(&ctx, 1, 1).await[0];
        let first = ctx.claim_one("w", "q").await;
        assert_eq!(first.lease.job, backing_off);
        ctx.fail("w", first.lease, Retry::AfterMs(300)).await.unwrap();
        assert_eq!(ctx.groups("q").await, [], "an idle group is forgotten");
        let other = match other_cap {
            Some(max) => start(&ctx, 1, max).await[0],
            None => ctx.enqueue_grouped("q", "g", 1).await[0],
        };
        let second = ctx.claim_one("w", "q").await;
        assert_eq!((second.lease.job, run_cap(&ctx).await), (other, other_cap));
        ctx.advance_ms(400).await;
        ctx.sweep(SweepKind::Promote).await;
        assert!(ctx.claim("w2", "q", 10).await.is_empty(), "two of the group would be active");
        assert_eq!((ctx.state(backing_off).await, run_cap(&ctx).await), (State::Ready, Some(1)));
        ctx.complete("w", second.lease).await.unwrap();
        let third = ctx.claim_one("w2", "q").await;
        assert_eq!(third.lease.job, backing_off);
        ctx.complete("w2", third.lease).await.unwrap();
        assert_eq!(ctx.groups("q").await, []);
    }
}

async fn a_job_that_was_delayed_or_retried_brings_the_cap_of_its_group(ctx: Ctx) {
    let mut run = new_run(&ctx, "capped");
    let delayed = capped(&ctx, run.id, "g", Some(1)).due(Due::DelayMs(300));
    let mut failing = capped(&ctx, run.id, "g", Some(1));
    failing.spec.attempts = 1;
    let (delayed_id, failing_id) = (delayed.id, failing.id);
    run.step.jobs = vec![failing, delayed];
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    let first = ctx.claim_one("w", "q").await;
    ctx.fail("w", first.lease, Retry::Never).await.unwrap();
    assert_eq!((ctx.state(failing_id).await, ctx.groups("q").await), (State::Failed, vec![]));
    ctx.change(failing_id, ChangeOp::Retry(Due::Now)).await.unwrap();
    ctx.advance_ms(400).await;
    let second = ctx.claim("w", "q", 10).await;
    assert_eq!(ids(&second), [failing_id]);
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    ctx.complete("w", second[0].lease).await.unwrap();
    assert_eq!(ids(&ctx.claim("w", "q", 10).await), [delayed_id]);
}

async fn of_two_runs_the_later_one_sets_the_cap(ctx: Ctx) {
    let first = start(&ctx, 6, 1).await;
    let mut held = ctx.claim("w", "q", 10).await;
    assert_eq!(ids(&held), first[..1]);
    // Raised, it counts at once.
    start(&ctx, 1, 3).await;
    assert_eq!(run_cap(&ctx).await, Some(3));
    held.extend(ctx.claim("w", "q", 10).await);
    assert_eq!(ids(&held), first[..3]);
    // Lowered, it counts at once, too.
    start(&ctx, 1, 2).await;
    ctx.complete("w", held[0].lease).await.unwrap();
    assert!(ctx.claim("w", "q", 10).await.is_empty(), "two are active");
    ctx.complete("w", held[1].lease).await.unwrap();
    assert_eq!(ids(&ctx.claim("w", "q", 10).await), first[3..4]);
    // In one step, the last job counts.
    let mut run = new_run(&ctx, "capped");
    run.step.jobs = [4, 5].map(|max| capped(&ctx, run.id, "g", Some(max))).to_vec();
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    assert_eq!(run_cap(&ctx).await, Some(5));
}

async fn a_job_that_becomes_ready_again_does_not_replace_the_cap_of_a_later_run(ctx: Ctx) {
    let early = start(&ctx, 1, 5).await[0];
    let first = ctx.claim_one("w", "q").await;
    start(&ctx, 2, 1).await;
    ctx.fail("w", first.lease, Retry::AfterMs(300)).await.unwrap();
    ctx.advance_ms(400).await;
    ctx.sweep(SweepKind::Promote).await;
    assert_eq!((ctx.state(early).await, run_cap(&ctx).await), (State::Ready, Some(1)));
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
}

async fn the_cap_of_the_groups_settings_comes_before_that_of_runs(ctx: Ctx) {
    let settings = GroupSettings { weight: Some(3), ..cap(2) };
    ctx.set_group("q", "g", settings).await;
    start(&ctx, 5, 1).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 2);
    let status = ctx.group_status("q", "g").await.unwrap();
    assert_eq!((status.settings, status.run_cap), (settings, Some(1)));
    // Without a cap of its own, that of runs holds again; its other settings stay.
    ctx.set_group("q", "g", GroupSettings { cap: None, ..settings }).await;
    assert!(ctx.claim("w", "q", 10).await.is_empty());
    ctx.set_group("q", "g", cap(3)).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 1);
}

async fn the_cap_of_runs_comes_before_that_of_the_queue(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = cap(1)).await;
    start(&ctx, 5, 3).await;
    assert_eq!(ctx.claim("w", "q", 10).await.len(), 3);
    ctx.set_queue("q", |settings| settings.groups = cap(9)).await;
    assert!(ctx.claim("w", "q", 10).await.is_empty());
}

async fn no_group_of_ended_runs_remains(ctx: Ctx) {
    for round in 0..4 {
        let run = |n: usize| {
            let mut run = new_run(&ctx, "capped");
            run.step.jobs = vec![capped(&ctx, run.id, &format!("deploy-{round}-{n}"), Some(1))];
            run
        };
        let runs = (0..50).map(run).collect();
        let made = ctx.store.create_runs(runs).await.unwrap();
        assert!(made.iter().all(Result::is_ok), "{made:?}");
        assert_eq!(ctx.groups("q").await.len(), 50, "those of the runs before are gone");
        let jobs = ctx.claim("w", "q", 100).await;
        assert_eq!(jobs.len(), 50);
        ctx.complete_all("w", &jobs).await;
        assert_eq!(ctx.groups("q").await, []);
        let claimed = super::run_help::claim_runs(&ctx, 100).await;
        let ends = claimed
            .iter()
            .map(|run| commit_of(run, RunStep { state: windlass_core::store::RunState::Succeeded, ..step(&["end"]) }));
        assert!(ctx.store.commit_runs(ends.collect()).await.unwrap().iter().all(Result::is_ok));
        assert_eq!(ctx.groups("q").await, []);
    }
}

async fn a_cap_that_cannot_be_meant_is_refused(ctx: Ctx) {
    let mut run = new_run(&ctx, "capped");
    let zero = capped(&ctx, run.id, "g", Some(0));
    let mut nowhere = capped(&ctx, run.id, "g", Some(1));
    nowhere.spec.group = None;
    for bad in [zero, nowhere] {
        run.step.jobs = vec![capped(&ctx, run.id, "g", Some(1)), bad];
        let refused = ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0);
        assert!(matches!(&refused, Err(Error::Invalid { field, .. }) if field == "group_cap"), "{refused:?}");
    }
    let mut outside = ctx.grouped("q", "g");
    outside.spec.group_cap = Some(1);
    let refused = ctx.try_enqueue(outside).await;
    assert!(matches!(&refused, Err(Error::Invalid { field, .. }) if field == "group_cap"), "{refused:?}");
    let queues = ctx.store.queues().await.unwrap();
    assert!(queues.iter().all(|queue| queue.name != queue_name("q")), "nothing was changed: {queues:?}");
}
