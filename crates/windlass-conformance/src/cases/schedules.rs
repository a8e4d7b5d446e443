//! Schedules: the row is the truth, and a tick is handled once.

use super::schedule_help::{every, find, job_ticks, named, put, spec};
use crate::ctx::Ctx;
use crate::look::on;
use crate::runner::cases;
use std::sync::Arc;
use windlass_core::Error;
use windlass_core::job::{JobSpec, KeepFor, NewJob, Retry, State};
use windlass_core::name::ScheduleName;
use windlass_core::schedule::{Overlap, Rule, Schedule, tick, trigger};
use windlass_core::store::{ChangeOp, Fire, FireOutcome, SweepKind};

cases!("schedules":
    put_list_and_remove,
    a_changed_schedule_keeps_its_history,
    a_schedule_that_cannot_be_meant_is_refused,
    due_ones_come_the_most_overdue_first,
    a_due_schedule_tells_of_its_last_job,
    a_tick_creates_its_job_and_moves_on,
    eight_tickers_create_one_job_per_tick,
    a_tick_whose_job_is_there_with_other_content_is_handled,
    a_handled_tick_does_not_come_back_with_an_older_copy,
    a_handled_tick_does_not_come_back_with_another_rule,
    a_stale_fire_changes_nothing,
    a_fire_is_all_or_nothing,
    overlap_skip_waits_for_the_last_job,
    overlap_skip_is_decided_by_the_store,
    a_paused_schedule_is_not_due,
    a_trigger_is_out_of_turn,
    a_trigger_repeated_creates_one_job,
);

async fn put_list_and_remove(ctx: Ctx) {
    let now = ctx.now().await;
    for name in ["b", "a", "c"] {
        put(&ctx, every(name, 60_000).arm(None, now).unwrap()).await;
    }
    let all = ctx.store.schedules().await.unwrap();
    assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(all[0].next_tick, Some(now.plus_ms(60_000)));
    assert_eq!((all[0].fired, all[0].last_tick, all[0].last_job), (0, None, None));
    assert!(ctx.store.remove_schedule(named("b")).await.unwrap());
    assert!(!ctx.store.remove_schedule(named("b")).await.unwrap());
    let left = ctx.store.schedules().await.unwrap();
    assert_eq!(left.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
}

async fn a_changed_schedule_keeps_its_history(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, Schedule { next_tick: Some(now), ..every("s", 60_000) }).await;
    tick(&*ctx.store, 10).await.unwrap();
    let before = find(&ctx, "s").await;
    assert_eq!((before.fired, before.last_tick), (1, Some(now)));
    let forged = Schedule { fired: 77, last_tick: None, last_job: None, revision: 0, ..every("s", 120_000) };
    put(&ctx, Schedule { next_tick: Some(now.plus_ms(5)), ..forged }).await;
    let after = find(&ctx, "s").await;
    assert_eq!((after.fired, after.last_tick, after.last_job), (1, before.last_tick, before.last_job));
    assert_eq!((after.rule.clone(), after.next_tick), (Rule::every_ms(120_000), Some(now.plus_ms(5))));
    assert!(after.revision > before.revision, "a change is told by the revision");
    ctx.store.remove_schedule(named("s")).await.unwrap();
    put(&ctx, Schedule { fired: 77, last_tick: Some(now), ..every("s", 60_000) }).await;
    let fresh = find(&ctx, "s").await;
    assert_eq!((fresh.fired, fresh.last_tick, fresh.last_job), (0, None, None), "a new one has none");
    assert!(fresh.revision > after.revision, "a fire for the old one must not hit the new one");
}

async fn a_schedule_that_cannot_be_meant_is_refused(ctx: Ctx) {
    let now = ctx.now().await;
    let bad = [
        every("s", 0),
        every("s", 999),
        Schedule { rule: Rule::cron("60 * * * *"), ..every("s", 1_000) },
        Schedule { rule: Rule::cron("0 0 30 2 *"), ..every("s", 1_000) },
        Schedule { rule: Rule::cron_in("Mars/Olympus", "0 0 * * *"), ..every("s", 1_000) },
        Schedule { limit: Some(0), ..every("s", 1_000) },
        Schedule { start: Some(now), end: Some(now.minus_ms(1)), ..every("s", 1_000) },
    ];
    for schedule in bad {
        let refused = ctx.store.put_schedule(schedule).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{refused:?}");
    }
    assert_eq!(ctx.store.schedules().await.unwrap(), []);
    for max in [0, 10_001] {
        assert!(ctx.store.due_schedules(max).await.is_err());
    }
}

async fn due_ones_come_the_most_overdue_first(ctx: Ctx) {
    let now = ctx.now().await;
    for (name, late_ms) in [("a", 10), ("b", 30), ("c", 20)] {
        put(&ctx, Schedule { next_tick: Some(now.minus_ms(late_ms)), ..every(name, 60_000) }).await;
    }
    put(&ctx, Schedule { next_tick: Some(now.plus_ms(3_600_000)), ..every("later", 60_000) }).await;
    put(&ctx, Schedule { next_tick: None, ..every("over", 60_000) }).await;
    let names = |due: Vec<windlass_core::store::DueSchedule>| {
        due.into_iter().map(|one| one.schedule.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(ctx.store.due_schedules(10).await.unwrap()), ["b", "c", "a"]);
    assert_eq!(names(ctx.store.due_schedules(1).await.unwrap()), ["b"]);
    let due = ctx.store.due_schedules(1).await.unwrap().remove(0);
    assert!(due.now >= now, "the store's clock decides, and is told");
}

async fn a_due_schedule_tells_of_its_last_job(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, Schedule { next_tick: Some(now), ..every("s", 1_000) }).await;
    let due = |ctx: &Ctx| {
        let store = Arc::clone(&ctx.store);
        async move { store.due_schedules(1).await.unwrap().remove(0).last_job_state }
    };
    assert_eq!(due(&ctx).await, None);
    tick(&*ctx.store, 1).await.unwrap();
    let fired = find(&ctx, "s").await;
    let id = fired.last_job.unwrap();
    put(&ctx, Schedule { next_tick: Some(now), ..fired }).await;
    assert_eq!(due(&ctx).await, Some(State::Ready));
    ctx.work_one("w", "q").await;
    assert_eq!(due(&ctx).await, Some(State::Succeeded));
    ctx.change(id, ChangeOp::Remove).await.unwrap();
    assert_eq!(due(&ctx).await, None);
}

async fn a_tick_creates_its_job_and_moves_on(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, every("s", 1_000).arm(None, now).unwrap()).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap(), Default::default(), "not before its time");
    ctx.advance_ms(1_000).await;
    let ticked = tick(&*ctx.store, 10).await.unwrap();
    assert_eq!((ticked.handled, ticked.jobs, ticked.failed.len()), (1, 1, 0));
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 0, "once");
    let schedule = find(&ctx, "s").await;
    assert_eq!((schedule.fired, schedule.last_tick), (1, Some(now.plus_ms(1_000))));
    assert_eq!(schedule.next_tick, Some(now.plus_ms(2_000)));
    assert_eq!(job_ticks(&ctx, "s").await, [now.plus_ms(1_000)]);
    let id = schedule.last_job.unwrap();
    assert_eq!(ctx.claim_one("w", "q").await.lease.job, id);
}

async fn eight_tickers_create_one_job_per_tick(ctx: Ctx) {
    let now = ctx.now().await;
    for n in 0..10 {
        put(&ctx, Schedule { next_tick: Some(now), ..every(&format!("s{n}"), 1_000) }).await;
    }
    for round in 1..=3u64 {
        let mut tickers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = Arc::clone(&ctx.store);
            tickers.spawn(async move { tick(&*store, 100).await.unwrap() });
        }
        let all = tickers.join_all().await;
        assert!(all.iter().all(|ticked| ticked.failed.is_empty()));
        let fired: u64 = ctx.store.schedules().await.unwrap().iter().map(|one| one.fired).sum();
        assert_eq!(all.iter().map(|ticked| ticked.jobs).sum::<u64>(), fired - 10 * (round - 1));
        for n in 0..10 {
            let ticks = job_ticks(&ctx, &format!("s{n}")).await;
            assert_eq!(ticks.len() as u64, round, "one job per tick: {ticks:?}");
        }
        put_back(&ctx, round).await;
    }
    // The very same ticks again, as from a restored backup: their jobs are there.
    for n in 0..10 {
        put(&ctx, Schedule { next_tick: Some(now), end: Some(now.plus_ms(999)), ..every(&format!("s{n}"), 1_000) })
            .await;
    }
    assert_eq!(tick(&*ctx.store, 100).await.unwrap().jobs, 0);
    assert_eq!(ctx.counts("q").await.ready, 30);
}

async fn a_tick_whose_job_is_there_with_other_content_is_handled(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, Schedule { next_tick: Some(now), ..every("s", 60_000) }).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 1);
    let first = find(&ctx, "s").await;
    // The schedule asks for something else since, and then its clock jumps back.
    let changed = JobSpec { priority: 7, ..spec("q") };
    put(&ctx, Schedule { next_tick: Some(now), spec: changed, ..first.clone() }).await;
    let ticked = tick(&*ctx.store, 10).await.unwrap();
    assert_eq!((ticked.handled, ticked.jobs, ticked.failed), (1, 0, vec![]));
    let again = find(&ctx, "s").await;
    assert_eq!((again.fired, again.last_job), (1, first.last_job));
    assert_eq!((again.last_tick, again.next_tick), (Some(now), first.next_tick));
    assert_eq!(ctx.get(first.last_job.unwrap()).await.unwrap().spec.priority, 0, "the job is as it was");
    assert_eq!(ctx.counts("q").await.ready, 1);
    // Of several jobs, those that are new are made.
    let known = NewJob { id: first.last_job.unwrap(), ..NewJob::new(ctx.ids.next(), spec("elsewhere")) };
    let new = NewJob::new(ctx.ids.next(), spec("q"));
    let id = new.id;
    assert_eq!(ctx.store.fire(fire(&again, vec![new, known])).await.unwrap(), FireOutcome::Fired { jobs: 1 });
    assert_eq!((find(&ctx, "s").await.last_job, ctx.counts("q").await.ready), (Some(id), 2));
}

/// Makes every schedule due again, at a tick that it has not had.
async fn put_back(ctx: &Ctx, round: u64) {
    for schedule in ctx.store.schedules().await.unwrap() {
        let next_tick = schedule.last_tick.map(|tick| tick.minus_ms(1_000_000 * round));
        put(ctx, Schedule { next_tick, end: next_tick.map(|tick| tick.plus_ms(999)), ..schedule }).await;
    }
}

fn fire(schedule: &Schedule, jobs: Vec<NewJob>) -> Fire {
    Fire {
        name: schedule.name.clone(),
        expected_tick: schedule.next_tick,
        revision: schedule.revision,
        jobs,
        next_tick: schedule.next_tick.map(|tick| tick.plus_ms(60_000)),
        skip_if_running: false,
    }
}

/// A schedule whose jobs go when they succeed, and whose first tick is `now`.
async fn put_forgetful(ctx: &Ctx) -> Schedule {
    let mut schedule = every("s", 60_000);
    schedule.spec.keep_for = KeepFor { succeeded_ms: Some(0), ..KeepFor::default() };
    schedule.next_tick = Some(ctx.now().await);
    put(ctx, schedule.clone()).await;
    schedule
}

/// Handles the tick, and its job to the end.
async fn tick_and_work(ctx: &Ctx, queue: &str) {
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 1);
    let job = ctx.claim_one("w", queue).await;
    ctx.complete("w", job.lease).await.unwrap();
    assert!(ctx.get(job.lease.job).await.is_none(), "the job is gone");
}

async fn a_handled_tick_does_not_come_back_with_an_older_copy(ctx: Ctx) {
    let schedule = put_forgetful(&ctx).await;
    let (now, queue) = (ctx.now().await, schedule.spec.queue.to_string());
    // Another process reads the schedule before the tick and puts it afterwards.
    let older = find(&ctx, "s").await;
    tick_and_work(&ctx, &queue).await;
    put(&ctx, schedule.arm(Some(&older), now).unwrap()).await;
    let stored = find(&ctx, "s").await;
    assert_eq!((stored.next_tick, stored.last_tick), (Some(now.plus_ms(60_000)), Some(now)));
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 0);
    assert!(ctx.claim("w", &queue, 10).await.is_empty());
    // The ticks go on.
    ctx.advance_ms(60_000).await;
    tick_and_work(&ctx, &queue).await;
}

async fn a_handled_tick_does_not_come_back_with_another_rule(ctx: Ctx) {
    let schedule = put_forgetful(&ctx).await;
    let (now, queue) = (ctx.now().await, schedule.spec.queue.to_string());
    tick_and_work(&ctx, &queue).await;
    put(&ctx, Schedule { rule: Rule::every_ms(30_000), next_tick: Some(now), ..schedule }).await;
    assert_eq!(find(&ctx, "s").await.next_tick, Some(now.plus_ms(30_000)));
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 0);
}

async fn a_stale_fire_changes_nothing(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, Schedule { next_tick: Some(now), ..every("s", 60_000) }).await;
    let schedule = find(&ctx, "s").await;
    let job = || NewJob::new(ctx.ids.next(), spec("q"));
    let first = fire(&schedule, vec![job()]);
    assert_eq!(ctx.store.fire(first.clone()).await.unwrap(), FireOutcome::Fired { jobs: 1 });
    let cursor = ctx.feed_end().await;
    let handled = find(&ctx, "s").await;
    assert_eq!(ctx.store.fire(first).await.unwrap(), FireOutcome::Stale, "the tick was handled");
    let other_tick = Fire { expected_tick: Some(now.plus_ms(1)), ..fire(&handled, vec![job()]) };
    assert_eq!(ctx.store.fire(other_tick).await.unwrap(), FireOutcome::Stale);
    put(&ctx, Schedule { limit: Some(9), ..handled.clone() }).await;
    assert_eq!(ctx.store.fire(fire(&handled, vec![job()])).await.unwrap(), FireOutcome::Stale, "it was changed");
    assert_eq!(ctx.feed_after(cursor).await.len(), 1, "only the change is told");
    assert_eq!(ctx.counts("q").await.ready, 1);
    let gone = Fire { name: ScheduleName::new("none").unwrap(), ..fire(&handled, vec![]) };
    assert!(ctx.store.fire(gone).await.unwrap_err().is_not_found());
}

async fn a_fire_is_all_or_nothing(ctx: Ctx) {
    let now = ctx.now().await;
    ctx.set_queue("q", |settings| settings.len_max = Some(2)).await;
    put(&ctx, Schedule { next_tick: Some(now), ..every("s", 60_000) }).await;
    let schedule = find(&ctx, "s").await;
    let jobs = |count: usize| (0..count).map(|_| NewJob::new(ctx.ids.next(), spec("q"))).collect::<Vec<_>>();
    let full = ctx.store.fire(fire(&schedule, jobs(3))).await;
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    assert_eq!(ctx.counts("q").await.ready, 0);
    assert_eq!(find(&ctx, "s").await, schedule, "it is still due");
    assert_eq!(ctx.store.fire(fire(&schedule, jobs(2))).await.unwrap(), FireOutcome::Fired { jobs: 2 });
    let mut bad = jobs(1);
    bad[0].spec.attempts = 0;
    assert!(ctx.store.fire(fire(&find(&ctx, "s").await, bad)).await.is_err());
}

async fn overlap_skip_waits_for_the_last_job(ctx: Ctx) {
    let again = async |name: &str| {
        let now = ctx.now().await;
        put(&ctx, Schedule { next_tick: Some(now), overlap: Overlap::Skip, ..every(name, 60_000) }).await;
        tick(&*ctx.store, 10).await.unwrap()
    };
    assert_eq!(again("s").await.jobs, 1);
    ctx.advance_ms(10).await;
    assert_eq!((again("s").await.jobs, find(&ctx, "s").await.fired), (0, 1), "it waits");
    let job = ctx.claim_one("w", "q").await;
    ctx.advance_ms(10).await;
    let skipped = again("s").await;
    assert_eq!((skipped.handled, skipped.jobs), (1, 0), "it is active; the tick is handled all the same");
    ctx.fail("w", job.lease, Retry::AfterMs(20)).await.unwrap();
    ctx.advance_ms(10).await;
    assert_eq!(again("s").await.jobs, 0, "it backs off");
    ctx.advance_ms(20).await;
    ctx.sweep(SweepKind::Promote).await;
    ctx.work_one("w", "q").await;
    assert_eq!((again("s").await.jobs, find(&ctx, "s").await.fired), (1, 2));
}

async fn overlap_skip_is_decided_by_the_store(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, Schedule { next_tick: Some(now), ..every("s", 60_000) }).await;
    let job = || vec![NewJob::new(ctx.ids.next(), spec("q"))];
    ctx.store.fire(fire(&find(&ctx, "s").await, job())).await.unwrap();
    let second = find(&ctx, "s").await;
    let skip = Fire { skip_if_running: true, ..fire(&second, job()) };
    assert_eq!(ctx.store.fire(skip).await.unwrap(), FireOutcome::Skipped);
    let after = find(&ctx, "s").await;
    assert_eq!((after.fired, after.last_job), (1, second.last_job));
    assert_eq!(
        (after.last_tick, after.next_tick),
        (second.next_tick, second.next_tick.map(|tick| tick.plus_ms(60_000)))
    );
    ctx.change(second.last_job.unwrap(), ChangeOp::Remove).await.unwrap();
    let skip = Fire { skip_if_running: true, ..fire(&after, job()) };
    assert_eq!(ctx.store.fire(skip).await.unwrap(), FireOutcome::Fired { jobs: 1 }, "one that is gone runs no more");
}

async fn a_paused_schedule_is_not_due(ctx: Ctx) {
    let now = ctx.now().await;
    put(&ctx, Schedule { next_tick: Some(now), paused: true, ..every("s", 60_000) }).await;
    assert_eq!(ctx.store.due_schedules(10).await.unwrap(), []);
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 0);
    let stored = find(&ctx, "s").await;
    ctx.advance_ms(10).await;
    let resumed = Schedule { paused: false, ..stored.clone() }.arm(Some(&stored), ctx.now().await).unwrap();
    put(&ctx, resumed).await;
    assert_eq!(tick(&*ctx.store, 10).await.unwrap().jobs, 0, "what passed while it was paused is gone");
    assert!(find(&ctx, "s").await.next_tick.unwrap() > now);
}

async fn a_trigger_is_out_of_turn(ctx: Ctx) {
    let now = ctx.now().await;
    let schedule = Schedule { paused: true, limit: Some(1), ..every("s", 60_000) };
    put(&ctx, schedule.arm(None, now).unwrap()).await;
    let before = find(&ctx, "s").await;
    let id = ctx.ids.next();
    assert_eq!(trigger(&*ctx.store, &named("s"), id).await.unwrap(), FireOutcome::Fired { jobs: 1 });
    let after = find(&ctx, "s").await;
    assert_eq!(
        (after.next_tick, after.last_tick, after.fired),
        (before.next_tick, None, 0),
        "its ticks are left alone"
    );
    assert_eq!(after.last_job, Some(id));
    assert_eq!(ctx.state(id).await, State::Ready);
    let unknown = trigger(&*ctx.store, &named("none"), ctx.ids.next()).await;
    assert!(unknown.unwrap_err().is_not_found());
    put(&ctx, Schedule { overlap: Overlap::Skip, ..after }).await;
    assert_eq!(trigger(&*ctx.store, &named("s"), ctx.ids.next()).await.unwrap(), FireOutcome::Skipped);
    assert_eq!(ctx.list_all(on("q")).await.len(), 1);
}

async fn a_trigger_repeated_creates_one_job(ctx: Ctx) {
    put(&ctx, every("s", 60_000).arm(None, ctx.now().await).unwrap()).await;
    let id = ctx.ids.next();
    assert_eq!(trigger(&*ctx.store, &named("s"), id).await.unwrap(), FireOutcome::Fired { jobs: 1 });
    assert_eq!(trigger(&*ctx.store, &named("s"), id).await.unwrap(), FireOutcome::Fired { jobs: 0 });
    assert_eq!(ctx.list_all(on("q")).await.len(), 1);
}
