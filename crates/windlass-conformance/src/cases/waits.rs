//! Waiting and closing. A wait may return early and must never sleep through what it waits for.

use super::run_help::{claimed, commit, message, send, step};
use crate::ctx::{Ctx, queue_name};
use crate::look::{beat, on};
use crate::runner::cases;
use std::future::Future;
use windlass_core::Error;
use windlass_core::job::{Due, Retry, State};
use windlass_core::store::{
    ChangeManyOp, ChangeOp, EnqueueRequest, FeedCursor, FeedRequest, ListRequest, LogRequest, RunMessage, RunState,
    RunStep, Setting, Sweep, SweepKind, WaitFor, WorkMark,
};
use windlass_core::time::HANG_GUARD;

cases!("waits":
    a_wait_for_a_job_returns_when_it_ends,
    a_wait_for_a_job_returns_when_it_is_removed,
    a_wait_for_a_job_that_has_ended_or_is_unknown_returns_at_once,
    many_may_wait_for_one_job,
    a_wait_for_a_run_returns_when_it_ends,
    a_wait_for_a_run_returns_when_it_is_terminated_or_removed,
    a_wait_for_a_run_that_has_ended_or_is_unknown_returns_at_once,
    a_wait_for_work_returns_after_an_enqueue,
    work_that_came_between_claim_and_wait_is_not_slept_through,
    a_wait_for_work_returns_when_something_else_makes_work,
    a_wait_for_work_returns_when_a_full_queue_has_room,
    a_wait_for_the_feed_returns_with_the_next_entry,
    a_wait_that_is_given_up_harms_nobody,
    close_ends_every_wait,
    close_is_idempotent_and_final,
);

/// A guard against hanging for ever; nothing is timed.
async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_GUARD, what).await.expect("the wait hangs")
}

/// Runs a wait beside whatever makes it end.
async fn wait_while(ctx: &Ctx, what: WaitFor, work: impl Future<Output = ()>) {
    let wait = in_time(ctx.store.wait(what));
    let work = async {
        // Lets the wait begin, if it will.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        work.await;
    };
    let (waited, ()) = futures::join!(wait, work);
    waited.unwrap();
}

async fn a_wait_for_a_job_returns_when_it_ends(ctx: Ctx) {
    for way in [State::Succeeded, State::Failed, State::Cancelled] {
        let id = ctx.enqueue(ctx.job("q", "work")).await.id();
        let job = ctx.claim_one("w", "q").await;
        wait_while(&ctx, WaitFor::Job(id), async {
            match way {
                State::Succeeded => drop(ctx.complete("w", job.lease).await.unwrap()),
                State::Failed => drop(ctx.fail("w", job.lease, Retry::Never).await.unwrap()),
                _ => {
                    ctx.change(id, ChangeOp::Cancel).await.unwrap();
                    ctx.complete("w", job.lease).await.unwrap();
                }
            }
        })
        .await;
        in_time(ctx.store.wait(WaitFor::Job(id))).await.unwrap();
        assert_eq!(ctx.state(id).await, way);
    }
    let id = ctx.enqueue(ctx.job_with("q", |spec| spec.stalls = 0)).await.id();
    ctx.claim_short("w", "q", 50).await;
    wait_while(&ctx, WaitFor::Job(id), ctx.expire(50)).await;
}

async fn a_wait_for_a_job_returns_when_it_is_removed(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    wait_while(&ctx, WaitFor::Job(id), async {
        ctx.change(id, ChangeOp::Remove).await.unwrap();
    })
    .await;
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    ctx.claim_one("w", "q").await;
    wait_while(&ctx, WaitFor::Job(id), async {
        ctx.change_all(ChangeManyOp::Obliterate { force: true }, on("q"), 100).await;
    })
    .await;
}

async fn a_wait_for_a_job_that_has_ended_or_is_unknown_returns_at_once(ctx: Ctx) {
    for state in [State::Succeeded, State::Failed, State::Cancelled] {
        let id = ctx.job_in("q", state).await;
        in_time(ctx.store.wait(WaitFor::Job(id))).await.unwrap();
    }
    in_time(ctx.store.wait(WaitFor::Job(ctx.ids.next()))).await.unwrap();
}

async fn many_may_wait_for_one_job(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    let waits = futures::future::join_all((0..20).map(|_| in_time(ctx.store.wait(WaitFor::Job(id)))));
    let work = async {
        tokio::task::yield_now().await;
        ctx.work_one("w", "q").await;
    };
    let (waited, ()) = futures::join!(waits, work);
    assert!(waited.into_iter().all(|one| one.is_ok()));
}

async fn a_wait_for_a_run_returns_when_it_ends(ctx: Ctx) {
    for state in [RunState::Succeeded, RunState::Failed, RunState::Cancelled, RunState::TimedOut] {
        let run = claimed(&ctx).await;
        let id = run.lease.run;
        wait_while(&ctx, WaitFor::Run(id), async {
            commit(&ctx, &run, RunStep { state, ..step(&["end"]) }).await.unwrap();
        })
        .await;
        in_time(ctx.store.wait(WaitFor::Run(id))).await.unwrap();
    }
}

async fn a_wait_for_a_run_returns_when_it_is_terminated_or_removed(ctx: Ctx) {
    let run = claimed(&ctx).await.lease.run;
    wait_while(&ctx, WaitFor::Run(run), async {
        send(&ctx, RunMessage { terminates: true, ..message(run, "end") }).await.unwrap();
    })
    .await;
    let run = claimed(&ctx).await;
    let id = run.lease.run;
    wait_while(&ctx, WaitFor::Run(id), async {
        commit(&ctx, &run, RunStep { stuck: Some("no code".to_owned()), ..step(&[]) }).await.unwrap();
        ctx.store.remove_runs(vec![id]).await.unwrap().remove(0).unwrap();
    })
    .await;
}

async fn a_wait_for_a_run_that_has_ended_or_is_unknown_returns_at_once(ctx: Ctx) {
    let run = claimed(&ctx).await;
    commit(&ctx, &run, RunStep { state: RunState::Failed, ..step(&["end"]) }).await.unwrap();
    in_time(ctx.store.wait(WaitFor::Run(run.lease.run))).await.unwrap();
    in_time(ctx.store.wait(WaitFor::Run(ctx.ids.next_run()))).await.unwrap();
}

async fn mark(ctx: &Ctx) -> WorkMark {
    let claimed = ctx.store.claim(ctx.claim_request("w", "q", 10)).await.unwrap();
    assert!(claimed.jobs.is_empty());
    claimed.mark
}

fn work(mark: WorkMark) -> WaitFor {
    WaitFor::Work { queues: vec![queue_name("other"), queue_name("q")], mark }
}

async fn a_wait_for_work_returns_after_an_enqueue(ctx: Ctx) {
    let mark = mark(&ctx).await;
    wait_while(&ctx, work(mark), async {
        ctx.enqueue_plain("q", 1).await;
    })
    .await;
}

async fn work_that_came_between_claim_and_wait_is_not_slept_through(ctx: Ctx) {
    let seen = mark(&ctx).await;
    ctx.enqueue_plain("q", 1).await;
    in_time(ctx.store.wait(work(seen))).await.unwrap();
    // Somebody else has taken it; the mark is as old as before, and the wait says so again.
    ctx.claim_one("w2", "q").await;
    in_time(ctx.store.wait(work(seen))).await.unwrap();
    // Many times, because the trap is a race.
    for round in 0..500 {
        let jobs = ctx.claim("w", "q", 10).await;
        ctx.complete_all("w", &jobs).await;
        let seen = mark(&ctx).await;
        let enqueue = async {
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            ctx.enqueue_plain("q", 1).await;
        };
        let (waited, ()) = futures::join!(in_time(ctx.store.wait(work(seen))), enqueue);
        waited.unwrap();
    }
}

/// The end of a job makes no work of its own; on a queue at its cap it lets others begin.
async fn a_wait_for_work_returns_when_a_full_queue_has_room(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(1)).await;
    for retry in [None, Some(Retry::AfterMs(3_600_000))] {
        ctx.enqueue_plain("q", 2).await;
        let job = ctx.claim_one("w2", "q").await;
        let seen = mark(&ctx).await;
        wait_while(&ctx, work(seen), async {
            match retry {
                None => ctx.complete("w2", job.lease).await.unwrap(),
                Some(retry) => ctx.fail("w2", job.lease, retry).await.unwrap(),
            };
        })
        .await;
        ctx.work_one("w", "q").await;
    }
}

async fn a_wait_for_work_returns_when_something_else_makes_work(ctx: Ctx) {
    ctx.enqueue_plain("q", 1).await;
    let job = ctx.claim_one("w2", "q").await;
    let seen = mark(&ctx).await;
    wait_while(&ctx, work(seen), async {
        ctx.fail("w2", job.lease, Retry::AfterMs(0)).await.unwrap();
    })
    .await;
    ctx.pause("q", true).await;
    let seen = mark(&ctx).await;
    wait_while(&ctx, work(seen), ctx.pause("q", false)).await;
    ctx.work_one("w", "q").await;
    let id = ctx.enqueue(ctx.job("q", "work").due(Due::DelayMs(3_600_000))).await.id();
    let seen = mark(&ctx).await;
    wait_while(&ctx, work(seen), async {
        ctx.change(id, ChangeOp::Promote).await.unwrap();
    })
    .await;
    ctx.work_one("w", "q").await;
    ctx.set_group("q", "g", crate::look::cap(1)).await;
    ctx.enqueue_grouped("q", "g", 2).await;
    let job = ctx.claim_one("w2", "q").await;
    let seen = mark(&ctx).await;
    wait_while(&ctx, work(seen), async {
        ctx.complete("w2", job.lease).await.unwrap();
    })
    .await;
    assert_eq!(ctx.claim("w", "q", 1).await.len(), 1, "a group came back");
    ctx.set_queue("q", |settings| settings.cap = Some(1)).await;
    ctx.enqueue_plain("q", 1).await;
    let seen = mark(&ctx).await;
    wait_while(&ctx, work(seen), ctx.set_queue("q", |settings| settings.cap = Some(2))).await;
}

async fn a_wait_for_the_feed_returns_with_the_next_entry(ctx: Ctx) {
    let end = ctx.feed_end().await;
    wait_while(&ctx, WaitFor::Feed(end), async {
        ctx.enqueue_plain("q", 1).await;
    })
    .await;
    in_time(ctx.store.wait(WaitFor::Feed(end))).await.unwrap();
    let end = ctx.feed_end().await;
    wait_while(&ctx, WaitFor::Feed(end), ctx.pause("q", true)).await;
    in_time(ctx.store.wait(WaitFor::Feed(FeedCursor(0)))).await.unwrap();
}

async fn a_wait_that_is_given_up_harms_nobody(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    let job = ctx.claim_one("w", "q").await;
    let seen = mark(&ctx).await;
    let end = ctx.feed_end().await;
    for what in [WaitFor::Job(id), work(seen), WaitFor::Feed(end)] {
        // Two begin, one is given up, the other must still return.
        let kept = in_time(ctx.store.wait(what.clone()));
        let given_up = async {
            let wait = ctx.store.wait(what);
            let _ = futures::future::select(wait, Box::pin(tokio::task::yield_now())).await;
            match ctx.state(id).await {
                State::Active => drop(ctx.complete("w", job.lease).await.unwrap()),
                _ => drop(ctx.enqueue_plain("q", 1).await),
            }
        };
        let (waited, ()) = futures::join!(kept, given_up);
        waited.unwrap();
    }
}

async fn close_ends_every_wait(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    ctx.claim_one("w", "q").await;
    let seen = mark(&ctx).await;
    let end = ctx.feed_end().await;
    let waits = [WaitFor::Job(id), work(seen), WaitFor::Feed(end)].map(|what| in_time(ctx.store.wait(what)));
    let close = async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        ctx.store.close().await.unwrap();
    };
    // They return; with what, depends on when each of them had looked.
    futures::join!(futures::future::join_all(waits), close);
}

async fn close_is_idempotent_and_final(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    ctx.store.close().await.unwrap();
    ctx.store.close().await.unwrap();
    let store = &ctx.store;
    let queue = queue_name("q");
    let mut answers: Vec<(&str, Option<Error>)> = vec![
        ("enqueue", store.enqueue(EnqueueRequest::new(vec![ctx.job("q", "work")])).await.err()),
        ("claim", store.claim(ctx.claim_request("w", "q", 1)).await.err()),
        ("change", store.change(vec![]).await.err()),
        ("get", store.get(vec![id]).await.err()),
        ("list", store.list(ListRequest { limit: 1, ..ListRequest::default() }).await.err()),
        ("configure", store.configure(Setting::Paused { queue, paused: true }).await.err()),
        ("queues", store.queues().await.err()),
        ("explain", store.explain(id).await.err()),
        ("sweep", store.sweep(Sweep { kind: SweepKind::Reap, max: 1 }).await.err()),
        ("read_logs", store.read_logs(LogRequest { job: id, from: 0, limit: 1 }).await.err()),
        ("heartbeat", store.heartbeat(beat("w", "q")).await.err()),
        ("workers", store.workers().await.err()),
        ("schedules", store.schedules().await.err()),
        ("read_feed", store.read_feed(FeedRequest { after: None, max: 1 }).await.err()),
        ("info", store.info().await.err()),
        ("now", store.now().await.err()),
    ];
    for (name, what) in [
        ("wait for a job", WaitFor::Job(id)),
        ("wait for work", work(WorkMark::default())),
        ("wait for the feed", WaitFor::Feed(FeedCursor(1))),
    ] {
        answers.push((name, in_time(store.wait(what)).await.err()));
    }
    for (name, error) in answers {
        assert!(matches!(error, Some(Error::Unavailable { .. })), "{name}: {error:?}");
    }
}
