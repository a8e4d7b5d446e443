//! Settings of queues and groups.

use crate::error::{Error, Result};
use crate::job::State;
use crate::name::{GroupName, Kind, QueueName};
use crate::rate::Rate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The largest weight of a group.
pub const WEIGHT_MAX: u32 = 1_000;
/// The most kinds that may be paused on one queue.
const PAUSED_KINDS_MAX: usize = 1_024;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// What a queue does with its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// Nothing is claimed while set.
    pub paused: bool,
    /// Jobs of these kinds are not claimed.
    pub paused_kinds: BTreeSet<Kind>,
    /// How many jobs may be active at once.
    pub cap: Option<u32>,
    /// How many jobs may start in a window.
    pub rate: Option<Rate>,
    /// How many jobs may wait, scheduled ones included; further ones are refused with `Full`.
    pub len_max: Option<u64>,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// What holds for every group that has no settings of its own.
    pub groups: GroupSettings,
}

impl QueueSettings {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_cap("cap", self.cap)?;
        if let Some(rate) = self.rate {
            rate.check()?;
        }
        if self.paused_kinds.len() > PAUSED_KINDS_MAX {
            return Err(Error::limit("paused_kinds", PAUSED_KINDS_MAX as u64, self.paused_kinds.len() as u64));
        }
        self.groups.check()
    }
}

/// What holds for one group, or for all groups of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSettings {
    /// How many of its jobs may be active at once.
    pub cap: Option<u32>,
    /// How many of its jobs may start in a window.
    pub rate: Option<Rate>,
    /// Its share: a group of weight 2 gets two turns where one of weight 1 gets one. From 1 to [`WEIGHT_MAX`].
    pub weight: Option<u32>,
}

impl GroupSettings {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_cap("group.cap", self.cap)?;
        if let Some(rate) = self.rate {
            rate.check()?;
        }
        match self.weight {
            Some(0) => Err(Error::invalid("group.weight", "is 0; give 1 or more")),
            Some(weight) if weight > WEIGHT_MAX => {
                Err(Error::limit("group.weight", u64::from(WEIGHT_MAX), u64::from(weight)))
            }
            _ => Ok(()),
        }
    }

    /// These settings where they say something, `queue`'s elsewhere.
    #[must_use]
    pub fn or(self, queue: Self) -> Self {
        Self { cap: self.cap.or(queue.cap), rate: self.rate.or(queue.rate), weight: self.weight.or(queue.weight) }
    }

    /// True when it says nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

pub(crate) fn check_cap(field: &'static str, cap: Option<u32>) -> Result<()> {
    match cap {
        Some(0) => Err(Error::invalid(field, "is 0 and would stop everything; pause instead")),
        _ => Ok(()),
    }
}

/// How long ended jobs of a queue are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// Jobs that succeeded.
    pub succeeded: RetentionRule,
    /// Jobs that failed.
    pub failed: RetentionRule,
    /// Jobs that were cancelled.
    pub cancelled: RetentionRule,
}

/// How long jobs with one outcome are kept: as long as both rules allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetentionRule {
    /// For so long.
    pub age_ms: Option<u64>,
    /// So many, the latest; jobs that say themselves how long they are kept are counted, too.
    pub count: Option<u64>,
}

impl Default for Retention {
    /// Succeeded and cancelled ones for 24 h and at most 10,000, failed ones for 14 days.
    fn default() -> Self {
        let short = RetentionRule { age_ms: Some(DAY_MS), count: Some(10_000) };
        Self { succeeded: short, failed: RetentionRule { age_ms: Some(14 * DAY_MS), count: None }, cancelled: short }
    }
}

impl Retention {
    /// The rule for a terminal state.
    pub fn rule(&self, state: State) -> RetentionRule {
        match state {
            State::Succeeded => self.succeeded,
            State::Failed => self.failed,
            State::Cancelled => self.cancelled,
            State::Scheduled | State::Ready | State::Active => RetentionRule::default(),
        }
    }
}

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// All settings of a queue; the queue is made if it is not there.
    Queue {
        /// Which.
        queue: QueueName,
        /// The new settings.
        settings: QueueSettings,
    },
    /// Pause or resume a queue, and leave everything else.
    Paused {
        /// Which.
        queue: QueueName,
        /// Paused or not.
        paused: bool,
    },
    /// Pause or resume one kind of a queue, and leave everything else.
    KindPaused {
        /// Which queue.
        queue: QueueName,
        /// Which kind.
        kind: Kind,
        /// Paused or not.
        paused: bool,
    },
    /// The settings of one group; the default ones make it forget its own.
    Group {
        /// Of this queue.
        queue: QueueName,
        /// Which group.
        group: GroupName,
        /// The new settings.
        settings: GroupSettings,
    },
}

impl Setting {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Queue { settings, .. } => settings.check(),
            Self::Group { settings, .. } => settings.check(),
            Self::Paused { .. } | Self::KindPaused { .. } => Ok(()),
        }
    }

    /// The queue it concerns.
    pub fn queue(&self) -> &QueueName {
        match self {
            Self::Queue { queue, .. }
            | Self::Paused { queue, .. }
            | Self::KindPaused { queue, .. }
            | Self::Group { queue, .. } => queue,
        }
    }
}
