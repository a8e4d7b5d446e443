//! What the history does not have: the jobs of calls and the runs of children, as far as the store still has them.

use super::operation::{CallJob, ChildRun, Operation, OperationState};
use crate::error::OperateError;
use crate::explain::sentence;
use std::collections::HashMap;
use windlass::core::id::{JobId, RunId};
use windlass::core::job::{Job, State};
use windlass::core::store::{BATCH_MAX, RunRead, Store};
use windlass::core::time::Timestamp;

/// Jobs of one call; they come with their payloads.
const JOBS_PER_CALL: usize = 500;
/// Waiting jobs that are explained.
const EXPLAINED_MAX: usize = 20;
/// Jobs that are looked up: those of open calls first, and then those of the last calls.
const JOBS_MAX: usize = 2_000;

/// Adds the jobs of calls.
pub(super) async fn add_jobs(
    store: &dyn Store,
    operations: &mut [Operation],
    now: Timestamp,
) -> Result<(), OperateError> {
    let calls = |is_open: bool| {
        let is_wanted = move |row: &&Operation| (row.state == OperationState::Open) == is_open;
        operations.iter().filter(is_wanted).filter_map(|row| row.job_id)
    };
    let mut ids: Vec<JobId> = calls(true).take(JOBS_MAX).collect();
    let ended: Vec<JobId> = calls(false).collect();
    ids.extend(ended.into_iter().rev().take(JOBS_MAX - ids.len()));
    let mut jobs = HashMap::with_capacity(ids.len());
    for some in ids.chunks(JOBS_PER_CALL) {
        let read = store.get(some.to_vec()).await?.into_iter().flatten();
        jobs.extend(read.map(|job| (job.id, call_job(&job))));
    }
    let mut explained = 0;
    for operation in operations {
        let Some(id) = operation.job_id else { continue };
        let Some(mut job) = jobs.remove(&id) else { continue };
        let waits = matches!(job.state, State::Scheduled | State::Ready) && operation.state == OperationState::Open;
        if waits && explained < EXPLAINED_MAX {
            explained += 1;
            // The job may have been removed since.
            job.reason = store.explain(id).await.ok().map(|explanation| sentence(&explanation, now));
        }
        operation.job = Some(job);
    }
    Ok(())
}

fn call_job(job: &Job) -> CallJob {
    CallJob {
        queue: job.spec.queue.to_string(),
        state: job.state,
        attempt: job.attempt,
        attempts_max: job.spec.attempts,
        reason: None,
        last_error: job.failures.last().map(|failure| failure.message.clone()),
        next_attempt_at: job.due_at.filter(|_| job.state == State::Scheduled),
        claimed_at: job.claimed_at,
        finished_at: job.finished_at,
    }
}

/// Adds the runs of children.
pub(super) async fn add_children(store: &dyn Store, operations: &mut [Operation]) -> Result<(), OperateError> {
    let ids: Vec<RunId> = operations.iter().filter_map(|operation| operation.run_id).collect();
    let mut runs = HashMap::with_capacity(ids.len());
    for some in ids.chunks(BATCH_MAX) {
        let views = store.read_runs(some.iter().map(|id| RunRead::brief(*id)).collect()).await?;
        runs.extend(views.into_iter().flatten().map(|view| (view.run.id, view.run)));
    }
    for operation in operations {
        let run = operation.run_id.and_then(|id| runs.get(&id));
        operation.child = run.map(|run| ChildRun {
            kind: run.kind.to_string(),
            state: run.state,
            stuck: run.stuck.clone(),
            summary: run.summary.clone(),
        });
    }
    Ok(())
}
