//! What claims of runs hand out: wake-ups of stuck runs, leases that ran out, histories, and what a run publishes.

use super::run_help::{
    LEASE_MS, awake, claim_by_id, claim_request, claim_run, claim_runs, commit, commit_of, commit_this, create, entry,
    graph, message, refused_commit, send, step, views,
};
use crate::ctx::{Ctx, worker_id};
use crate::runner::cases;
use bytes::Bytes;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::{Due, RESULT_BYTES_MAX};
use windlass_core::payload::Payload;
use windlass_core::store::{
    CLAIM_HISTORY_BYTES_MAX, ClaimedRun, NewRun, PUBLISHED_BYTES_MAX, RunClaim, RunCommit, RunMessage, RunSegment,
    RunState, RunStep, SweepKind,
};

cases!("run_claims":
    a_stuck_run_is_handed_out_when_its_wake_up_has_come,
    a_stuck_run_without_a_wake_up_rests,
    a_commit_replaces_what_a_run_is_stuck_for,
    leases_that_run_out_are_counted,
    a_lease_that_a_message_took_away_is_not_counted,
    a_history_comes_with_the_claim_of_another_engine,
    a_history_that_is_too_long_is_left_out,
    a_history_of_a_segment_comes_without_what_was_before,
    all_histories_of_a_claim_are_bounded_together,
    values_are_published_and_replaced,
    labels_are_replaced,
    results_and_values_that_cannot_be_meant_are_refused,
);

async fn held(ctx: &Ctx, run: RunId) -> ClaimedRun {
    claim_by_id(ctx, run).await.expect("it is free")
}

async fn created(ctx: &Ctx) -> RunId {
    let run = NewRun { input: "input".into(), ..awake(ctx) };
    create(ctx, run.clone()).await.unwrap();
    run.id
}

fn stuck(why: &str, wake: Option<Due>) -> RunStep {
    RunStep { stuck: Some(why.to_owned()), wake, ..step(&[]) }
}

async fn a_stuck_run_is_handed_out_when_its_wake_up_has_come(ctx: Ctx) {
    let run = created(&ctx).await;
    commit(&ctx, &held(&ctx, run).await, stuck("no code", Some(Due::DelayMs(500)))).await.unwrap();
    send(&ctx, message(run, "hello")).await.unwrap();
    assert!(claim_runs(&ctx, 10).await.is_empty() && claim_by_id(&ctx, run).await.is_none());
    let next_at = ctx.store.claim_runs(claim_request(1)).await.unwrap().next_at;
    assert_eq!(next_at, Some(ctx.now().await.plus_ms(500)));
    ctx.advance_ms(501).await;
    let claimed = claim_run(&ctx).await;
    assert_eq!((claimed.lease.run, claimed.woken, claimed.inbox.len()), (run, true, 1));
    assert_eq!((claimed.stuck.as_deref(), claimed.state), (Some("no code"), RunState::Running));
    let is = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!(is.stuck.as_deref(), Some("no code"), "it stays stuck until a commit says otherwise");
    // An engine that asks for it by its id gets it then, too.
    let again = RunCommit { inbox_to: 0, ..commit_of(&claimed, stuck("no code", Some(Due::DelayMs(500)))) };
    commit_this(&ctx, again).await.unwrap();
    ctx.advance_ms(501).await;
    assert_eq!(held(&ctx, run).await.stuck.as_deref(), Some("no code"));
}

async fn a_stuck_run_without_a_wake_up_rests(ctx: Ctx) {
    let run = created(&ctx).await;
    commit(&ctx, &held(&ctx, run).await, stuck("no code", None)).await.unwrap();
    ctx.advance_ms(100_000).await;
    assert!(claim_runs(&ctx, 10).await.is_empty() && claim_by_id(&ctx, run).await.is_none());
    let next_at = ctx.store.claim_runs(claim_request(1)).await.unwrap().next_at;
    assert_eq!(next_at, None);
}

async fn a_commit_replaces_what_a_run_is_stuck_for(ctx: Ctx) {
    let run = created(&ctx).await;
    commit(&ctx, &held(&ctx, run).await, stuck("one", Some(Due::Now))).await.unwrap();
    let claimed = claim_run(&ctx).await;
    commit(&ctx, &claimed, stuck("two", Some(Due::Now))).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.stuck.as_deref(), Some("two"));
    commit(&ctx, &claimed, RunStep { wake: Some(Due::Now), ..step(&["a"]) }).await.unwrap();
    assert_eq!(claim_run(&ctx).await.stuck, None);
}

async fn leases_that_run_out_are_counted(ctx: Ctx) {
    let run = created(&ctx).await;
    let stalls = async || views(&ctx, &[run]).await[0].as_ref().unwrap().run.stall_count;
    assert_eq!((claim_run(&ctx).await.stall_count, stalls().await), (0, 0));
    // Found by a claim, by a claim of this very run, and by a sweep.
    ctx.advance_ms(LEASE_MS + 1).await;
    assert_eq!(claim_run(&ctx).await.stall_count, 1);
    ctx.advance_ms(LEASE_MS + 1).await;
    let this = RunClaim { run: Some(run), ..claim_request(1) };
    assert_eq!(ctx.store.claim_runs(this).await.unwrap().runs[0].stall_count, 2);
    ctx.advance_ms(LEASE_MS + 1).await;
    ctx.sweep(SweepKind::Reap).await;
    assert_eq!(stalls().await, 3);
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.stall_count, 3);
    let keeps = RunCommit { lease_ms: Some(LEASE_MS), ..commit_of(&claimed, step(&["a"])) };
    commit_this(&ctx, keeps).await.unwrap();
    assert_eq!(stalls().await, 0, "every commit ends the count");
    ctx.advance_ms(LEASE_MS + 1).await;
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.stall_count, 1);
    // A commit of a lease that has run out and that nobody else got is made.
    ctx.advance_ms(LEASE_MS + 1).await;
    commit(&ctx, &claimed, RunStep { wake: Some(Due::Now), ..step(&["b"]) }).await.unwrap();
    assert_eq!(claim_run(&ctx).await.stall_count, 0);
}

async fn a_lease_that_a_message_took_away_is_not_counted(ctx: Ctx) {
    let run = created(&ctx).await;
    held(&ctx, run).await;
    send(&ctx, RunMessage { interrupts: true, ..message(run, "stop") }).await.unwrap();
    assert_eq!(claim_run(&ctx).await.stall_count, 0);
}

fn claim_with(engine: &str, bytes: u32) -> RunClaim {
    RunClaim { max: 10, history_bytes_max: bytes, ..RunClaim::new(worker_id(engine), vec![graph()]) }
}

/// The input and the entries that came with a claim.
async fn handed(ctx: &Ctx, claim: RunClaim) -> (ClaimedRun, Option<Bytes>, Vec<Bytes>) {
    let mut claimed = ctx.store.claim_runs(claim).await.unwrap().runs.remove(0);
    let (input, history) = (claimed.input.take(), std::mem::take(&mut claimed.history));
    (claimed, input, history)
}

fn goes_on(entries: &[&str]) -> RunStep {
    RunStep { wake: Some(Due::Now), ..step(entries) }
}

async fn a_history_comes_with_the_claim_of_another_engine(ctx: Ctx) {
    created(&ctx).await;
    let (claimed, input, history) = handed(&ctx, claim_with("one", 1_000)).await;
    assert_eq!((input, history), (Some("input".into()), vec![]), "a client created it");
    commit(&ctx, &claimed, goes_on(&["a", "b"])).await.unwrap();
    let (claimed, input, history) = handed(&ctx, claim_with("one", 1_000)).await;
    assert_eq!((input, history), (None, vec![]), "this engine has made the last commit");
    commit(&ctx, &claimed, goes_on(&["c"])).await.unwrap();
    let (claimed, input, history) = handed(&ctx, claim_with("two", 0)).await;
    assert_eq!((input, history), (None, vec![]), "it did not ask");
    assert_eq!(claimed.history_len, 3);
    let lease = RunMessage { interrupts: true, ..message(claimed.lease.run, "stop") };
    send(&ctx, lease).await.unwrap();
    let (claimed, input, history) = handed(&ctx, claim_with("two", 1_000)).await;
    assert_eq!((input, history), (Some("input".into()), vec![entry("a"), entry("b"), entry("c")]));
    commit(&ctx, &claimed, goes_on(&[])).await.unwrap();
    let (_, input, _) = handed(&ctx, claim_with("one", 1_000)).await;
    assert!(input.is_some(), "the other one is cold now");
}

async fn a_history_that_is_too_long_is_left_out(ctx: Ctx) {
    let run = created(&ctx).await;
    commit(&ctx, &held(&ctx, run).await, goes_on(&["a"])).await.unwrap();
    let exact = u32::try_from("input".len() + entry("a").len()).unwrap();
    for (bytes, fits) in [(exact - 1, false), (exact, true), (CLAIM_HISTORY_BYTES_MAX, true)] {
        let (_, input, history) = handed(&ctx, claim_with("other", bytes)).await;
        assert_eq!((input.is_some(), history.len()), (fits, usize::from(fits)), "{bytes}");
        send(&ctx, RunMessage { interrupts: true, ..message(run, "stop") }).await.unwrap();
    }
    let wrong = ctx.store.claim_runs(claim_with("other", CLAIM_HISTORY_BYTES_MAX + 1)).await;
    assert!(matches!(wrong, Err(Error::Limit { .. })), "{wrong:?}");
}

async fn a_history_of_a_segment_comes_without_what_was_before(ctx: Ctx) {
    let run = created(&ctx).await;
    let segment = RunSegment { kind: graph(), input: "2".into(), entries_before: 1 };
    let begins = RunStep { segment: Some(segment), ..goes_on(&["old", "new"]) };
    commit(&ctx, &held(&ctx, run).await, begins).await.unwrap();
    let exact = u32::try_from(1 + entry("new").len()).unwrap();
    let (claimed, input, history) = handed(&ctx, claim_with("other", exact)).await;
    assert_eq!((claimed.segment_from, input, history), (1, Some("2".into()), vec![entry("new")]));
    commit(&ctx, &claimed, goes_on(&["newer"])).await.unwrap();
    let (_, input, history) = handed(&ctx, claim_with("another", 1_000)).await;
    assert_eq!((input, history), (Some("2".into()), vec![entry("new"), entry("newer")]));
}

async fn all_histories_of_a_claim_are_bounded_together(ctx: Ctx) {
    for _ in 0..6 {
        let run = NewRun { input: vec![b' '; 1 << 20].into(), ..awake(&ctx) };
        create(&ctx, run).await.unwrap();
    }
    let runs = ctx.store.claim_runs(claim_with("other", CLAIM_HISTORY_BYTES_MAX)).await.unwrap().runs;
    let with: Vec<bool> = runs.iter().map(|run| run.input.is_some()).collect();
    assert_eq!(with, [true, true, true, true, false, false]);
}

fn values(value: &str) -> BTreeMap<String, Payload> {
    BTreeMap::from([("progress".to_owned(), Payload::new("application/json", value.to_owned()))])
}

async fn values_are_published_and_replaced(ctx: Ctx) {
    let mut run = awake(&ctx);
    run.step.published = Some(values("{\"of\": 3}"));
    create(&ctx, run.clone()).await.unwrap();
    let published = async || views(&ctx, &[run.id]).await.remove(0).unwrap().published.unwrap();
    assert_eq!(published().await, values("{\"of\": 3}"));
    commit(&ctx, &held(&ctx, run.id).await, goes_on(&["a"])).await.unwrap();
    assert_eq!(published().await, values("{\"of\": 3}"), "a step without values leaves them");
    let binary = BTreeMap::from([("b".to_owned(), Payload::new("image/png", vec![0, 255]))]);
    let replaces = RunStep { published: Some(binary.clone()), ..goes_on(&["b"]) };
    commit(&ctx, &held(&ctx, run.id).await, replaces).await.unwrap();
    assert_eq!(published().await, binary);
    let ends = RunStep { published: Some(BTreeMap::new()), state: RunState::Succeeded, ..step(&["end"]) };
    commit(&ctx, &held(&ctx, run.id).await, ends).await.unwrap();
    assert_eq!(published().await, BTreeMap::new());
    let brief = super::run_help::read(&ctx, run.id).await;
    assert_eq!((brief.published, brief.result), (None, None), "only who asks gets them");
}

async fn labels_are_replaced(ctx: Ctx) {
    let labels = |value: &str| BTreeMap::from([("tenant é".to_owned(), value.to_owned())]);
    let run = NewRun { labels: labels("one two\" "), ..awake(&ctx) };
    create(&ctx, run.clone()).await.unwrap();
    let claimed = held(&ctx, run.id).await;
    assert_eq!(claimed.labels, labels("one two\" "));
    commit(&ctx, &claimed, goes_on(&["a"])).await.unwrap();
    let claimed = held(&ctx, run.id).await;
    assert_eq!(claimed.labels, labels("one two\" "), "a step without labels leaves them");
    commit(&ctx, &claimed, RunStep { labels: Some(labels("")), ..goes_on(&["b"]) }).await.unwrap();
    let claimed = held(&ctx, run.id).await;
    assert_eq!(claimed.labels, labels(""));
    commit(&ctx, &claimed, RunStep { labels: Some(BTreeMap::new()), ..goes_on(&["c"]) }).await.unwrap();
    assert_eq!(views(&ctx, &[run.id]).await[0].as_ref().unwrap().run.labels, BTreeMap::new());
}

async fn results_and_values_that_cannot_be_meant_are_refused(ctx: Ctx) {
    let claimed = held(&ctx, created(&ctx).await).await;
    let payload = |bytes: usize| Payload::new("text/plain", vec![b'x'; bytes]);
    let label = |name: &str, value: &str| Some(BTreeMap::from([(name.to_owned(), value.to_owned())]));
    let result = |bytes| RunStep { result: Some(payload(bytes)), state: RunState::Failed, ..step(&["a"]) };
    let named = |name: &str| Some(BTreeMap::from([(name.to_owned(), payload(1))]));
    let halves: BTreeMap<String, Payload> =
        ["a", "b"].into_iter().map(|name| (name.to_owned(), payload(PUBLISHED_BYTES_MAX / 2))).collect();
    let many = (0..65).map(|n| (format!("{n}"), payload(1))).collect();
    let wrong = [
        RunStep { result: Some(payload(1)), ..step(&["a"]) },
        RunStep { error: Some("x".to_owned()), ..step(&["a"]) },
        RunStep { error: Some("x".repeat(4_097)), state: RunState::Failed, ..step(&["a"]) },
        result(usize::try_from(RESULT_BYTES_MAX).unwrap() + 1),
        RunStep { published: Some(many), ..step(&["a"]) },
        RunStep { published: Some(halves), ..step(&["a"]) },
        RunStep { published: named(""), ..step(&["a"]) },
        RunStep { published: named("a\n"), ..step(&["a"]) },
        RunStep { labels: label("", "x"), ..step(&["a"]) },
        RunStep { labels: label(&"x".repeat(65), "x"), ..step(&["a"]) },
        RunStep { labels: label("a", &"x".repeat(257)), ..step(&["a"]) },
        RunStep { labels: label("a", "b\u{1}"), ..step(&["a"]) },
        RunStep { labels: label("a\t", "b"), ..step(&["a"]) },
    ];
    for (n, wrong) in wrong.into_iter().enumerate() {
        let refused = refused_commit(&ctx, commit_of(&claimed, wrong)).await;
        assert!(matches!(refused, Error::Invalid { .. } | Error::Limit { .. }), "{n}: {refused:?}");
    }
    commit(&ctx, &claimed, result(usize::try_from(RESULT_BYTES_MAX).unwrap())).await.unwrap();
    let view = views(&ctx, &[claimed.lease.run]).await.remove(0).unwrap();
    assert_eq!(view.result.map(|result| result.bytes.len()), usize::try_from(RESULT_BYTES_MAX).ok());
}
