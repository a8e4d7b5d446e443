//! Short ways to say common things about runs.

use crate::ctx::{Ctx, worker_id};
use bytes::Bytes;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Due, NewJob};
use windlass_core::name::Kind;
use windlass_core::store::{
    ClaimedRun, InboxItem, NewRun, RunClaim, RunCommit, RunCommitted, RunCreated, RunItem, RunMessage, RunRead,
    RunStep, RunView,
};
use windlass_core::{Error, Result};

/// The lease of an engine: short, because some stores let time pass by waiting.
pub(super) const LEASE_MS: u64 = 400;

pub(super) fn graph() -> Kind {
    Kind::new("graph").unwrap()
}

pub(super) fn entry(text: &str) -> Bytes {
    Bytes::from(format!("{{\"event\":\"{text}\"}}"))
}

/// A step with these entries.
pub(super) fn step(entries: &[&str]) -> RunStep {
    RunStep { history: entries.iter().map(|text| entry(text)).collect(), ..RunStep::nothing() }
}

pub(super) fn new_run(ctx: &Ctx, name: &str) -> NewRun {
    let definition = Bytes::from_static(b"{\"nodes\":[]}");
    let (id, name) = (ctx.ids.next_run(), name.to_owned());
    NewRun { name, definition, input: Bytes::new(), step: step(&["begun"]), ..NewRun::new(id, graph()) }
}

pub(super) fn job_of(ctx: &Ctx, run: RunId) -> NewJob {
    ctx.job_with("q", |spec| spec.run = Some(run))
}

pub(super) fn claim_request(max: u32) -> RunClaim {
    RunClaim { max, lease_ms: LEASE_MS, ..RunClaim::new(worker_id("engine"), vec![graph()]) }
}

pub(super) async fn claim_runs(ctx: &Ctx, max: u32) -> Vec<ClaimedRun> {
    ctx.store.claim_runs(claim_request(max)).await.unwrap().runs
}

pub(super) async fn claim_run(ctx: &Ctx) -> ClaimedRun {
    let mut runs = claim_runs(ctx, 10).await;
    assert_eq!(runs.len(), 1, "one run has something to do");
    runs.remove(0)
}

pub(super) fn commit_of(claimed: &ClaimedRun, step: RunStep) -> RunCommit {
    let &ClaimedRun { lease, history_len, inbox_to, .. } = claimed;
    RunCommit { inbox_to, ..RunCommit::new(lease, history_len, step) }
}

pub(super) async fn commit(ctx: &Ctx, claimed: &ClaimedRun, step: RunStep) -> Result<RunCommitted> {
    ctx.store.commit_runs(vec![commit_of(claimed, step)]).await.unwrap().remove(0)
}

pub(super) fn message(run: RunId, body: &str) -> RunMessage {
    RunMessage::new(run, body)
}

pub(super) async fn send(ctx: &Ctx, message: RunMessage) -> Result<()> {
    ctx.store.send_to_runs(vec![message]).await.unwrap().remove(0)
}

/// All there is to know about a run that is there.
pub(super) async fn read(ctx: &Ctx, run: RunId) -> RunView {
    let read = RunRead { definition: true, input: true, history_max: 1_000, ..RunRead::brief(run) };
    ctx.store.read_runs(vec![read]).await.unwrap().remove(0).expect("the run is there")
}

/// The jobs whose ends are in the inbox of a claimed run.
pub(super) fn inbox_jobs(claimed: &ClaimedRun) -> Vec<JobId> {
    let job = |found: &InboxItem| match &found.item {
        RunItem::JobEnded(end) => Some(end.job),
        _ => None,
    };
    claimed.inbox.iter().filter_map(job).collect()
}

/// What is in an inbox, in short.
pub(super) fn texts(inbox: &[InboxItem]) -> Vec<String> {
    let text = |found: &InboxItem| match &found.item {
        RunItem::JobEnded(_) => "job ended".to_owned(),
        RunItem::Message { body, .. } => body.clone(),
        RunItem::RunEnded(end) => format!("run {}", end.state.name()),
        RunItem::ChildRefused { .. } => "child refused".to_owned(),
    };
    inbox.iter().map(text).collect()
}

/// A run that is claimed when it is created, with no entry.
pub(super) fn awake(ctx: &Ctx) -> NewRun {
    let id = ctx.ids.next_run();
    NewRun { step: RunStep { wake: Some(Due::Now), ..RunStep::nothing() }, ..NewRun::new(id, graph()) }
}

pub(super) async fn create(ctx: &Ctx, run: NewRun) -> Result<RunCreated> {
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0)
}

/// A new run that is claimed.
pub(super) async fn claimed(ctx: &Ctx) -> ClaimedRun {
    let run = awake(ctx);
    let id = run.id;
    create(ctx, run).await.unwrap();
    claim_by_id(ctx, id).await.expect("it is free")
}

pub(super) async fn claim_by_id(ctx: &Ctx, run: RunId) -> Option<ClaimedRun> {
    let request = RunClaim { run: Some(run), lease_ms: 60_000, ..claim_request(1) };
    ctx.store.claim_runs(request).await.unwrap().runs.pop()
}

/// Makes a commit as it is.
pub(super) async fn commit_this(ctx: &Ctx, commit: RunCommit) -> Result<RunCommitted> {
    ctx.store.commit_runs(vec![commit]).await.unwrap().remove(0)
}

/// All that readers see of runs: everything that a refused call must leave as it is.
pub(super) async fn views(ctx: &Ctx, runs: &[RunId]) -> Vec<Option<RunView>> {
    let read = |run: &RunId| RunRead {
        definition: true,
        input: true,
        history_max: 1_000,
        published: true,
        result: true,
        ..RunRead::brief(*run)
    };
    ctx.store.read_runs(runs.iter().map(read).collect()).await.unwrap()
}

/// Makes a commit that must be refused, and checks that it changed nothing of the run and nothing in the feed.
pub(super) async fn refused_commit(ctx: &Ctx, commit: RunCommit) -> Error {
    let run = commit.lease.run;
    let (before, feed) = (views(ctx, &[run]).await, ctx.feed_end().await);
    let error = commit_this(ctx, commit).await.expect_err("the commit is refused");
    assert_eq!(views(ctx, &[run]).await, before, "{error:?} changes nothing");
    assert_eq!(ctx.feed_after(feed).await, [], "{error:?}");
    error
}

/// Makes a message that must be refused, and checks that it changed nothing of the run and nothing in the feed.
pub(super) async fn refused_message(ctx: &Ctx, message: RunMessage) -> Error {
    let run = message.run;
    let (before, feed) = (views(ctx, &[run]).await, ctx.feed_end().await);
    let error = send(ctx, message).await.expect_err("the message is refused");
    assert_eq!(views(ctx, &[run]).await, before, "{error:?} changes nothing");
    assert_eq!(ctx.feed_after(feed).await, [], "{error:?}");
    error
}
