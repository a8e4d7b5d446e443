//! Ends of jobs that no inbox has: the job is not in the store, or it ended without an item in the inbox of its run.
//!
//! No step of this version leaves such a run. Earlier versions could, and so can damage to an inbox. Nothing else would ever end
//! these instances, so an engine looks for their jobs when it has rebuilt a run from its history, and when an inbox has items that
//! cannot be read.

use super::message::{Occurred, asks_for_check, job_ended};
use super::mind::{JOBS_MAX, Mind};
use super::retry::retried;
use std::collections::HashSet;
use windlass_core::Result;
use windlass_core::graph::{End, Happened, Outcome};
use windlass_core::id::{JobId, RunId};
use windlass_core::job::Job;
use windlass_core::store::{ClaimedRun, JobEnd, RunItem, RunRead, Store};
use windlass_core::time::Timestamp;

/// Jobs that are looked up in one call.
const JOBS_READ: usize = 100;

/// The ends of a claimed run's jobs that its inbox does not have; `None` when they cannot be known yet, and the engine of the
/// next claim has to look again.
pub(super) async fn lost_ends(
    store: &dyn Store,
    claimed: &ClaimedRun,
    mind: &mut Mind,
    now: Timestamp,
) -> Result<Option<Vec<Occurred>>> {
    let ended: HashSet<JobId> = claimed.inbox.iter().filter_map(ended_job).collect();
    // A short run that goes on has not lost anything: only decisions of several commits could leave a job out.
    let rebuilt = mind.jobs_unchecked && (ended.is_empty() || mind.history_len > JOBS_MAX as u64);
    let has_unreadable = claimed.inbox_len > claimed.inbox.len() as u64;
    if !rebuilt && !has_unreadable && !claimed.inbox.iter().any(asks_for_check) {
        return Ok(Some(Vec::new()));
    }
    let open: Vec<JobId> = mind.progress.running_jobs().filter(|job| !ended.contains(job)).collect();
    let mut lost = Vec::new();
    for ids in open.chunks(JOBS_READ) {
        let jobs = retried(|| store.get(ids.to_vec())).await?;
        lost.extend(ids.iter().zip(jobs).filter_map(|(id, job)| lost_end(mind.run, *id, job, now)));
    }
    // A job may have ended after the claim, and may be removed already: then its end is in the inbox by now, and the next claim
    // hands it out.
    if !lost.is_empty() && !has_whole_inbox(store, claimed).await? {
        return Ok(None);
    }
    mind.jobs_unchecked = false;
    Ok(Some(lost))
}

fn ended_job(item: &RunItem) -> Option<JobId> {
    match item {
        RunItem::JobEnded(end) => Some(end.job),
        RunItem::Message { .. } => None,
    }
}

/// Whether the claim handed out everything that is in the inbox now.
pub(super) async fn has_whole_inbox(store: &dyn Store, claimed: &ClaimedRun) -> Result<bool> {
    let read = || store.read_runs(vec![RunRead::brief(claimed.lease.run)]);
    let view = retried(read).await?.pop().flatten();
    Ok(view.is_some_and(|view| view.run.inbox_len == claimed.inbox_len))
}

/// How an open instance has ended whose job is `stored`; `None` when the job will end by itself.
fn lost_end(run: RunId, id: JobId, stored: Option<Job>, now: Timestamp) -> Option<Occurred> {
    let Some(job) = stored.filter(|job| job.spec.run == Some(run) || job.quarantined.is_some()) else {
        let error = Some("its job is not in the store".to_owned());
        let end = End { outcome: Outcome::Failed, error, outputs: Default::default() };
        return Some((now, Happened::JobEnded { job: id, end }));
    };
    let Job { state, attempt, claimed_at, finished_at, mut failures, outputs, .. } = job;
    let error = failures.pop().map(|failure| failure.message);
    let at = finished_at.unwrap_or(now);
    let end = || JobEnd { job: id, state: Some(state), attempt, claimed_at, at, error, outputs };
    state.is_terminal().then(|| job_ended(end()))
}
