//! The state of a store at one moment, as `windlass top` shows it and its `--json` prints it.

use serde::Serialize;
use windlass::core::id::JobId;
use windlass::core::job::JobSummary;
use windlass::core::name::QueueName;
use windlass::core::store::{QueueCounts, QueueSettings, QueueStatus, WorkerStatus};
use windlass::core::time::Timestamp;

/// Events per second, as the mean of the last five whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Jobs that were enqueued.
    pub enqueued: f64,
    /// Jobs that succeeded.
    pub succeeded: f64,
    /// Attempts that failed, and leases that expired.
    pub went_wrong: f64,
}

/// A queue.
#[derive(Clone, Debug, Serialize)]
pub struct QueueLine {
    /// The name of the queue.
    pub name: QueueName,
    /// How many jobs it has in each state.
    pub counts: QueueCounts,
    /// Its rates.
    pub rates: Rates,
    /// Its settings.
    pub settings: QueueSettings,
}

impl QueueLine {
    pub(super) fn new(status: QueueStatus, rates: Rates) -> Self {
        Self { name: status.name, counts: status.counts, rates, settings: status.settings }
    }
}

/// A worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerLine {
    /// The id of the worker.
    pub id: String,
    /// Whether its heartbeats arrive.
    pub live: bool,
    /// Jobs that it runs.
    pub running: u32,
    /// Jobs that it can run at once.
    pub slots: u32,
    /// The age of its last heartbeat.
    pub seen_ms_ago: u64,
    /// The queues that it claims from.
    pub queues: Vec<String>,
    /// The labels that it offers.
    pub labels: Vec<String>,
    /// Its own description of itself.
    pub about: String,
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
pub struct FailureLine {
    /// The queue of the jobs.
    pub queue: QueueName,
    /// The kind of the jobs.
    pub kind: String,
    /// The first line of the error.
    pub error: String,
    /// How many of the jobs that were read have this error.
    pub count: u64,
    /// The job that failed last.
    pub last_job: JobId,
    /// How long ago it failed.
    pub last_ms_ago: u64,
}

/// Groups failed jobs by queue, kind and error; the latest come first.
pub(super) fn group_failures(jobs: &[JobSummary], now: Timestamp) -> Vec<FailureLine> {
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

/// The state of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// When it was taken, by the store's clock.
    pub at: Timestamp,
    /// The URL of the store, without passwords.
    pub store: String,
    /// The kind of store, and what it survives.
    pub durability: String,
    /// The rates of all queues together.
    pub rates: Rates,
    /// Jobs that ended in each second; the last whole second comes last.
    pub ended: Vec<u64>,
    /// The queues.
    pub queues: Vec<QueueLine>,
    /// The workers.
    pub workers: Vec<WorkerLine>,
    /// Failed jobs by their error, from a sample of the queues with most of them.
    pub failures: Vec<FailureLine>,
    /// The size of that sample.
    pub failures_seen: u64,
}
