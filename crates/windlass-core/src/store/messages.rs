//! Messages to runs.

use super::runs::{RUN_PART_BYTES_MAX, check_bytes};
use crate::error::{Error, Result};
use crate::id::RunId;
use serde::{Deserialize, Serialize};

/// The most unread messages in the inbox of a run. Ends of jobs and of runs do not count.
pub const UNREAD_MESSAGES_MAX: u64 = 10_000;
/// How many of the last message ids a run keeps, to drop repeated messages.
pub const MESSAGE_IDS_KEPT: u64 = 1_000;
/// The error of a terminated run.
pub const RUN_TERMINATED: &str = "terminated";
/// Why a terminated run does not start again yet.
pub const RUN_NOT_CLEANED_UP: &str = "was terminated, and no engine has cleaned up after it yet; try again later";

/// Something to say to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMessage {
    /// To this run.
    pub run: RunId,
    /// An id of the sender, 1 to 255 bytes without control characters. A message whose id is among the last
    /// [`MESSAGE_IDS_KEPT`] ids that were delivered to the run is answered as delivered and dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it says; only engines understand it.
    pub body: String,
    /// Takes the lease away from an engine that decides about the run without having read this message.
    #[serde(default)]
    pub interrupts: bool,
    /// Opens a run that has ended or is stuck. Without it, a run that has ended refuses the message, and a stuck one keeps it in
    /// its inbox and stays stuck.
    #[serde(default)]
    pub reopens: bool,
    /// Ends the run as [`Terminated`](super::RunState::Terminated), whatever it waits for and whether or not it is stuck or held.
    /// The message stays in the inbox, so that the run is claimed once more to clean up. A run that has ended refuses it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminates: bool,
    /// Only for a run that has ended with a history of this length; any other refuses the message. So what was decided about an
    /// ended run is not applied to one that was opened again since. It needs `reopens`.
    pub expected_history_len: Option<u64>,
    /// Only for a run that is stuck; any other refuses the message. So a run that was terminated, or that goes on, since it was
    /// read as stuck is left as it is. It needs `reopens`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_if_stuck: bool,
}

impl RunMessage {
    /// A message that neither interrupts nor opens nor terminates the run.
    pub fn new(run: RunId, body: impl Into<String>) -> Self {
        let body = body.into();
        Self {
            run,
            id: None,
            body,
            interrupts: false,
            reopens: false,
            terminates: false,
            expected_history_len: None,
            only_if_stuck: false,
        }
    }

    /// True when a full inbox refuses it. Messages that interrupt, open or terminate a run are those of its operator.
    pub const fn needs_room(&self) -> bool {
        !self.interrupts && !self.reopens && !self.terminates
    }

    /// Tells the ids of messages apart, if it has one.
    pub fn id_hash(&self) -> Option<[u8; 16]> {
        self.id.as_ref().map(|id| super::runs::half(&blake3::hash(id.as_bytes())))
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if self.expected_history_len.is_some() && !self.reopens {
            return Err(Error::invalid(
                "expected_history_len",
                "a message to an ended run opens it again; set `reopens`",
            ));
        }
        if self.only_if_stuck && !self.reopens {
            return Err(Error::invalid("only_if_stuck", "a message to a stuck run opens it; set `reopens`"));
        }
        if self.terminates && self.reopens {
            return Err(Error::invalid("terminates", "ends a run that `reopens` would open; set one of them"));
        }
        if let Some(id) = &self.id {
            crate::name::check("id", id)?;
        }
        check_bytes("the message", self.body.len(), RUN_PART_BYTES_MAX)
    }
}

/// Why a run that has not ended refuses a message that only an ended one takes.
pub const RUN_NOT_ENDED: &str = "has not ended; wait for it, or cancel it first";
/// Why a run refuses a message that only a stuck one takes.
pub const RUN_NOT_STUCK: &str = "is not stuck: there is nothing to resume";
/// Why an ended run refuses a message that was meant for an earlier end of it.
pub const RUN_CHANGED: &str = "was run once more since it was read; look at it, and decide again";
