//! Runs that a message terminates, whatever they wait for, and what is left to clean up then.

use super::run_help::{
    LEASE_MS, awake, claim_by_id, claim_run, claim_runs, claimed, commit, commit_of, commit_this, create, graph,
    job_of, message, refused_commit, refused_message, send, step, texts, views,
};
use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::{Due, State};
use windlass_core::payload::Payload;
use windlass_core::store::{
    FeedEvent, NewRun, RUN_TERMINATED, Run, RunChange, RunCommit, RunItem, RunMessage, RunRead, RunState, RunStep,
    SweepKind,
};

cases!("run_terminate":
    a_message_terminates_a_run_that_waits,
    a_message_terminates_a_run_that_is_held,
    a_message_terminates_a_run_that_is_stuck,
    a_terminated_run_is_claimed_once_more,
    a_terminated_run_is_cleaned_up_in_several_commits,
    a_commit_to_a_terminated_run_goes_on_with_nothing,
    only_a_message_terminates_a_run,
    a_terminated_run_takes_no_more_messages,
    a_terminated_child_reports_its_end,
    a_terminated_run_gets_no_ends,
    a_terminated_run_is_removed_and_pruned,
    a_terminated_run_whose_engine_vanished_is_claimed_again,
    a_step_terminates_another_run,
    a_terminated_run_can_be_opened_again,
);

fn terminate(run: RunId) -> RunMessage {
    RunMessage { terminates: true, ..message(run, "stop it") }
}

async fn shown(ctx: &Ctx, run: RunId) -> Run {
    views(ctx, &[run]).await.remove(0).expect("it is there").run
}

fn terminated(entries: &[&str]) -> RunStep {
    RunStep { state: RunState::Terminated, ..step(entries) }
}

/// A run with one job that waits for time alone.
async fn waiting(ctx: &Ctx) -> NewRun {
    let mut run = awake(ctx);
    run.step = RunStep { jobs: vec![job_of(ctx, run.id)], wake: Some(Due::DelayMs(1_000)), ..step(&["begun"]) };
    create(ctx, run.clone()).await.unwrap();
    run
}

async fn check_terminated(ctx: &Ctx, run: RunId) {
    let is = shown(ctx, run).await;
    assert_eq!((is.state, is.stuck, is.engine, is.wake_at), (RunState::Terminated, None, None, None));
    assert_eq!((is.finished_at, is.error.as_deref()), (Some(ctx.now().await), Some(RUN_TERMINATED)));
    let none = views(ctx, &[run]).await.remove(0).unwrap().result;
    assert_eq!(none, None);
}

async fn a_message_terminates_a_run_that_waits(ctx: Ctx) {
    let run = waiting(&ctx).await;
    let feed = ctx.feed_end().await;
    send(&ctx, terminate(run.id)).await.unwrap();
    check_terminated(&ctx, run.id).await;
    let events: Vec<FeedEvent> = ctx.feed_after(feed).await.into_iter().flat_map(|entry| entry.events).collect();
    let change = RunChange { run: run.id, state: Some(RunState::Terminated), history_len: 1 };
    assert_eq!(events, [FeedEvent::Run(change)]);
    assert_eq!(ctx.state(run.step.jobs[0].id).await, State::Ready, "its jobs are left to the engine");
}

async fn a_message_terminates_a_run_that_is_held(ctx: Ctx) {
    let held = claimed(&ctx).await;
    send(&ctx, terminate(held.lease.run)).await.unwrap();
    check_terminated(&ctx, held.lease.run).await;
    for made in [step(&["a"]), terminated(&["a"])] {
        assert_eq!(refused_commit(&ctx, commit_of(&held, made)).await, Error::LeaseLost);
    }
}

async fn a_message_terminates_a_run_that_is_stuck(ctx: Ctx) {
    let held = claimed(&ctx).await;
    let run = held.lease.run;
    let parked = RunStep { stuck: Some("odd".to_owned()), wake: Some(Due::DelayMs(1_000)), ..step(&[]) };
    commit(&ctx, &held, parked).await.unwrap();
    send(&ctx, terminate(run)).await.unwrap();
    check_terminated(&ctx, run).await;
    assert_eq!(claim_run(&ctx).await.lease.run, run);
}

async fn a_terminated_run_is_claimed_once_more(ctx: Ctx) {
    let run = waiting(&ctx).await;
    send(&ctx, message(run.id, "before")).await.unwrap();
    send(&ctx, terminate(run.id)).await.unwrap();
    let held = claim_run(&ctx).await;
    assert_eq!((held.state, held.woken), (RunState::Terminated, false));
    assert_eq!(texts(&held.inbox), ["before", "stop it"]);
    let at = ctx.now().await;
    let cleans = RunStep {
        cancel: vec![run.step.jobs[0].id],
        messages: vec![message(run.id, "too late")],
        wake: Some(Due::Now),
        ..terminated(&["cleaned"])
    };
    ctx.advance_ms(5).await;
    assert_eq!(commit(&ctx, &held, cleans).await.unwrap().history_len, 2);
    assert_eq!(ctx.state(run.step.jobs[0].id).await, State::Cancelled);
    let is = shown(&ctx, run.id).await;
    assert_eq!((is.state, is.history_len, is.inbox_len), (RunState::Terminated, 2, 0));
    assert_eq!((is.finished_at, is.error.as_deref(), is.wake_at), (Some(at), Some(RUN_TERMINATED), None));
    assert!(claim_runs(&ctx, 10).await.is_empty(), "it rests");
    assert!(claim_by_id(&ctx, run.id).await.is_none(), "also when it is asked for");
}

async fn a_terminated_run_is_cleaned_up_in_several_commits(ctx: Ctx) {
    let run = waiting(&ctx).await;
    send(&ctx, terminate(run.id)).await.unwrap();
    for entry in ["one", "two"] {
        let held = claim_run(&ctx).await;
        assert_eq!(texts(&held.inbox), ["stop it"]);
        let part = RunCommit { inbox_to: 0, ..commit_of(&held, terminated(&[entry])) };
        assert!(!commit_this(&ctx, part.clone()).await.unwrap().repeated);
        assert!(commit_this(&ctx, part).await.unwrap().repeated);
    }
    let held = claim_by_id(&ctx, run.id).await.expect("there is more to clean up");
    commit(&ctx, &held, terminated(&["three"])).await.unwrap();
    assert_eq!(shown(&ctx, run.id).await.history_len, 4);
    assert!(claim_runs(&ctx, 10).await.is_empty());
}

async fn a_commit_to_a_terminated_run_goes_on_with_nothing(ctx: Ctx) {
    let run = waiting(&ctx).await;
    send(&ctx, terminate(run.id)).await.unwrap();
    let held = claim_run(&ctx).await;
    let child = NewRun { parent: Some(run.id), ..awake(&ctx) };
    let wrong = [
        step(&["a"]),
        RunStep { state: RunState::Succeeded, ..step(&["a"]) },
        RunStep { jobs: vec![job_of(&ctx, run.id)], ..terminated(&["a"]) },
        RunStep { runs: vec![child], ..terminated(&["a"]) },
        RunStep { result: Some(Payload::new("text/plain", "x")), ..terminated(&["a"]) },
        RunStep { error: Some("x".to_owned()), ..terminated(&["a"]) },
        RunStep { stuck: Some("x".to_owned()), ..terminated(&["a"]) },
    ];
    for wrong in wrong {
        let refused = refused_commit(&ctx, commit_of(&held, wrong)).await;
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    }
    let keeps = RunCommit { lease_ms: Some(LEASE_MS), ..commit_of(&held, terminated(&["a"])) };
    assert!(matches!(refused_commit(&ctx, keeps).await, Error::Invalid { .. }));
    commit(&ctx, &held, terminated(&["a"])).await.unwrap();
}

async fn only_a_message_terminates_a_run(ctx: Ctx) {
    let held = claimed(&ctx).await;
    let refused = refused_commit(&ctx, commit_of(&held, terminated(&["a"]))).await;
    assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    let run = NewRun { step: terminated(&["a"]), ..awake(&ctx) };
    assert!(matches!(create(&ctx, run).await, Err(Error::Invalid { .. })));
}

async fn a_terminated_run_takes_no_more_messages(ctx: Ctx) {
    let run = waiting(&ctx).await;
    let with_id = RunMessage { id: Some("1".to_owned()), ..terminate(run.id) };
    send(&ctx, with_id.clone()).await.unwrap();
    for late in [message(run.id, "late"), terminate(run.id)] {
        assert!(matches!(refused_message(&ctx, late).await, Error::RunRefused { .. }));
    }
    send(&ctx, with_id).await.unwrap();
    assert_eq!(texts(&claim_run(&ctx).await.inbox), ["stop it"], "the repeated one is dropped");
    let ended = NewRun { step: RunStep { state: RunState::Succeeded, ..step(&["end"]) }, ..awake(&ctx) };
    create(&ctx, ended.clone()).await.unwrap();
    assert!(matches!(refused_message(&ctx, terminate(ended.id)).await, Error::RunRefused { .. }));
    let missing = refused_message(&ctx, terminate(ctx.ids.next_run())).await;
    assert!(matches!(missing, Error::NotFound { .. }));
}

async fn a_terminated_child_reports_its_end(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let child = NewRun { parent: Some(parent.lease.run), ..awake(&ctx) };
    commit(&ctx, &parent, RunStep { runs: vec![child.clone()], ..step(&["begun"]) }).await.unwrap();
    let at = ctx.now().await;
    send(&ctx, terminate(child.id)).await.unwrap();
    let held = claim_by_id(&ctx, child.id).await.unwrap();
    commit(&ctx, &held, terminated(&["cleaned"])).await.unwrap();
    let inbox = claim_by_id(&ctx, parent.lease.run).await.unwrap().inbox;
    let [found] = &inbox[..] else { panic!("{inbox:?}") };
    let RunItem::RunEnded(end) = &found.item else { panic!("{found:?}") };
    assert_eq!((end.run, end.state, end.at), (child.id, RunState::Terminated, at));
    assert_eq!((end.result.as_ref(), end.error.as_deref()), (None, Some(RUN_TERMINATED)));
}

async fn a_terminated_run_gets_no_ends(ctx: Ctx) {
    let run = waiting(&ctx).await;
    let child = NewRun { parent: Some(run.id), ..awake(&ctx) };
    create(&ctx, child.clone()).await.unwrap();
    let job = ctx.claim_one("w", "q").await;
    send(&ctx, terminate(run.id)).await.unwrap();
    ctx.complete("w", job.lease).await.unwrap();
    let held = claim_by_id(&ctx, child.id).await.unwrap();
    commit(&ctx, &held, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    assert_eq!(texts(&claim_run(&ctx).await.inbox), ["stop it"]);
}

async fn a_terminated_run_is_removed_and_pruned(ctx: Ctx) {
    let run = waiting(&ctx).await;
    send(&ctx, terminate(run.id)).await.unwrap();
    ctx.store.remove_runs(vec![run.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(ctx.store.read_runs(vec![RunRead::brief(run.id)]).await.unwrap(), [None]);
    assert!(claim_runs(&ctx, 10).await.is_empty());
    // It is kept until an engine has cleaned up, and goes when its time is over.
    let run = NewRun { keep_ms: Some(0), ..awake(&ctx) };
    create(&ctx, run.clone()).await.unwrap();
    send(&ctx, terminate(run.id)).await.unwrap();
    ctx.sweep(SweepKind::Prune).await;
    commit(&ctx, &claim_run(&ctx).await, terminated(&["cleaned"])).await.unwrap();
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.store.read_runs(vec![RunRead::brief(run.id)]).await.unwrap(), [None]);
}

async fn a_terminated_run_whose_engine_vanished_is_claimed_again(ctx: Ctx) {
    let run = waiting(&ctx).await;
    send(&ctx, terminate(run.id)).await.unwrap();
    claim_run(&ctx).await;
    assert!(claim_runs(&ctx, 10).await.is_empty());
    ctx.advance_ms(LEASE_MS + 1).await;
    let held = claim_run(&ctx).await;
    assert_eq!(
        (held.state, held.stall_count, texts(&held.inbox)),
        (RunState::Terminated, 1, vec!["stop it".to_owned()])
    );
}

async fn a_step_terminates_another_run(ctx: Ctx) {
    let run = waiting(&ctx).await;
    let other = claimed(&ctx).await;
    commit(&ctx, &other, RunStep { messages: vec![terminate(run.id)], ..step(&["sent"]) }).await.unwrap();
    check_terminated(&ctx, run.id).await;
    let kind = shown(&ctx, run.id).await.kind;
    assert_eq!(kind, graph());
}

async fn a_terminated_run_can_be_opened_again(ctx: Ctx) {
    let run = waiting(&ctx).await;
    send(&ctx, terminate(run.id)).await.unwrap();
    commit(&ctx, &claim_run(&ctx).await, terminated(&["cleaned"])).await.unwrap();
    send(&ctx, RunMessage { reopens: true, ..message(run.id, "again") }).await.unwrap();
    let is = shown(&ctx, run.id).await;
    assert_eq!((is.state, is.error, is.finished_at), (RunState::Running, None, None));
    let held = claim_run(&ctx).await;
    assert_eq!((held.state, texts(&held.inbox)), (RunState::Running, vec!["again".to_owned()]));
}
