//! Ends of jobs and children whose items in the inbox cannot be read: they are looked up in the store.

use super::item::{job_ended, run_ended};
use super::kind::CodeState;
use crate::runs::Turn;
use std::collections::HashSet;
use windlass_core::Result;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::Job;
use windlass_core::store::{JobEnd, RunEnd, RunRead, RunState};
use windlass_core::time::Timestamp;
use windlass_durable::{CancelTarget, Item, ItemBody, OpenWork};

/// Jobs that are looked up in one call.
const JOBS_READ: usize = 100;

/// What the run waits for, without what has ended with one of `items`.
pub(super) fn open_targets(state: &CodeState, items: &[Item]) -> Vec<CancelTarget> {
    let known: HashSet<CancelTarget> = items.iter().filter_map(ended).collect();
    let open: Vec<_> = match &state.run {
        Some(run) => run.awaited(),
        None => {
            let OpenWork { jobs, children } = OpenWork::of(state.first, &state.history);
            let children = children.into_iter().map(|(run, _)| CancelTarget::Child(run));
            jobs.into_iter().map(CancelTarget::Job).chain(children).collect()
        }
    };
    open.into_iter().filter(|target| !known.contains(target)).collect()
}

/// The ends of those of these jobs and children that have ended.
pub(super) async fn lost_ends(open: Vec<CancelTarget>, turn: &Turn) -> Result<Vec<Item>> {
    let (mut jobs, mut lost) = (Vec::new(), Vec::new());
    for target in open {
        match target {
            CancelTarget::Job(job) => jobs.push(job),
            CancelTarget::Child(run) => lost.extend(lost_child(run, turn).await?),
        }
    }
    jobs.sort_unstable();
    for ids in jobs.chunks(JOBS_READ) {
        let stored = turn.jobs(ids).await?;
        lost.extend(
            ids.iter().zip(stored).filter_map(|(id, job)| lost_job(turn.claimed().lease.run, *id, job, turn.now())),
        );
    }
    lost.sort_by_key(|item| item.at);
    Ok(lost)
}

fn ended(item: &Item) -> Option<CancelTarget> {
    match &item.body {
        ItemBody::JobEnded { job, .. } => Some(CancelTarget::Job(*job)),
        ItemBody::ChildEnded { run, .. } => Some(CancelTarget::Child(*run)),
        _ => None,
    }
}

/// How a job has ended; `None` when it has not.
fn lost_job(run: RunId, id: JobId, stored: Option<Job>, now: Timestamp) -> Option<Item> {
    let outputs = Default::default();
    let end = match stored.filter(|job| job.spec.run == Some(run)) {
        None => {
            let error = Some("its job is not in the store".to_owned());
            JobEnd {
                job: id,
                state: None,
                attempt: 0,
                claimed_at: None,
                at: now,
                error,
                class: None,
                detail: None,
                outputs,
                result: None,
            }
        }
        Some(job) if job.state.is_terminal() => {
            let Job { state, attempt, claimed_at, finished_at, failures, result, .. } = job;
            let last = failures.into_iter().next_back();
            let detail = last.as_ref().and_then(|last| last.detail.clone());
            let (error, class) = last.map(|last| (last.message, last.class)).unzip();
            let (state, at) = (Some(state), finished_at.unwrap_or(now));
            JobEnd { job: id, state, attempt, claimed_at, at, error, class, detail, outputs, result }
        }
        Some(_) => return None,
    };
    Some(Item { number: None, at: end.at, body: job_ended(end) })
}

/// How a child has ended; `None` when it has not.
async fn lost_child(run: RunId, turn: &Turn) -> Result<Option<Item>> {
    let view = turn.read(RunRead { result: true, ..RunRead::brief(run) }).await?;
    let end = match view {
        None => {
            let error = Some("the child run is not in the store".to_owned());
            RunEnd { run, state: RunState::Failed, at: turn.now(), result: None, error }
        }
        Some(view) if view.run.state.is_terminal() => {
            let at = view.run.finished_at.unwrap_or(turn.now());
            RunEnd { run, state: view.run.state, at, result: view.result, error: view.run.error }
        }
        Some(_) => return Ok(None),
    };
    Ok(Some(Item { number: None, at: end.at, body: run_ended(end) }))
}
