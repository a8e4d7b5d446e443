//! Steps of runs, and the commits that make them.

use super::messages::RunMessage;
use super::queue::{check_batch, check_lease_ms};
use super::runs::{
    NewRun, RUN_ENTRY_BYTES_MAX, RUN_PART_BYTES_MAX, RUN_TEXT_BYTES_MAX, RunLease, RunState, check_bytes,
};
use super::wire;
use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::job::{Due, NewJob, RESULT_BYTES_MAX};
use crate::name::Kind;
use crate::payload::Payload;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most labels of a run.
pub const RUN_LABELS_MAX: usize = 16;
/// The longest name of a label of a run, in bytes.
pub const RUN_LABEL_NAME_BYTES_MAX: usize = 64;
/// The longest value of a label of a run, in bytes.
pub const RUN_LABEL_VALUE_BYTES_MAX: usize = 256;
/// The most values that a run publishes.
pub const PUBLISHED_MAX: usize = 64;
/// The most bytes of the values that a run publishes, with their names and content types.
pub const PUBLISHED_BYTES_MAX: usize = 256 << 10;

/// What an engine decided about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStep {
    /// What is added to the history.
    #[serde(default, with = "wire::base64_list")]
    pub history: Vec<Bytes>,
    /// Jobs of the run to enqueue, all or none. They name the run, and have neither a dedup key nor an id of their own
    /// choosing. A queue's maximum length does not count for them: it holds off new work, and this is work that has begun.
    #[serde(default)]
    pub jobs: Vec<NewJob>,
    /// Jobs of the run to cancel, after `jobs` were enqueued; those that have ended are left alone.
    #[serde(default)]
    pub cancel: Vec<JobId>,
    /// Jobs of the run to cancel unless a worker has ever claimed them, after `cancel`. A job that was claimed is left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel_unclaimed: Vec<JobId>,
    /// Messages to other runs; those that are not there or have ended get none. A full inbox takes them: no sender could repeat
    /// them.
    #[serde(default)]
    pub messages: Vec<RunMessage>,
    /// Runs to create after `jobs` were enqueued. Each has this run as its parent, and its own step creates none. One that
    /// cannot be created, because its id is taken or its jobs are refused, does not refuse the step: this run gets the item
    /// [`ChildRefused`](super::RunItem::ChildRefused) instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<NewRun>,
    /// Replaces the values that the run shows to readers; `None` leaves them. At most [`PUBLISHED_MAX`] values, whose names
    /// and bytes are at most [`PUBLISHED_BYTES_MAX`] together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<BTreeMap<String, Payload>>,
    /// Replaces the labels of the run; `None` leaves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The result of the run; only with a state in which it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// Why the run ended as it did; only with a state in which it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Begins a new segment of the history; only while the run goes on and is not stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<RunSegment>,
    /// When the run has something to do even if nothing happens to it. A stuck run is handed out again at this time, and stays
    /// stuck until a commit changes that.
    pub wake: Option<Due>,
    /// Where it stands then.
    pub state: RunState,
    /// Why nobody can advance it: it rests until a message opens it again or `wake` has come. Every commit replaces it.
    pub stuck: Option<String>,
    /// A short text for listings.
    #[serde(default)]
    pub summary: String,
}

impl RunStep {
    /// A step that decides nothing.
    pub fn nothing() -> Self {
        Self {
            history: Vec::new(),
            jobs: Vec::new(),
            cancel: Vec::new(),
            cancel_unclaimed: Vec::new(),
            messages: Vec::new(),
            runs: Vec::new(),
            published: None,
            labels: None,
            result: None,
            error: None,
            segment: None,
            wake: None,
            state: RunState::Running,
            stuck: None,
            summary: String::new(),
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self, run: RunId) -> Result<()> {
        let lists = [self.history.len(), self.jobs.len(), self.messages.len(), self.runs.len()];
        let cancels = [self.cancel.len(), self.cancel_unclaimed.len()];
        lists.into_iter().chain(cancels).try_for_each(check_batch)?;
        check_bytes("summary", self.summary.len(), RUN_TEXT_BYTES_MAX)?;
        check_text("stuck", self.stuck.as_deref())?;
        for entry in &self.history {
            check_bytes("an entry of the history", entry.len(), RUN_ENTRY_BYTES_MAX)?;
        }
        self.wake.map_or(Ok(()), Due::check)?;
        self.messages.iter().try_for_each(|message| check_message(message, run))?;
        self.check_end()?;
        if let Some(segment) = &self.segment {
            self.check_segment(segment)?;
        }
        self.labels.as_ref().map_or(Ok(()), check_labels)?;
        self.published.as_ref().map_or(Ok(()), check_published)?;
        self.runs.iter().try_for_each(|child| check_child(child, run))?;
        self.jobs.iter().try_for_each(|job| check_job(job, run))
    }

    /// Checks what depends on whether the step ends its run.
    fn check_end(&self) -> Result<()> {
        let ends = self.state.is_terminal();
        check_text("error", self.error.as_deref())?;
        if let Some(result) = &self.result {
            result.check("result", RESULT_BYTES_MAX)?;
        }
        if ends && !self.jobs.is_empty() {
            return Err(Error::invalid("jobs", "a step that ends its run starts none"));
        }
        if ends && !self.runs.is_empty() {
            return Err(Error::invalid("runs", "a step that ends its run creates none"));
        }
        let has_end = self.result.is_some() || self.error.is_some();
        if has_end && !ends {
            return Err(Error::invalid("result", "only a step that ends its run has a result or an error"));
        }
        if self.state == RunState::Terminated && (has_end || self.stuck.is_some()) {
            let why = "a terminated run has neither a result nor an error of its engine, and is not stuck";
            return Err(Error::invalid("state", why));
        }
        Ok(())
    }

    fn check_segment(&self, segment: &RunSegment) -> Result<()> {
        check_bytes("input", segment.input.len(), RUN_PART_BYTES_MAX)?;
        if self.state.is_terminal() || self.stuck.is_some() {
            return Err(Error::invalid("segment", "a run that has ended or is stuck begins none"));
        }
        if segment.entries_before as usize > self.history.len() {
            let why = format!("is {}, and the step has {} entries", segment.entries_before, self.history.len());
            return Err(Error::invalid("entries_before", why));
        }
        Ok(())
    }
}

fn check_job(job: &NewJob, run: RunId) -> Result<()> {
    if job.spec.run != Some(run) {
        return Err(Error::invalid("run", format!("a job of a step names its run, which is {run}")));
    }
    if job.spec.dedup.is_some() || job.spec.custom_id.is_some() {
        return Err(Error::invalid("dedup", "a job of a run has neither a dedup key nor a custom id"));
    }
    job.check()
}

fn check_child(child: &NewRun, run: RunId) -> Result<()> {
    if child.parent != Some(run) {
        return Err(Error::invalid("parent", format!("a run of a step names its parent, which is {run}")));
    }
    if !child.step.runs.is_empty() {
        return Err(Error::invalid("runs", "the first step of a run that a step creates creates none itself"));
    }
    if !child.messages.is_empty() {
        return Err(Error::invalid("messages", "a run that a step creates has none; give it an input"));
    }
    if child.step.messages.iter().any(|message| message.terminates && message.run == run) {
        return Err(Error::invalid(
            "terminates",
            "the first step of a run that a step creates does not terminate its parent",
        ));
    }
    child.check()
}

fn check_message(message: &RunMessage, run: RunId) -> Result<()> {
    if message.terminates && message.run == run {
        return Err(Error::invalid("terminates", "a run does not terminate itself; let its step end it"));
    }
    message.check()
}

fn check_text(field: &'static str, text: Option<&str>) -> Result<()> {
    text.map_or(Ok(()), |text| check_bytes(field, text.len(), RUN_TEXT_BYTES_MAX))
}

/// Rejects labels of a run that are too many or too long, or that contain control characters.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > RUN_LABELS_MAX {
        return Err(Error::limit("labels", RUN_LABELS_MAX as u64, labels.len() as u64));
    }
    labels.iter().try_for_each(|(name, value)| check_label(name, value))
}

pub(super) fn check_label(name: &str, value: &str) -> Result<()> {
    crate::name::check("labels", name)?;
    check_bytes("the name of a label", name.len(), RUN_LABEL_NAME_BYTES_MAX)?;
    check_bytes("the value of a label", value.len(), RUN_LABEL_VALUE_BYTES_MAX)?;
    if value.chars().any(char::is_control) {
        return Err(Error::invalid(
            "labels",
            format!("the value of `{name}` contains control characters; remove them"),
        ));
    }
    Ok(())
}

fn check_published(values: &BTreeMap<String, Payload>) -> Result<()> {
    if values.len() > PUBLISHED_MAX {
        return Err(Error::limit("published", PUBLISHED_MAX as u64, values.len() as u64));
    }
    let mut bytes = 0;
    for (name, value) in values {
        crate::name::check("published", name)?;
        value.check("published", PUBLISHED_BYTES_MAX as u64)?;
        bytes += name.len() + value.content_type.len() + value.bytes.len();
    }
    check_bytes("published, in bytes,", bytes, PUBLISHED_BYTES_MAX)
}

/// A new segment of a run: its state is rebuilt from here on, with another input and maybe as another kind. The run keeps its
/// number, its inbox and its children; its history goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSegment {
    /// Which engines can advance the run from now on.
    pub kind: Kind,
    /// Replaces the input of the run.
    #[serde(with = "wire::base64_bytes")]
    pub input: Bytes,
    /// How many entries of this very step still belong to the old segment; the others begin the new one.
    #[serde(default)]
    pub entries_before: u32,
}

/// A step of a run, to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommit {
    /// The proof.
    pub lease: RunLease,
    /// How long the history was when the step was thought out.
    pub history_len: u64,
    /// Up to where the inbox was handled: the `inbox_to` of the claim or of the last renewal, or 0 when nothing of it was.
    pub inbox_to: u64,
    /// Numbers of further items that the commit takes from the inbox, beside all those before `inbox_to`: rising, at most
    /// [`BATCH_MAX`](super::BATCH_MAX). One that is not there any more is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inbox_taken: Vec<u64>,
    /// Refuses the commit as [`Error::UnreadMessages`] if it would leave messages in the inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requires_read_messages: bool,
    /// The lease is kept for so long, because there is more to come; `None` lets go of it.
    pub lease_ms: Option<u64>,
    /// What was decided.
    pub step: RunStep,
}

impl RunCommit {
    /// A commit that takes nothing from the inbox and releases the lease.
    pub fn new(lease: RunLease, history_len: u64, step: RunStep) -> Self {
        Self {
            lease,
            history_len,
            inbox_to: 0,
            inbox_taken: Vec::new(),
            requires_read_messages: false,
            lease_ms: None,
            step,
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        self.lease_ms.map_or(Ok(()), check_lease_ms)?;
        if self.lease_ms.is_some() && (self.step.state.is_terminal() || self.step.stuck.is_some()) {
            return Err(Error::invalid("lease_ms", "nobody keeps the lease of a run that has ended or is stuck"));
        }
        check_batch(self.inbox_taken.len())?;
        if !self.inbox_taken.is_sorted_by(|a, b| a < b) {
            return Err(Error::invalid("inbox_taken", "is not rising; sort the numbers, and give each of them once"));
        }
        let RunStep { jobs, messages, runs, .. } = &self.step;
        let starts = !jobs.is_empty() || !messages.is_empty() || !runs.is_empty();
        if self.lease_ms.is_some() && starts && self.step.history.is_empty() {
            let why = "a step that keeps the lease and starts jobs or runs or sends messages adds an entry, by which its repetition is recognised";
            return Err(Error::invalid("history", why));
        }
        self.step.check(self.lease.run)
    }
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommitted {
    /// How long the history is.
    pub history_len: u64,
    /// It had been made before.
    pub repeated: bool,
}
