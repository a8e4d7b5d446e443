//! Workers: who is there and what they can do.

use super::queue::{BATCH_MAX, Kinds};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::name::{Labels, QueueName, WORKER_LABELS_MAX, WorkerId};
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The workers that are there.
#[async_trait]
pub trait WorkerRegistry: Send + Sync + 'static {
    /// A worker says that it lives; the first beat registers it.
    async fn heartbeat(&self, beat: Beat) -> Result<BeatAnswer>;

    /// A worker says that it leaves. Leaving twice is fine. Its leases stay until they run out or are reported.
    async fn deregister(&self, worker: WorkerId) -> Result<()>;

    /// All that have not left, live or not, by id.
    async fn workers(&self) -> Result<Vec<WorkerStatus>>;
}

/// What a worker says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Who.
    pub worker: WorkerId,
    /// Where it looks for work.
    pub queues: Vec<QueueName>,
    /// What it has handlers for.
    pub kinds: Kinds,
    /// What it offers.
    pub labels: Labels,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many it runs now.
    pub running: u32,
    /// Host, process id, version: anything that helps an operator.
    pub about: String,
    /// It counts as dead when it has not been heard of for so long.
    pub ttl_ms: u64,
}

/// The longest time without a beat that a worker may ask for: one day.
const TTL_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// The longest text about a worker, in bytes.
const ABOUT_BYTES_MAX: usize = 4_096;

impl Beat {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if self.labels.len() > WORKER_LABELS_MAX {
            return Err(Error::limit("labels", WORKER_LABELS_MAX as u64, self.labels.len() as u64));
        }
        if self.about.len() > ABOUT_BYTES_MAX {
            return Err(Error::limit("about, in bytes,", ABOUT_BYTES_MAX as u64, self.about.len() as u64));
        }
        let kinds = if let Kinds::Only(kinds) = &self.kinds { kinds.len() } else { 0 };
        if kinds.max(self.queues.len()) > BATCH_MAX {
            return Err(Error::limit("kinds or queues", BATCH_MAX as u64, kinds.max(self.queues.len()) as u64));
        }
        match self.ttl_ms {
            0 => Err(Error::invalid("ttl_ms", "is 0; say after how long of silence the worker counts as dead")),
            1..=TTL_MS_MAX => Ok(()),
            ms => Err(Error::limit("ttl_ms", TTL_MS_MAX, ms)),
        }
    }
}

/// What the store tells a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeatAnswer {
    /// Its active jobs that were cancelled.
    pub cancelled: Vec<JobId>,
}

/// A worker as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// What it said last.
    pub beat: Beat,
    /// When it came.
    pub since: Timestamp,
    /// When it was last heard of; a beat that says nothing new may be noted only when a third of its time has passed.
    pub seen_at: Timestamp,
    /// It was heard of recently enough.
    pub live: bool,
}
