//! Messages to runs.

use super::runs::{RUN_PART_BYTES_MAX, check_bytes};
use crate::error::{Error, Result};
use crate::id::RunId;
use serde::{Deserialize, Serialize};

/// Something to say to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMessage {
    /// To this run.
    pub run: RunId,
    /// What it says; only engines understand it.
    pub body: String,
    /// Takes the lease away from an engine that decides about the run without having read this message.
    #[serde(default)]
    pub interrupts: bool,
    /// Opens a run that has ended or is stuck; without it, such a run is not told anything.
    #[serde(default)]
    pub reopens: bool,
    /// Only for a run that has ended with a history of this length; any other refuses the message. So what was decided about an
    /// ended run is not applied to one that was opened again since. It needs `reopens`.
    pub expected_history_len: Option<u64>,
}

impl RunMessage {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if self.expected_history_len.is_some() && !self.reopens {
            return Err(Error::invalid(
                "expected_history_len",
                "a message to an ended run opens it again; set `reopens`",
            ));
        }
        check_bytes("the message", self.body.len(), RUN_PART_BYTES_MAX)
    }
}

/// Why a run that has not ended refuses a message that only an ended one takes.
pub const RUN_NOT_ENDED: &str = "has not ended; wait for it, or cancel it first";
/// Why an ended run refuses a message that was meant for an earlier end of it.
pub const RUN_CHANGED: &str = "was run once more since it was read; look at it, and decide again";
