//! Runs as they are read and listed.

use super::changes::{ListOrder, check_page};
use super::run_items::InboxItem;
use super::run_steps::check_label;
use super::runs::RunState;
use super::wire;
use crate::error::Result;
use crate::id::RunId;
use crate::name::{Kind, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most bytes of a history that one read of a run returns, one entry excepted: 16 MiB.
pub const RUN_READ_BYTES_MAX: usize = 16 << 20;

/// What to read of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRead {
    /// The run.
    pub run: RunId,
    /// Its definition, too.
    #[serde(default)]
    pub definition: bool,
    /// Its input, too.
    #[serde(default)]
    pub input: bool,
    /// Its history from this entry on.
    #[serde(default)]
    pub history_from: u64,
    /// At most so many entries of it; 0 for none. More than [`RUN_READ_BYTES_MAX`] come in several reads.
    #[serde(default)]
    pub history_max: u32,
    /// The values that it publishes, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
    /// Its result, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result: bool,
    /// The items of its inbox from this number on, too. They stay in the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox_from: Option<u64>,
}

impl RunRead {
    /// Only what a listing shows.
    pub fn brief(run: RunId) -> Self {
        Self {
            run,
            definition: false,
            input: false,
            history_from: 0,
            history_max: 0,
            published: false,
            result: false,
            inbox_from: None,
        }
    }
}

/// A run as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunView {
    /// What a listing shows.
    pub run: Run,
    /// Its definition, if it was asked for.
    #[serde(default, with = "wire::base64_option")]
    pub definition: Option<Bytes>,
    /// Its input, if it was asked for.
    #[serde(default, with = "wire::base64_option")]
    pub input: Option<Bytes>,
    /// Entries of its history.
    #[serde(default, with = "wire::base64_list")]
    pub history: Vec<Bytes>,
    /// The values that it publishes, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<BTreeMap<String, Payload>>,
    /// The result of the step that ended it, if it was asked for and there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    /// The items of its inbox, oldest first, if they were asked for; none that cannot be read. Of many or large items not all:
    /// a read from `inbox_to` on returns the next ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inbox: Vec<InboxItem>,
    /// The number behind the last item that was read or passed; 0 if items were not asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inbox_to: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A run in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Which engines can advance it.
    pub kind: Kind,
    /// What people call it.
    pub name: String,
    /// Where it stands.
    pub state: RunState,
    /// Why nobody can advance it.
    pub stuck: Option<String>,
    /// What its engine says in short.
    pub summary: String,
    /// Entries of its history.
    pub history_len: u64,
    /// Items in its inbox.
    pub inbox_len: u64,
    /// The engine that holds its lease.
    pub engine: Option<WorkerId>,
    /// When it has something to do even if nothing happens to it.
    pub wake_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The run that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The number of the first entry of its segment.
    #[serde(default)]
    pub segment_from: u64,
    /// Leases that have run out since its last commit.
    #[serde(default)]
    pub stall_count: u32,
    /// Messages in its inbox.
    #[serde(default)]
    pub unread_messages: u64,
    /// The error of the step that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why its stored form cannot be read; such a run is never claimed.
    pub damaged: Option<String>,
}

impl Run {
    /// What is shown of a run whose stored form cannot be read; `damage` says how.
    pub fn unreadable(id: RunId, damage: String) -> Result<Self> {
        let zero = Timestamp::from_ms(0);
        Ok(Self {
            id,
            kind: Kind::new("?")?,
            name: "?".to_owned(),
            state: RunState::Running,
            stuck: None,
            summary: String::new(),
            history_len: 0,
            inbox_len: 0,
            engine: None,
            wake_at: None,
            created_at: zero,
            changed_at: zero,
            finished_at: None,
            parent: None,
            labels: BTreeMap::new(),
            segment_from: 0,
            stall_count: 0,
            unread_messages: 0,
            error: None,
            damaged: Some(damage),
        })
    }
}

/// Runs of which a page with a filter looks at most at so many.
pub const RUN_SCAN_MAX: usize = 1_000;

/// Which runs to list. A page with more filters than the state looks at [`RUN_SCAN_MAX`] runs at most, so it may be short or
/// empty and still carry a cursor. Damaged runs pass no filter but that of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunList {
    /// In this state.
    pub state: Option<RunState>,
    /// Of this kind, or of a kind that is this text before its `@`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only stuck ones, or only others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<bool>,
    /// Created by this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// With this label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<RunLabel>,
    /// Created then or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_from: Option<Timestamp>,
    /// Created earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// By age.
    #[serde(default)]
    pub order: ListOrder,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// From 1 to [`LIST_MAX`](super::LIST_MAX).
    pub limit: u32,
}

/// A label of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLabel {
    /// The name of the label.
    pub name: String,
    /// The value of the label.
    pub value: String,
}

impl RunList {
    /// All runs, oldest first, `limit` to a page.
    pub fn new(limit: u32) -> Self {
        Self {
            state: None,
            kind: None,
            stuck: None,
            parent: None,
            label: None,
            created_from: None,
            created_before: None,
            order: ListOrder::Ascending,
            cursor: None,
            limit,
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        if let Some(kind) = &self.kind {
            crate::name::check("kind", kind)?;
        }
        if let Some(label) = &self.label {
            check_label(&label.name, &label.value)?;
        }
        check_page(self.limit)
    }

    /// True when it has a filter that no index serves.
    pub fn is_filtered(&self) -> bool {
        let Self { kind, stuck, parent, label, created_from, created_before, .. } = self;
        kind.is_some()
            || stuck.is_some()
            || parent.is_some()
            || label.is_some()
            || created_from.is_some()
            || created_before.is_some()
    }

    /// True when a run passes all filters.
    pub fn matches(&self, run: &Run) -> bool {
        let kind = run.kind.as_str();
        let is_kind = |wanted: &String| kind == wanted || kind.split_once('@').is_some_and(|(base, _)| base == wanted);
        self.state.is_none_or(|state| run.state == state)
            && self.kind.as_ref().is_none_or(is_kind)
            && self.stuck.is_none_or(|stuck| run.stuck.is_some() == stuck)
            && self.parent.is_none_or(|parent| run.parent == Some(parent))
            && self.label.as_ref().is_none_or(|label| run.labels.get(&label.name) == Some(&label.value))
            && self.created_from.is_none_or(|from| run.created_at >= from)
            && self.created_before.is_none_or(|before| run.created_at < before)
    }

    /// What is asked, for the cursor: a cursor answers no other question.
    pub fn question(&self) -> String {
        let Self { state, kind, stuck, parent, label, created_from, created_before, order, .. } = self;
        match self.is_filtered() {
            false => format!("runs {state:?} {order:?}"),
            true => format!(
                "runs {state:?} {order:?} {kind:?} {stuck:?} {parent:?} {label:?} {created_from:?} {created_before:?}"
            ),
        }
    }
}

/// A page of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// Where to go on; `None` at the end.
    pub cursor: Option<String>,
}

/// A run that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunChange {
    /// Which.
    pub run: RunId,
    /// Where it stands; `None` when it is gone.
    pub state: Option<RunState>,
    /// Entries of its history.
    pub history_len: u64,
}
