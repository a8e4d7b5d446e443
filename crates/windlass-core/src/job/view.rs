//! What the outside sees of a job.

use super::machine::State;
use super::spec::{JobSpec, PROGRESS_BYTES_MAX};
use crate::error::{Error, Result};
use crate::id::{JobId, Token};
use crate::name::{GroupName, Kind, QueueName, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The proof of an exclusive claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// Which attempt it is; the first is 1.
    pub attempt: u32,
    /// Random; whoever has it may speak for this attempt.
    pub token: Token,
}

/// Who holds a job and until when; the token stays secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Who.
    pub worker: WorkerId,
    /// Until when, by the store's clock.
    pub expires_at: Timestamp,
}

/// How an attempt went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The handler returned an error.
    Error,
    /// The handler panicked.
    Panic,
    /// The attempt took longer than its timeout.
    Timeout,
    /// The lease ran out: the worker died, froze, or lost the store.
    Stalled,
    /// The worker gave the job back after it had started it.
    Released,
    /// The stored job cannot be read.
    Quarantined,
}

/// One attempt that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// How.
    pub class: FailureClass,
    /// In words.
    pub message: String,
    /// In which attempt.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// A value that the handler attached to its error: at most [`FAILURE_DETAIL_BYTES_MAX`] bytes of JSON. A larger one is left
    /// out, and the message says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
}

/// How far a handler says it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: u8,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Progress {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if self.percent > 100 {
            return Err(Error::limit("progress.percent", 100, u64::from(self.percent)));
        }
        if self.message.len() > PROGRESS_BYTES_MAX {
            let got = self.message.len() as u64;
            return Err(Error::limit("progress.message, in bytes,", PROGRESS_BYTES_MAX as u64, got));
        }
        Ok(())
    }
}

/// Failures that are kept of a job.
pub const FAILURES_MAX: usize = 10;
/// The longest failure message that is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The largest detail of a failure, in bytes of JSON.
pub const FAILURE_DETAIL_BYTES_MAX: usize = 16 << 10;

impl Failure {
    /// An error without detail, of an attempt and a time that the store sets.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), attempt: 0, at: Timestamp::from_ms(0), detail: None }
    }

    /// Cuts a message that is too long to be kept, at a character boundary, and leaves out a detail that is too large.
    pub fn cut(&mut self) {
        self.cut_message();
        let bytes = self.detail.as_ref().map_or(0, |detail| detail.to_string().len());
        if bytes > FAILURE_DETAIL_BYTES_MAX {
            self.detail = None;
            let note =
                format!(" (its detail of {bytes} bytes was left out: at most {FAILURE_DETAIL_BYTES_MAX} are kept)");
            self.message.push_str(&note);
        }
    }

    fn cut_message(&mut self) {
        let text = &mut self.message;
        if text.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
    }
}

/// All there is to know about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What it was asked to be; priority and payload as they were last changed.
    pub spec: Arc<JobSpec>,
    /// Where it stands.
    pub state: State,
    /// Attempts spent, the running one included.
    pub attempt: u32,
    /// Leases that ran out.
    pub stall_count: u32,
    /// Explicit retries after it had ended.
    pub retry_count: u32,
    /// When a scheduled job becomes ready; `None` while it is held behind another.
    pub due_at: Option<Timestamp>,
    /// Who works on it.
    pub lease: Option<LeaseView>,
    /// Its cancel was acknowledged and its handler is being told.
    pub cancel_requested: bool,
    /// How far its handler says it is.
    pub progress: Option<Progress>,
    /// What its handler returned.
    pub result: Option<Payload>,
    /// Named values for whoever comes after it.
    pub outputs: BTreeMap<String, String>,
    /// The last attempts that went wrong, oldest first.
    pub failures: Vec<Failure>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why its stored form cannot be read; such a job is never claimed.
    pub quarantined: Option<String>,
}

/// A job in a listing: no payload, no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// Its kind.
    pub kind: Kind,
    /// Its group.
    pub group: Option<GroupName>,
    /// The id its creator gave it.
    pub custom_id: Option<String>,
    /// Where it stands.
    pub state: State,
    /// Lower first.
    pub priority: i16,
    /// Attempts spent.
    pub attempt: u32,
    /// Attempts it may spend.
    pub attempts_max: u32,
    /// When a scheduled job becomes ready.
    pub due_at: Option<Timestamp>,
    /// Who works on it.
    pub worker: Option<WorkerId>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Its stored form cannot be read.
    pub quarantined: bool,
}
