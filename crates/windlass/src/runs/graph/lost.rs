//! Ends of jobs that no inbox has: the job is not in the store, or it ended without an item in the inbox of its run.
//!
//! No step of this version leaves such a run. Earlier versions could, and so can damage to an inbox. Nothing else would ever end
//! these instances, so an engine looks for their jobs when it has rebuilt a run from its history, and when an inbox has items that
//! cannot be read.

use super::message::{Occurred, asks_for_check, happened, job_ended};
use super::state::GraphState;
use super::steps::{Inbox, JOBS_MAX};
use crate::runs::kind::Turn;
use crate::runs::retry::retried;
use std::collections::HashSet;
use windlass_core::Result;
use windlass_core::graph::{End, Happened, Outcome};
use windlass_core::id::{JobId, RunId};
use windlass_core::job::Job;
use windlass_core::store::{InboxItem, JobEnd, RunItem, RunRead};
use windlass_core::time::Timestamp;

/// Jobs that are looked up in one call.
const JOBS_READ: usize = 100;

/// What has happened to a claimed run, with the ends of jobs that its inbox does not have.
pub(super) async fn whole_inbox(state: &mut GraphState, turn: &mut Turn) -> Result<Inbox> {
    let lost = lost_ends(state, turn).await?;
    let check_again = lost.is_none();
    let mut items: Vec<Occurred> = turn.take_inbox().into_iter().filter_map(happened).collect();
    items.extend(lost.unwrap_or_default());
    let has_more = state.is_late(turn.now()) && !has_whole_inbox(turn).await?;
    Ok(Inbox { items, has_more, check_again })
}

/// The ends of a claimed run's jobs that its inbox does not have; `None` when they cannot be known yet, and have to be looked up
/// after the next claim.
async fn lost_ends(state: &mut GraphState, turn: &Turn) -> Result<Option<Vec<Occurred>>> {
    let claimed = turn.claimed();
    let mut ended = claimed.inbox.iter().filter_map(ended_job).peekable();
    // A short run that goes on has not lost anything: only decisions of several commits could leave a job out.
    let rebuilt = state.jobs_unchecked && (ended.peek().is_none() || claimed.history_len > JOBS_MAX as u64);
    let has_unreadable = claimed.inbox_taken > claimed.inbox.len() as u64;
    if !rebuilt && !has_unreadable && !claimed.inbox.iter().any(asks_for_check) {
        // From here on the jobs of this run are those that this engine has started.
        state.jobs_unchecked = false;
        return Ok(Some(Vec::new()));
    }
    let ended: HashSet<JobId> = ended.collect();
    let open: Vec<JobId> = state.progress.running_jobs().filter(|job| !ended.contains(job)).collect();
    let mut lost = Vec::new();
    for ids in open.chunks(JOBS_READ) {
        let jobs = retried(|| turn.store().get(ids.to_vec())).await?;
        lost.extend(ids.iter().zip(jobs).filter_map(|(id, job)| lost_end(state.run, *id, job, turn.now())));
    }
    // A job may have ended after the claim, and may be removed already: then its end is in the inbox by now, and the next claim
    // returns it.
    if !lost.is_empty() && !has_whole_inbox(turn).await? {
        return Ok(None);
    }
    state.jobs_unchecked = false;
    Ok(Some(lost))
}

fn ended_job(found: &InboxItem) -> Option<JobId> {
    match &found.item {
        RunItem::JobEnded(end) => Some(end.job),
        _ => None,
    }
}

/// Whether the claim returned everything that is in the inbox now.
async fn has_whole_inbox(turn: &Turn) -> Result<bool> {
    let claimed = turn.claimed();
    let read = || turn.store().read_runs(vec![RunRead::brief(claimed.lease.run)]);
    let view = retried(read).await?.pop().flatten();
    Ok(view.is_some_and(|view| view.run.inbox_len == claimed.inbox_taken))
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
    let end = || JobEnd {
        job: id,
        state: Some(state),
        attempt,
        claimed_at,
        at,
        error,
        class: None,
        detail: None,
        outputs,
        result: None,
    };
    state.is_terminal().then(|| job_ended(end()))
}
