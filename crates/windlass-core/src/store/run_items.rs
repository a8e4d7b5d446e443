//! What happens to a run: the items of its inbox.

use super::runs::RunState;
use crate::error::Error;
use crate::id::{JobId, RunId};
use crate::job::{FailureClass, State};
use crate::payload::Payload;
use crate::time::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The most items of an inbox that a claim hands out at once.
pub const INBOX_ITEMS_MAX: usize = 1_000;

/// An item of an inbox and its number. In JSON the number stands among the fields of the item:
/// `{"number":7,"item":"job_ended",…}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InboxItem {
    /// The number of the item in the inbox. Numbers rise; the inbox of a run may have holes.
    pub number: u64,
    /// What has happened.
    #[serde(flatten)]
    pub item: RunItem,
}

/// Something that has happened to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum RunItem {
    /// One of its jobs has ended.
    JobEnded(JobEnd),
    /// Somebody has something to say; only engines understand it.
    Message {
        /// When it came.
        at: Timestamp,
        /// The id that the sender gave it.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// What it says.
        body: String,
    },
    /// A run that it has created has ended.
    RunEnded(RunEnd),
    /// A run that it wanted to create was refused.
    ChildRefused {
        /// The run that was not created.
        run: RunId,
        /// Why not.
        reason: String,
    },
}

impl RunItem {
    /// True for a message, false for what the store itself reports.
    pub const fn is_message(&self) -> bool {
        matches!(self, Self::Message { .. })
    }

    /// About how many bytes the item takes.
    pub fn weight(&self) -> usize {
        let payload = |payload: &Option<Payload>| payload.as_ref().map_or(0, |payload| payload.bytes.len());
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Self::Message { body, .. } => body.len(),
            Self::JobEnded(end) => {
                let outputs: usize = end.outputs.iter().map(|(key, value)| key.len() + value.len()).sum();
                let detail = end.detail.as_ref().map_or(0, |detail| detail.to_string().len());
                outputs + text(&end.error) + detail + payload(&end.result)
            }
            Self::RunEnded(end) => text(&end.error) + payload(&end.result),
            Self::ChildRefused { reason, .. } => reason.len(),
        }
    }
}

/// The end of a job of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// The job.
    pub job: JobId,
    /// How it ended; `None` when it was removed before it could.
    pub state: Option<State>,
    /// Attempts spent.
    pub attempt: u32,
    /// When it was last claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub at: Timestamp,
    /// What went wrong last, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How its last attempt went wrong, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// What its handler attached to its last error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
    /// Named values for whoever comes after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
    /// What its handler returned, if it succeeded and its run has `job_results`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
}

/// The end of a run, as its parent gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The run that ended.
    pub run: RunId,
    /// How it ended.
    pub state: RunState,
    /// When it ended.
    pub at: Timestamp,
    /// The result of the step that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// The error of the step that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

// A payload is read from the text of its JSON, which the derived readers of tagged and flattened values do not keep. So these
// two are read from their text, once for the tag and once for the fields.

fn parsed<'t, T: Deserialize<'t>>(text: &'t RawValue) -> Result<T, serde_json::Error> {
    serde_json::from_str(text.get())
}

/// The number that [`InboxItem`] adds to the fields of the item.
#[derive(Deserialize)]
struct Number {
    number: u64,
}

#[derive(Deserialize)]
#[serde(tag = "item", rename_all = "snake_case")]
enum Tag {
    JobEnded,
    Message,
    RunEnded,
    ChildRefused,
}

#[derive(Deserialize)]
struct MessageFields {
    at: Timestamp,
    id: Option<String>,
    body: String,
}

#[derive(Deserialize)]
struct RefusedFields {
    run: RunId,
    reason: String,
}

fn item_of(text: &RawValue) -> Result<RunItem, serde_json::Error> {
    Ok(match parsed(text)? {
        Tag::JobEnded => RunItem::JobEnded(parsed(text)?),
        Tag::Message => {
            let MessageFields { at, id, body } = parsed(text)?;
            RunItem::Message { at, id, body }
        }
        Tag::RunEnded => RunItem::RunEnded(parsed(text)?),
        Tag::ChildRefused => {
            let RefusedFields { run, reason } = parsed(text)?;
            RunItem::ChildRefused { run, reason }
        }
    })
}

impl<'de> Deserialize<'de> for RunItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        item_of(&Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for InboxItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let number = parsed::<Number>(&text).map_err(D::Error::custom)?.number;
        Ok(Self { number, item: item_of(&text).map_err(D::Error::custom)? })
    }
}

/// The reason of a [`RunItem::ChildRefused`]: what creating the run alone would have answered.
pub fn child_refused(run: RunId, refusal: &Error) -> RunItem {
    RunItem::ChildRefused { run, reason: refusal.to_string() }
}
