//! Segments of runs: new ones that a step begins, and runs that start again under the id of an ended one.

use super::run_help::{
    awake, claim_by_id, claimed, commit, commit_of, commit_this, create, entry, graph, message, refused_commit, send,
    step, texts, views,
};
use crate::ctx::{Ctx, worker_id};
use crate::runner::cases;
use bytes::Bytes;
use std::collections::BTreeMap;
use windlass_core::id::{RunId, Token};
use windlass_core::job::Due;
use windlass_core::name::Kind;
use windlass_core::payload::Payload;
use windlass_core::store::{
    ClaimedRun, FeedEvent, NewRun, RunChange, RunClaim, RunCommit, RunCreated, RunMessage, RunReuse, RunSegment,
    RunState, RunStep, RunView,
};
use windlass_core::{Error, Result};

cases!("run_segments":
    a_step_begins_a_segment,
    a_segment_begins_with_the_entries_behind_those_of_the_old_one,
    a_run_of_a_new_kind_is_claimed_by_its_engines,
    a_segment_that_cannot_be_meant_is_refused,
    an_ended_run_starts_again_if_that_is_allowed,
    a_run_that_starts_again_keeps_its_number_and_its_history,
    a_run_that_starts_again_has_nothing_of_its_old_start,
    a_run_that_goes_on_does_not_start_again,
    a_start_that_is_repeated_is_recognised,
    a_nonce_makes_another_start,
    a_refused_restart_changes_nothing,
    the_feed_tells_of_a_restart,
    a_child_starts_an_ended_run_again,
    parents_labels_and_results_make_other_runs,
);

fn other_kind() -> Kind {
    Kind::new("order@2").unwrap()
}

fn segment(entries_before: u32) -> Option<RunSegment> {
    Some(RunSegment { kind: graph(), input: "next".into(), entries_before })
}

async fn view(ctx: &Ctx, run: RunId) -> RunView {
    views(ctx, &[run]).await.remove(0).expect("it is there")
}

async fn held(ctx: &Ctx, run: RunId) -> ClaimedRun {
    claim_by_id(ctx, run).await.expect("it is free")
}

fn reusable(ctx: &Ctx) -> NewRun {
    NewRun { reuse: RunReuse::IfEnded, step: step(&["begun"]), ..awake(ctx) }
}

async fn end(ctx: &Ctx, run: RunId, state: RunState) {
    commit(ctx, &held(ctx, run).await, RunStep { state, ..step(&["end"]) }).await.unwrap();
}

async fn a_step_begins_a_segment(ctx: Ctx) {
    let claimed = claimed(&ctx).await;
    let run = claimed.lease.run;
    commit(&ctx, &claimed, RunStep { wake: Some(Due::Now), ..step(&["a", "b"]) }).await.unwrap();
    let claimed = held(&ctx, run).await;
    assert_eq!((claimed.segment_from, claimed.history_len), (0, 2));
    commit(&ctx, &claimed, RunStep { segment: segment(0), ..step(&["c"]) }).await.unwrap();
    let seen = view(&ctx, run).await;
    assert_eq!((seen.run.segment_from, seen.run.history_len), (2, 3));
    assert_eq!(seen.input, Some("next".into()));
    assert_eq!(seen.history, [entry("a"), entry("b"), entry("c")], "the history of before is kept");
    let claimed = held(&ctx, run).await;
    assert_eq!((claimed.segment_from, claimed.history_len, claimed.state), (2, 3, RunState::Running));
}

async fn a_segment_begins_with_the_entries_behind_those_of_the_old_one(ctx: Ctx) {
    for (entries_before, from) in [(0, 0), (1, 1), (2, 2)] {
        let claimed = claimed(&ctx).await;
        let begins = RunStep { segment: segment(entries_before), ..step(&["a", "b"]) };
        let made = commit_of(&claimed, begins);
        assert!(!commit_this(&ctx, made.clone()).await.unwrap().repeated);
        assert!(commit_this(&ctx, made).await.unwrap().repeated);
        let seen = view(&ctx, claimed.lease.run).await.run;
        assert_eq!((seen.segment_from, seen.history_len), (from, 2), "{entries_before}");
    }
}

async fn a_run_of_a_new_kind_is_claimed_by_its_engines(ctx: Ctx) {
    let claimed = claimed(&ctx).await;
    let run = claimed.lease.run;
    send(&ctx, message(run, "hello")).await.unwrap();
    let next = RunSegment { kind: other_kind(), input: Bytes::new(), entries_before: 0 };
    commit(&ctx, &claimed, RunStep { segment: Some(next), ..step(&["a"]) }).await.unwrap();
    assert_eq!(view(&ctx, run).await.run.kind, other_kind());
    assert!(claim_by_id(&ctx, run).await.is_none(), "the engines of the old kind do not get it");
    let claim = RunClaim::new(worker_id("engine"), vec![graph(), other_kind()]);
    let found = ctx.store.claim_runs(claim).await.unwrap().runs.remove(0);
    assert_eq!((found.kind, texts(&found.inbox)), (other_kind(), vec!["hello".to_owned()]));
}

async fn a_segment_that_cannot_be_meant_is_refused(ctx: Ctx) {
    let claimed = claimed(&ctx).await;
    let wrong = [
        RunStep { segment: segment(2), ..step(&["a"]) },
        RunStep { segment: segment(0), state: RunState::Succeeded, ..step(&["a"]) },
        RunStep { segment: segment(0), stuck: Some("odd".to_owned()), ..step(&["a"]) },
    ];
    for wrong in wrong {
        let refused = refused_commit(&ctx, commit_of(&claimed, wrong)).await;
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    }
    let input = vec![0; (4 << 20) + 1].into();
    let large = Some(RunSegment { kind: graph(), input, entries_before: 0 });
    let refused = refused_commit(&ctx, commit_of(&claimed, RunStep { segment: large, ..step(&[]) })).await;
    assert!(matches!(refused, Error::Limit { .. }), "{refused:?}");
    let first = NewRun { step: RunStep { segment: segment(0), ..step(&["a"]) }, ..awake(&ctx) };
    assert!(matches!(create(&ctx, first).await, Err(Error::Invalid { .. })));
}

async fn an_ended_run_starts_again_if_that_is_allowed(ctx: Ctx) {
    use RunReuse::{IfEnded, IfNotSucceeded, Never};
    use RunState::{Cancelled, Failed, Succeeded, TimedOut};
    for state in [Succeeded, Failed, Cancelled, TimedOut] {
        for reuse in [Never, IfEnded, IfNotSucceeded] {
            let run = NewRun { step: RunStep { state, ..step(&["end"]) }, ..awake(&ctx) };
            create(&ctx, run.clone()).await.unwrap();
            let again = NewRun { input: "again".into(), reuse, step: step(&["begun"]), ..run.clone() };
            let may = reuse == IfEnded || reuse == IfNotSucceeded && state != Succeeded;
            let should = if may { Ok(RunCreated::Restarted) } else { Err(Error::RunTaken { run: run.id }) };
            assert_eq!(create(&ctx, again).await, should, "{state:?} {reuse:?}");
            let is = view(&ctx, run.id).await.run.state;
            assert_eq!(is, if may { RunState::Running } else { state });
        }
    }
}

async fn a_run_that_starts_again_keeps_its_number_and_its_history(ctx: Ctx) {
    let run = reusable(&ctx);
    create(&ctx, run.clone()).await.unwrap();
    let first = held(&ctx, run.id).await;
    commit(&ctx, &first, RunStep { state: RunState::Failed, ..step(&["end"]) }).await.unwrap();
    let again = NewRun { input: "2".into(), step: RunStep { wake: Some(Due::Now), ..step(&["b"]) }, ..run.clone() };
    assert_eq!(create(&ctx, again).await, Ok(RunCreated::Restarted));
    let second = held(&ctx, run.id).await;
    assert_eq!((second.number, second.created_at), (first.number, first.created_at));
    assert_eq!((second.segment_from, second.history_len), (2, 3));
    assert_eq!(view(&ctx, run.id).await.history, [entry("begun"), entry("end"), entry("b")]);
    // Its old lease stays lost, and its end is still recognised.
    let late = RunCommit { history_len: 3, ..commit_of(&first, step(&["late"])) };
    assert!(commit_this(&ctx, late).await.unwrap().repeated, "the lease ended with a commit");
    assert_eq!(view(&ctx, run.id).await.run.history_len, 3);
}

async fn a_run_that_starts_again_has_nothing_of_its_old_start(ctx: Ctx) {
    let labels = |value: &str| BTreeMap::from([("of".to_owned(), value.to_owned())]);
    let mut run = reusable(&ctx);
    run.labels = labels("first");
    run.step.published = Some(BTreeMap::from([("a".to_owned(), Payload::new("text/plain", "1"))]));
    create(&ctx, run.clone()).await.unwrap();
    let ends = RunStep {
        state: RunState::Failed,
        result: Some(Payload::new("text/plain", "x")),
        error: Some("why".to_owned()),
        ..step(&["end"])
    };
    commit(&ctx, &held(&ctx, run.id).await, ends).await.unwrap();
    let again = NewRun {
        kind: other_kind(),
        name: "another".to_owned(),
        definition: "another".into(),
        input: "another".into(),
        keep_ms: Some(5),
        parent: Some(ctx.ids.next_run()),
        labels: labels("second"),
        step: step(&["b"]),
        ..run.clone()
    };
    assert_eq!(create(&ctx, again.clone()).await, Ok(RunCreated::Restarted));
    let seen = view(&ctx, run.id).await;
    assert_eq!((seen.result, seen.published), (None, Some(BTreeMap::new())));
    assert_eq!((seen.definition, seen.input), (Some("another".into()), Some("another".into())));
    let is = seen.run;
    assert_eq!((is.state, is.error, is.finished_at, is.inbox_len), (RunState::Running, None, None, 0));
    assert_eq!(
        (is.kind, is.name.as_str(), is.parent, is.labels),
        (other_kind(), "another", again.parent, again.labels.clone())
    );
    let claim = RunClaim { run: Some(run.id), ..RunClaim::new(worker_id("e"), vec![other_kind()]) };
    let found = ctx.store.claim_runs(claim).await.unwrap().runs.remove(0);
    assert_eq!(found.definition_hash, again.definition_hash());
}

async fn a_run_that_goes_on_does_not_start_again(ctx: Ctx) {
    let run = reusable(&ctx);
    create(&ctx, run.clone()).await.unwrap();
    let again = NewRun { input: "2".into(), ..run.clone() };
    assert_eq!(create(&ctx, again.clone()).await, Err(Error::RunTaken { run: run.id }));
    let parked = held(&ctx, run.id).await;
    commit(&ctx, &parked, RunStep { stuck: Some("odd".to_owned()), ..step(&[]) }).await.unwrap();
    assert_eq!(create(&ctx, again.clone()).await, Err(Error::RunTaken { run: run.id }), "a stuck one has not ended");
    // A terminated one has ended when an engine has cleaned up after it.
    send(&ctx, RunMessage { terminates: true, ..message(run.id, "stop") }).await.unwrap();
    let before = view(&ctx, run.id).await;
    assert!(matches!(create(&ctx, again.clone()).await, Err(Error::RunRefused { .. })));
    assert_eq!(view(&ctx, run.id).await, before);
    end(&ctx, run.id, RunState::Terminated).await;
    assert_eq!(create(&ctx, again).await, Ok(RunCreated::Restarted));
}

async fn a_start_that_is_repeated_is_recognised(ctx: Ctx) {
    let run = reusable(&ctx);
    assert_eq!(create(&ctx, run.clone()).await, Ok(RunCreated::Created));
    end(&ctx, run.id, RunState::Succeeded).await;
    assert_eq!(create(&ctx, run.clone()).await, Ok(RunCreated::Existing), "also when it has ended meanwhile");
    assert_eq!(view(&ctx, run.id).await.run.state, RunState::Succeeded);
    let again = NewRun { input: "2".into(), ..run.clone() };
    assert_eq!(create(&ctx, again.clone()).await, Ok(RunCreated::Restarted));
    assert_eq!(create(&ctx, again).await, Ok(RunCreated::Existing));
    assert_eq!(create(&ctx, run.clone()).await, Err(Error::RunTaken { run: run.id }), "the first start is past");
}

async fn a_nonce_makes_another_start(ctx: Ctx) {
    let run = reusable(&ctx);
    create(&ctx, run.clone()).await.unwrap();
    end(&ctx, run.id, RunState::Succeeded).await;
    let with = |nonce| NewRun { nonce: Some(Token::from_bits(nonce)), ..run.clone() };
    assert_eq!(create(&ctx, with(1)).await, Ok(RunCreated::Restarted));
    assert_eq!(create(&ctx, with(1)).await, Ok(RunCreated::Existing));
    assert_eq!(create(&ctx, with(2)).await, Err(Error::RunTaken { run: run.id }), "it goes on");
    end(&ctx, run.id, RunState::Succeeded).await;
    assert_eq!(create(&ctx, with(1)).await, Ok(RunCreated::Existing));
    assert_eq!(create(&ctx, with(2)).await, Ok(RunCreated::Restarted));
}

async fn a_refused_restart_changes_nothing(ctx: Ctx) {
    let run = reusable(&ctx);
    create(&ctx, run.clone()).await.unwrap();
    end(&ctx, run.id, RunState::Failed).await;
    let taken = ctx.enqueue_all(vec![ctx.job("q", "k")]).await[0];
    let mut job = super::run_help::job_of(&ctx, run.id);
    job.id = taken;
    let again = NewRun { input: "2".into(), step: RunStep { jobs: vec![job], ..step(&["b"]) }, ..run.clone() };
    let (before, feed) = (view(&ctx, run.id).await, ctx.feed_end().await);
    let refused: Result<RunCreated> = create(&ctx, again).await;
    assert!(matches!(refused, Err(Error::Duplicate { .. })), "{refused:?}");
    assert_eq!((view(&ctx, run.id).await, ctx.feed_after(feed).await), (before, vec![]));
}

async fn the_feed_tells_of_a_restart(ctx: Ctx) {
    for entries in [&["b"][..], &[]] {
        let run = reusable(&ctx);
        create(&ctx, run.clone()).await.unwrap();
        end(&ctx, run.id, RunState::Failed).await;
        let feed = ctx.feed_end().await;
        let again = NewRun { input: "2".into(), step: step(entries), ..run.clone() };
        create(&ctx, again).await.unwrap();
        let events: Vec<FeedEvent> = ctx.feed_after(feed).await.into_iter().flat_map(|entry| entry.events).collect();
        let history_len = 2 + entries.len() as u64;
        let change = RunChange { run: run.id, state: Some(RunState::Running), history_len };
        assert_eq!(events, [FeedEvent::Run(change)]);
    }
}

async fn a_child_starts_an_ended_run_again(ctx: Ctx) {
    let parent = claimed(&ctx).await;
    let child = NewRun { parent: Some(parent.lease.run), ..reusable(&ctx) };
    create(&ctx, child.clone()).await.unwrap();
    end(&ctx, child.id, RunState::Succeeded).await;
    let again = NewRun { input: "2".into(), ..child.clone() };
    let made = RunStep { runs: vec![again], ..step(&["begun"]) };
    commit(&ctx, &parent, made).await.unwrap();
    assert_eq!(view(&ctx, child.id).await.run.state, RunState::Running);
    end(&ctx, child.id, RunState::Failed).await;
    assert_eq!(texts(&held(&ctx, parent.lease.run).await.inbox), ["run succeeded", "run failed"]);
}

async fn parents_labels_and_results_make_other_runs(ctx: Ctx) {
    let run = awake(&ctx);
    create(&ctx, run.clone()).await.unwrap();
    let others = [
        NewRun { parent: Some(ctx.ids.next_run()), ..run.clone() },
        NewRun { labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..run.clone() },
        NewRun { job_results: true, ..run.clone() },
        NewRun { nonce: Some(Token::from_bits(0)), ..run.clone() },
    ];
    for other in others {
        assert_eq!(create(&ctx, other).await, Err(Error::RunTaken { run: run.id }));
    }
    let same = NewRun { reuse: RunReuse::IfEnded, ..run };
    assert_eq!(create(&ctx, same).await, Ok(RunCreated::Existing), "how often it may start is no content");
}
