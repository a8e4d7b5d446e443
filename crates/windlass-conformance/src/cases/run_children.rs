//! Runs that steps of other runs create: they begin in that step, and their ends reach their parents.

use super::run_help::{
    LEASE_MS, awake, claim_by_id, claimed, commit, commit_of, commit_this, create, graph, job_of, message,
    refused_commit, send, step, texts, views,
};
use crate::ctx::Ctx;
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::{Due, State};
use windlass_core::payload::Payload;
use windlass_core::store::{
    ClaimedRun, NewRun, RunCommit, RunCreated, RunEnd, RunItem, RunMessage, RunRead, RunState, RunStep, SweepKind,
};

cases!("run_children":
    a_step_creates_runs,
    the_first_step_of_a_run_creates_runs,
    the_end_of_a_child_reaches_its_parent_once,
    a_child_that_ends_at_once_reports_its_end,
    a_run_that_ends_without_a_result_reports_that,
    a_taken_id_is_an_item_of_the_parent,
    a_child_whose_jobs_are_refused_is_an_item_of_the_parent,
    a_repeated_commit_creates_nothing_twice,
    a_step_that_creates_what_it_may_not_is_refused,
    a_parent_that_has_ended_or_is_gone_gets_nothing,
    a_child_that_is_removed_or_pruned_reports_nothing,
    a_stuck_parent_keeps_the_end_of_a_child,
    a_child_that_is_opened_again_reports_its_next_end,
    a_step_sends_messages_to_the_runs_that_it_creates,
    the_class_and_the_result_of_a_job_come_with_its_end,
);

fn child_of(ctx: &Ctx, parent: RunId) -> NewRun {
    NewRun { parent: Some(parent), ..awake(ctx) }
}

/// A claimed parent after a commit that creates one child, and the child.
async fn family(ctx: &Ctx) -> (RunId, NewRun) {
    let parent = claimed(ctx).await;
    let child = child_of(ctx, parent.lease.run);
    commit(ctx, &parent, RunStep { runs: vec![child.clone()], ..step(&["begun"]) }).await.unwrap();
    (parent.lease.run, child)
}

async fn inbox(ctx: &Ctx, run: RunId) -> ClaimedRun {
    claim_by_id(ctx, run).await.expect("it is free")
}

/// Ends a run that nobody holds.
async fn end(ctx: &Ctx, run: RunId, state: RunState) {
    let claimed = inbox(ctx, run).await;
    commit(ctx, &claimed, RunStep { state, ..step(&["end"]) }).await.unwrap();
}

async fn is_there(ctx: &Ctx, run: RunId) -> bool {
    ctx.store.read_runs(vec![RunRead::brief(run)]).await.unwrap()[0].is_some()
}

async fn a_step_creates_runs(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let mut child = child_of(&ctx, parent.lease.run);
    child.labels = BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]);
    child.input = "7".into();
    let job = job_of(&ctx, child.id);
    child.step = RunStep { jobs: vec![job.clone()], wake: Some(Due::Now), ..step(&["first"]) };
    let other = child_of(&ctx, parent.lease.run);
    let runs = vec![child.clone(), other.clone()];
    commit(&ctx, &parent, RunStep { runs, ..step(&["begun"]) }).await.unwrap();
    assert_eq!(ctx.state(job.id).await, State::Ready);
    let view = views(&ctx, &[child.id]).await.remove(0).unwrap();
    assert_eq!((view.run.parent, &view.run.labels), (Some(parent.lease.run), &child.labels));
    assert_eq!((view.input, view.history.len()), (Some("7".into()), 1));
    let claimed = inbox(&ctx, child.id).await;
    assert_eq!((claimed.parent, claimed.labels), (Some(parent.lease.run), child.labels));
    assert!(is_there(&ctx, other.id).await);
    assert_eq!(views(&ctx, &[parent.lease.run]).await[0].as_ref().unwrap().run.inbox_len, 0);
}

async fn the_first_step_of_a_run_creates_runs(ctx: Ctx) {
    let mut parent = awake(&ctx);
    let child = child_of(&ctx, parent.id);
    parent.step.runs = vec![child.clone()];
    assert_eq!(create(&ctx, parent.clone()).await, Ok(RunCreated::Created));
    assert_eq!(create(&ctx, parent.clone()).await, Ok(RunCreated::Existing));
    end(&ctx, child.id, RunState::Succeeded).await;
    assert_eq!(texts(&inbox(&ctx, parent.id).await.inbox), ["run succeeded"]);
}

async fn the_end_of_a_child_reaches_its_parent_once(ctx: Ctx) {
    let (parent, child) = family(&ctx).await;
    let claimed = inbox(&ctx, child.id).await;
    let result = Payload::new("application/json", "{\"b\": 1}");
    let ends = RunStep {
        state: RunState::Failed,
        result: Some(result.clone()),
        error: Some("no route".to_owned()),
        ..step(&["end"])
    };
    let now = ctx.now().await;
    let made = commit_of(&claimed, ends);
    assert!(!commit_this(&ctx, made.clone()).await.unwrap().repeated);
    assert!(commit_this(&ctx, made).await.unwrap().repeated);
    let view = views(&ctx, &[child.id]).await.remove(0).unwrap();
    assert_eq!((view.result.as_ref(), view.run.error.as_deref()), (Some(&result), Some("no route")));
    let found = inbox(&ctx, parent).await;
    let [item] = &found.inbox[..] else { panic!("{:?}", found.inbox) };
    let error = Some("no route".to_owned());
    let end = RunEnd { run: child.id, state: RunState::Failed, at: now, result: Some(result), error };
    assert_eq!((item.number, &item.item), (0, &RunItem::RunEnded(end)));
    assert_eq!(views(&ctx, &[parent]).await[0].as_ref().unwrap().run.unread_messages, 0, "it is no message");
}

async fn a_child_that_ends_at_once_reports_its_end(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let mut child = child_of(&ctx, parent.lease.run);
    child.step = RunStep { state: RunState::TimedOut, ..step(&["end"]) };
    commit(&ctx, &parent, RunStep { runs: vec![child], ..step(&["begun"]) }).await.unwrap();
    let mut child = child_of(&ctx, parent.lease.run);
    child.step = RunStep { state: RunState::Succeeded, ..step(&["end"]) };
    create(&ctx, child).await.unwrap();
    assert_eq!(texts(&inbox(&ctx, parent.lease.run).await.inbox), ["run timed_out", "run succeeded"]);
}

async fn a_run_that_ends_without_a_result_reports_that(ctx: Ctx) {
    let (parent, child) = family(&ctx).await;
    end(&ctx, child.id, RunState::Cancelled).await;
    let found = inbox(&ctx, parent).await.inbox.remove(0).item;
    let RunItem::RunEnded(end) = found else { panic!("{found:?}") };
    assert_eq!((end.state, end.result, end.error), (RunState::Cancelled, None, None));
}

async fn a_taken_id_is_an_item_of_the_parent(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let run = parent.lease.run;
    let other = awake(&ctx);
    create(&ctx, other.clone()).await.unwrap();
    let before = views(&ctx, &[other.id]).await;
    let taken = NewRun { id: other.id, input: "x".into(), ..child_of(&ctx, run) };
    let twice = child_of(&ctx, run);
    let job = job_of(&ctx, run);
    let runs = vec![taken.clone(), twice.clone(), twice.clone()];
    commit(&ctx, &parent, RunStep { runs, jobs: vec![job.clone()], ..step(&["begun"]) }).await.unwrap();
    assert_eq!(views(&ctx, &[other.id]).await, before, "the other run stays as it is");
    assert_eq!(ctx.state(job.id).await, State::Ready, "the rest of the step is made");
    let found = inbox(&ctx, run).await;
    let refused = |item: &RunItem| match item {
        RunItem::ChildRefused { run, reason } if !reason.is_empty() => Some(*run),
        _ => None,
    };
    let refused: Vec<_> = found.inbox.iter().map(|found| refused(&found.item)).collect();
    assert_eq!(refused, [Some(other.id), Some(twice.id)], "the same run again is taken, too");
}

async fn a_child_whose_jobs_are_refused_is_an_item_of_the_parent(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let taken = ctx.enqueue_all(vec![ctx.job("q", "k")]).await[0];
    let mut child = child_of(&ctx, parent.lease.run);
    let mut job = job_of(&ctx, child.id);
    job.id = taken;
    let good = job_of(&ctx, child.id);
    child.step.jobs = vec![good.clone(), job];
    commit(&ctx, &parent, RunStep { runs: vec![child.clone()], ..step(&["begun"]) }).await.unwrap();
    assert!(!is_there(&ctx, child.id).await);
    assert_eq!(ctx.get(good.id).await, None);
    assert_eq!(texts(&inbox(&ctx, parent.lease.run).await.inbox), ["child refused"]);
}

async fn a_repeated_commit_creates_nothing_twice(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let child = child_of(&ctx, parent.lease.run);
    let made = commit_of(&parent, RunStep { runs: vec![child.clone()], ..step(&["begun"]) });
    let keeps = RunCommit { lease_ms: Some(LEASE_MS), ..made.clone() };
    assert!(!commit_this(&ctx, keeps.clone()).await.unwrap().repeated);
    assert!(commit_this(&ctx, keeps).await.unwrap().repeated);
    let more = RunStep { runs: vec![child_of(&ctx, parent.lease.run)], ..step(&["more"]) };
    let made = RunCommit { history_len: parent.history_len + 1, ..commit_of(&parent, more) };
    assert!(!commit_this(&ctx, made.clone()).await.unwrap().repeated);
    assert!(commit_this(&ctx, made).await.unwrap().repeated);
    let view = views(&ctx, &[parent.lease.run]).await.remove(0).unwrap();
    assert_eq!((view.run.inbox_len, view.run.history_len), (0, 2));
}

async fn a_step_that_creates_what_it_may_not_is_refused(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let run = parent.lease.run;
    let good = child_of(&ctx, run);
    let other = ctx.ids.next_run();
    let nested = RunStep { runs: vec![child_of(&ctx, good.id)], ..step(&[]) };
    let stops_parent = vec![RunMessage { terminates: true, ..message(run, "stop") }];
    let many: BTreeMap<_, _> = (0..17).map(|n| (format!("label {n}"), String::new())).collect();
    let wrong = [
        NewRun { parent: None, ..good.clone() },
        NewRun { parent: Some(other), ..good.clone() },
        NewRun { step: nested, ..good.clone() },
        NewRun { step: RunStep { messages: stops_parent, ..step(&[]) }, ..good.clone() },
        NewRun { step: RunStep { state: RunState::Terminated, ..step(&[]) }, ..good.clone() },
        NewRun { labels: many, ..good.clone() },
        NewRun { messages: vec![RunMessage { id: Some("1".to_owned()), ..message(good.id, "x") }], ..good.clone() },
        NewRun { id: run, ..good.clone() },
    ];
    let fine = child_of(&ctx, run);
    for wrong in wrong {
        let runs = vec![fine.clone(), wrong];
        let error = refused_commit(&ctx, commit_of(&parent, RunStep { runs, ..step(&["a"]) })).await;
        assert!(matches!(error, Error::Invalid { .. } | Error::Limit { .. }), "{error:?}");
    }
    let ends = RunStep { runs: vec![fine.clone()], state: RunState::Succeeded, ..step(&["a"]) };
    assert!(matches!(refused_commit(&ctx, commit_of(&parent, ends)).await, Error::Invalid { .. }));
    let unseen = RunStep { runs: vec![fine.clone()], ..step(&[]) };
    let unseen = RunCommit { lease_ms: Some(LEASE_MS), ..commit_of(&parent, unseen) };
    assert!(matches!(refused_commit(&ctx, unseen).await, Error::Invalid { .. }), "its repetition would not be noticed");
    for run in [fine.id, good.id] {
        assert!(!is_there(&ctx, run).await);
    }
    let own = NewRun { parent: Some(other), ..NewRun::new(other, graph()) };
    assert!(matches!(create(&ctx, own).await, Err(Error::Invalid { .. })), "no run creates itself");
}

async fn a_parent_that_has_ended_or_is_gone_gets_nothing(ctx: Ctx) {
    let (ended, first) = family(&ctx).await;
    let (gone, second) = family(&ctx).await;
    for parent in [ended, gone] {
        end(&ctx, parent, RunState::Succeeded).await;
    }
    ctx.store.remove_runs(vec![gone]).await.unwrap().remove(0).unwrap();
    for child in [first.id, second.id] {
        end(&ctx, child, RunState::Succeeded).await;
    }
    let view = views(&ctx, &[ended, gone]).await;
    assert_eq!(view[0].as_ref().map(|view| (view.run.state, view.run.inbox_len)), Some((RunState::Succeeded, 0)));
    assert_eq!(view[1], None);
}

async fn a_child_that_is_removed_or_pruned_reports_nothing(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let run = parent.lease.run;
    let ends = |keep_ms| NewRun { keep_ms: Some(keep_ms), ..child_of(&ctx, run) };
    let (removed, pruned) = (ends(1_000_000), ends(0));
    let runs = vec![removed.clone(), pruned.clone()];
    commit(&ctx, &parent, RunStep { runs, ..step(&["begun"]) }).await.unwrap();
    let stuck = inbox(&ctx, removed.id).await;
    commit(&ctx, &stuck, RunStep { stuck: Some("odd".to_owned()), ..step(&[]) }).await.unwrap();
    ctx.store.remove_runs(vec![removed.id]).await.unwrap().remove(0).unwrap();
    end(&ctx, pruned.id, RunState::Succeeded).await;
    ctx.sweep(SweepKind::Prune).await;
    assert!(!is_there(&ctx, removed.id).await && !is_there(&ctx, pruned.id).await);
    assert_eq!(texts(&inbox(&ctx, run).await.inbox), ["run succeeded"], "only the one that ended");
    // The parent goes, and its children stay.
    let (parent, child) = family(&ctx).await;
    end(&ctx, parent, RunState::Failed).await;
    ctx.store.remove_runs(vec![parent]).await.unwrap().remove(0).unwrap();
    assert!(is_there(&ctx, child.id).await);
}

async fn a_stuck_parent_keeps_the_end_of_a_child(ctx: Ctx) {
    let (parent, child) = family(&ctx).await;
    let held = inbox(&ctx, parent).await;
    commit(&ctx, &held, RunStep { stuck: Some("odd".to_owned()), ..step(&[]) }).await.unwrap();
    end(&ctx, child.id, RunState::Succeeded).await;
    assert!(claim_by_id(&ctx, parent).await.is_none());
    send(&ctx, RunMessage { reopens: true, ..message(parent, "go on") }).await.unwrap();
    assert_eq!(texts(&inbox(&ctx, parent).await.inbox), ["run succeeded", "go on"]);
}

async fn a_child_that_is_opened_again_reports_its_next_end(ctx: Ctx) {
    let (parent, child) = family(&ctx).await;
    let claimed = inbox(&ctx, child.id).await;
    let result = Some(Payload::new("text/plain", "done"));
    commit(&ctx, &claimed, RunStep { state: RunState::Failed, result, ..step(&["end"]) }).await.unwrap();
    send(&ctx, RunMessage { reopens: true, ..message(child.id, "again") }).await.unwrap();
    let view = views(&ctx, &[child.id]).await.remove(0).unwrap();
    assert_eq!((view.result, view.run.error), (None, None), "a run that goes on has no result");
    end(&ctx, child.id, RunState::Succeeded).await;
    assert_eq!(texts(&inbox(&ctx, parent).await.inbox), ["run failed", "run succeeded"]);
}

async fn a_step_sends_messages_to_the_runs_that_it_creates(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let child = child_of(&ctx, parent.lease.run);
    let messages = vec![message(child.id, "hello")];
    commit(&ctx, &parent, RunStep { runs: vec![child.clone()], messages, ..step(&["begun"]) }).await.unwrap();
    assert_eq!(texts(&inbox(&ctx, child.id).await.inbox), ["hello"]);
}

async fn the_class_and_the_result_of_a_job_come_with_its_end(ctx: Ctx) {
    use windlass_core::job::{FailureClass, Retry};
    use windlass_core::store::OutcomeKind;
    for job_results in [true, false] {
        let mut run = NewRun { job_results, ..awake(&ctx) };
        let jobs = [job_of(&ctx, run.id), job_of(&ctx, run.id)];
        run.step.jobs = jobs.to_vec();
        create(&ctx, run.clone()).await.unwrap();
        let taken = ctx.claim("w", "q", 2).await;
        let result = Payload::new("text/plain", "42");
        let done = OutcomeKind::Complete { result: Some(result.clone()), outputs: BTreeMap::new() };
        ctx.report("w", taken[0].lease, done).await.unwrap();
        ctx.fail("w", taken[1].lease, Retry::Never).await.unwrap();
        let found = inbox(&ctx, run.id).await;
        let ends = found.inbox.iter().map(|found| match &found.item {
            RunItem::JobEnded(end) => (end.class, end.result.clone()),
            other => panic!("{other:?}"),
        });
        let ends: Vec<_> = ends.collect();
        assert_eq!(ends, [(None, Some(result).filter(|_| job_results)), (Some(FailureClass::Error), None)]);
    }
}
