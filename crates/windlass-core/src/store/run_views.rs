//! Runs as they are read and listed.

use super::changes::{ListOrder, check_page};
use super::runs::RunState;
use super::wire;
use crate::error::Result;
use crate::id::RunId;
use crate::name::{Kind, WorkerId};
use crate::time::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

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
    /// At most so many entries of it; 0 for none.
    #[serde(default)]
    pub history_max: u32,
}

impl RunRead {
    /// Only what a listing shows.
    pub fn brief(run: RunId) -> Self {
        Self { run, definition: false, input: false, history_from: 0, history_max: 0 }
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
            damaged: Some(damage),
        })
    }
}

/// Which runs to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunList {
    /// In this state.
    pub state: Option<RunState>,
    /// By age.
    #[serde(default)]
    pub order: ListOrder,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// From 1 to [`LIST_MAX`](super::LIST_MAX).
    pub limit: u32,
}

impl RunList {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_page(self.limit)
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
