//! What is known of a store at one moment: all that the view shows, and what `--json` prints.

use serde::Serialize;
use windlass::core::id::JobId;
use windlass::core::job::JobSummary;
use windlass::core::name::QueueName;
use windlass::core::store::{QueueCounts, QueueSettings, QueueStatus, WorkerStatus};
use windlass::core::time::Timestamp;

/// What happens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) enqueued: f64,
    /// Ended well.
    pub(super) succeeded: f64,
    /// Attempts that went wrong, and leases that ran out.
    pub(super) went_wrong: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct QueueLine {
    pub(super) name: QueueName,
    pub(super) counts: QueueCounts,
    pub(super) rates: Rates,
    pub(super) settings: QueueSettings,
}

impl QueueLine {
    pub(super) fn new(status: QueueStatus, rates: Rates) -> Self {
        Self { name: status.name, counts: status.counts, rates, settings: status.settings }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkerLine {
    pub(super) id: String,
    pub(super) live: bool,
    pub(super) running: u32,
    pub(super) slots: u32,
    pub(super) seen_ms_ago: u64,
    pub(super) queues: Vec<String>,
    pub(super) labels: Vec<String>,
    pub(super) about: String,
}

impl WorkerLine {
    pub(super) fn new(status: &WorkerStatus, now: Timestamp) -> Self {
        let beat = &status.beat;
        Self {
            id: beat.worker.to_string(),
            live: status.live,
            running: beat.running,
            slots: beat.slots,
            seen_ms_ago: now.ms_since(status.seen_at),
            queues: beat.queues.iter().map(ToString::to_string).collect(),
            labels: beat.labels.iter().map(ToString::to_string).collect(),
            about: beat.about.clone(),
        }
    }
}

/// Failed jobs with the same error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FailureLine {
    pub(super) queue: QueueName,
    pub(super) kind: String,
    pub(super) error: String,
    /// Among the jobs that were looked at.
    pub(super) count: u64,
    /// The last of them.
    pub(super) last_job: JobId,
    pub(super) last_ms_ago: u64,
}

/// Groups failed jobs by what went wrong, the latest first.
pub(super) fn group(jobs: &[JobSummary], now: Timestamp) -> Vec<FailureLine> {
    let mut lines: Vec<FailureLine> = Vec::new();
    for job in jobs {
        let error = job.last_error.as_deref().unwrap_or("").lines().next().unwrap_or("").to_owned();
        let ago = job.finished_at.map_or(0, |at| now.ms_since(at));
        let same =
            |line: &&mut FailureLine| line.queue == job.queue && line.kind == job.kind.as_str() && line.error == error;
        match lines.iter_mut().find(same) {
            Some(line) => {
                line.count += 1;
                if ago < line.last_ms_ago {
                    (line.last_ms_ago, line.last_job) = (ago, job.id);
                }
            }
            None => lines.push(FailureLine {
                queue: job.queue.clone(),
                kind: job.kind.to_string(),
                error,
                count: 1,
                last_job: job.id,
                last_ms_ago: ago,
            }),
        }
    }
    lines.sort_by_key(|line| line.last_ms_ago);
    lines
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) at: Timestamp,
    /// Its URL, without what nobody should read.
    pub(super) store: String,
    pub(super) durability: String,
    pub(super) rates: Rates,
    /// Jobs that ended per second, the last whole second last.
    pub(super) ended: Vec<u64>,
    pub(super) queues: Vec<QueueLine>,
    pub(super) workers: Vec<WorkerLine>,
    pub(super) failures: Vec<FailureLine>,
    /// Failed jobs that were looked at for this.
    pub(super) failures_seen: u64,
}
