//! The feed: what changed, in order, to be read from any point.

use super::queue::check_max;
use super::run_views::RunChange;
use super::settings::Setting;
use super::wire;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{State, Verb};
use crate::name::{QueueName, ScheduleName};
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// How many events the feed keeps at least, unless it is set.
pub const FEED_EVENTS_DEFAULT: u64 = 100_000;
/// The smallest length of the feed: with fewer events a reader that pauses for a moment would miss some.
pub const FEED_EVENTS_MIN: u64 = 1_000;
/// The largest length of the feed.
pub const FEED_EVENTS_MAX: u64 = 10_000_000;

/// Refuses a length of the feed that is out of range.
pub fn check_feed_events(events: u64) -> Result<()> {
    match events {
        0..FEED_EVENTS_MIN => {
            let reason = format!("is {events}; give {FEED_EVENTS_MIN} to {FEED_EVENTS_MAX}");
            Err(Error::invalid("feed_events", reason))
        }
        FEED_EVENTS_MIN..=FEED_EVENTS_MAX => Ok(()),
        _ => Err(Error::limit("feed_events", FEED_EVENTS_MAX, events)),
    }
}

/// The ordered, resumable stream of what changed.
#[async_trait]
pub trait Feed: Send + Sync + 'static {
    /// Reads on after a cursor. Entries come in order, each once.
    async fn read_feed(&self, request: FeedRequest) -> Result<FeedPage>;

    /// Sets how many events the feed keeps at least, from [`FEED_EVENTS_MIN`] to [`FEED_EVENTS_MAX`]. The length is stored:
    /// it holds for every process that uses the store, until it is set again. A feed that is longer is shortened in
    /// bounded steps, by this call or by later changes.
    async fn set_feed_events(&self, events: u64) -> Result<()>;

    /// How many events the feed keeps at least; [`FEED_EVENTS_DEFAULT`] unless it was set.
    async fn feed_events(&self) -> Result<u64>;
}

/// A place in the feed; 0 is before the first entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeedCursor(#[serde(with = "wire::large_number")] pub u64);

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedRequest {
    /// After this entry; `None` asks only where the end is.
    pub after: Option<FeedCursor>,
    /// How many entries at most, from 1 to 10,000.
    pub max: u32,
}

impl FeedRequest {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_max("max", self.max)
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedPage {
    /// Entries that the caller has missed for ever: it must look at the state itself and go on from `next`.
    pub gap: bool,
    /// The entries.
    pub entries: Vec<FeedEntry>,
    /// Where to go on.
    pub next: FeedCursor,
}

/// One atomic step and all that it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedEntry {
    /// Its place.
    pub cursor: FeedCursor,
    /// When.
    pub at: Timestamp,
    /// What changed, in order.
    pub events: Vec<FeedEvent>,
}

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FeedEvent {
    /// A job.
    Job(Transition),
    /// A run.
    Run(RunChange),
    /// A queue's or group's settings.
    Settings(Setting),
    /// A queue is gone.
    QueueRemoved {
        /// Which.
        queue: QueueName,
    },
    /// A schedule was made or changed.
    SchedulePut {
        /// Which.
        schedule: ScheduleName,
    },
    /// A schedule is gone.
    ScheduleRemoved {
        /// Which.
        schedule: ScheduleName,
    },
    /// A schedule's tick was handled.
    ScheduleFired {
        /// Which.
        schedule: ScheduleName,
        /// The tick.
        tick: Timestamp,
    },
}

/// A job that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Which.
    pub job: JobId,
    /// On which queue.
    pub queue: QueueName,
    /// What happened to it.
    pub verb: Verb,
    /// From which state; `None` when it is new.
    pub from: Option<State>,
    /// To which state; `None` when it is gone.
    pub to: Option<State>,
    /// Attempts spent.
    pub attempt: u32,
}
