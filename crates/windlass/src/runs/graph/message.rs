//! Messages to graph runs.

use serde::{Deserialize, Serialize};
use windlass_core::graph::{End, Happened, Outcome};
use windlass_core::id::RunId;
use windlass_core::job::State;
use windlass_core::store::{InboxItem, JobEnd, RunItem, RunMessage};
use windlass_core::time::Timestamp;

/// A message to a graph run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(in super::super) enum Message {
    /// Stop.
    Cancel {
        /// In the words of who says it.
        reason: String,
    },
    /// Run these nodes once more, with all that comes after them.
    Rerun {
        /// Their places.
        nodes: Vec<usize>,
        /// Rows of a matrix that succeeded are not run again.
        #[serde(default)]
        keep_rows: bool,
    },
    /// Try again what could not be done. It says nothing to the graph: what was left in the inbox does.
    Resume,
    /// Look up the open jobs of the run: the end of one of them could not be read. Engines send it to the runs that they hold.
    CheckJobs,
}

impl Message {
    pub(in super::super) fn to(&self, run: RunId) -> RunMessage {
        let body = serde_json::to_string(self).unwrap_or_default();
        let message = RunMessage::new(run, body);
        match self {
            // A decision that is being made must not start anything after the message is acknowledged.
            Self::Cancel { .. } => RunMessage { interrupts: true, ..message },
            Self::Rerun { .. } => RunMessage { reopens: true, ..message },
            Self::Resume => RunMessage { reopens: true, only_if_stuck: true, ..message },
            Self::CheckJobs => message,
        }
    }
}

/// Whether an item asks for the open jobs of the run to be looked up.
pub(super) fn asks_for_check(found: &InboxItem) -> bool {
    match &found.item {
        RunItem::Message { body, .. } => matches!(serde_json::from_str(body), Ok(Message::CheckJobs)),
        _ => false,
    }
}

/// Something that has happened to a graph run, and when.
pub(super) type Occurred = (Timestamp, Happened);

/// What an item of the inbox means to the graph.
pub(super) fn happened(found: InboxItem) -> Option<Occurred> {
    match found.item {
        RunItem::JobEnded(end) => Some(job_ended(end)),
        RunItem::Message { at, body, .. } => match serde_json::from_str(&body) {
            Ok(Message::Cancel { reason }) => Some((at, Happened::Cancel { reason })),
            Ok(Message::Rerun { nodes, keep_rows }) => Some((at, Happened::Rerun { nodes, keep_rows })),
            Ok(Message::Resume | Message::CheckJobs) => None,
            Err(error) => {
                tracing::warn!(%error, "a message to a run is not understood, and is left alone");
                None
            }
        },
        // Graph runs create no runs.
        RunItem::RunEnded(_) | RunItem::ChildRefused { .. } => None,
    }
}

pub(super) fn job_ended(end: JobEnd) -> Occurred {
    let JobEnd { job, state, at, error, outputs, .. } = end;
    let (outcome, error) = match state {
        Some(State::Succeeded) => (Outcome::Succeeded, None),
        Some(State::Cancelled) => (Outcome::Cancelled, None),
        None => (Outcome::Cancelled, Some("it was removed".to_owned())),
        Some(_) => (Outcome::Failed, error),
    };
    (at, Happened::JobEnded { job, end: End { outcome, error, outputs } })
}
