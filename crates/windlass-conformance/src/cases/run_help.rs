//! Short ways to say common things about runs.

use crate::ctx::{Ctx, worker_id};
use bytes::Bytes;
use windlass_core::Result;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::NewJob;
use windlass_core::name::Kind;
use windlass_core::store::{
    ClaimedRun, NewRun, RunClaim, RunCommit, RunCommitted, RunItem, RunMessage, RunRead, RunStep, RunView,
};

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
    NewRun { id, kind: graph(), name, definition, input: Bytes::new(), keep_ms: None, step: step(&["begun"]) }
}

pub(super) fn job_of(ctx: &Ctx, run: RunId) -> NewJob {
    ctx.job_with("q", |spec| spec.run = Some(run))
}

pub(super) fn claim_request(max: u32) -> RunClaim {
    RunClaim { engine: worker_id("engine"), kinds: vec![graph()], run: None, max, lease_ms: LEASE_MS }
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
    RunCommit { lease, history_len, inbox_to, lease_ms: None, step }
}

pub(super) async fn commit(ctx: &Ctx, claimed: &ClaimedRun, step: RunStep) -> Result<RunCommitted> {
    ctx.store.commit_runs(vec![commit_of(claimed, step)]).await.unwrap().remove(0)
}

pub(super) fn message(run: RunId, body: &str) -> RunMessage {
    RunMessage { run, body: body.to_owned(), interrupts: false, reopens: false, expected_history_len: None }
}

pub(super) async fn send(ctx: &Ctx, message: RunMessage) -> Result<()> {
    ctx.store.send_to_runs(vec![message]).await.unwrap().remove(0)
}

/// All there is to know about a run that is there.
pub(super) async fn read(ctx: &Ctx, run: RunId) -> RunView {
    let read = RunRead { run, definition: true, input: true, history_from: 0, history_max: 1_000 };
    ctx.store.read_runs(vec![read]).await.unwrap().remove(0).expect("the run is there")
}

/// The jobs whose ends are in the inbox of a claimed run.
pub(super) fn inbox_jobs(claimed: &ClaimedRun) -> Vec<JobId> {
    let job = |item: &RunItem| match item {
        RunItem::JobEnded(end) => Some(end.job),
        RunItem::Message { .. } => None,
    };
    claimed.inbox.iter().filter_map(job).collect()
}
