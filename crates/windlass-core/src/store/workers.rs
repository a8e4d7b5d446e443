//! Workers: who is there and what they can do.

use super::queue::Kinds;
use crate::error::Result;
use crate::id::JobId;
use crate::name::{Labels, QueueName, WorkerId};
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
