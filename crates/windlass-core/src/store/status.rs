//! What queues, groups and jobs are like now, and the work that time brings.

use super::changes::check_page;
use super::queue::check_max;
use super::settings::{GroupSettings, QueueSettings};
use super::workers::Beat;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::State;
use crate::name::{GroupName, Kind, Label, Labels, QueueName, WorkerId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How many jobs are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the states")]
pub struct QueueCounts {
    pub scheduled: u64,
    pub ready: u64,
    pub active: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl QueueCounts {
    /// From counts in the order of [`State::ALL`].
    pub fn from_array([scheduled, ready, active, succeeded, failed, cancelled]: [u64; 6]) -> Self {
        Self { scheduled, ready, active, succeeded, failed, cancelled }
    }
}

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its name.
    pub name: QueueName,
    /// How many jobs are in which state; maintained, not counted.
    pub counts: QueueCounts,
    /// How it is set.
    pub settings: QueueSettings,
    /// Lanes in use.
    pub lanes: u32,
}

/// A page of groups, please.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsRequest {
    /// Of this queue.
    pub queue: QueueName,
    /// The last group of the page before.
    pub after: Option<GroupName>,
    /// From 1 to [`LIST_MAX`](super::LIST_MAX).
    pub limit: u32,
}

impl GroupsRequest {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_page(self.limit)
    }
}

/// A page of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPage {
    /// The groups, by name.
    pub groups: Vec<GroupStatus>,
    /// There may be more after the last one.
    pub more: bool,
}

/// A group as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: GroupName,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Jobs that are being worked on.
    pub active: u64,
    /// How it is set, where it differs from its queue's settings for groups.
    pub settings: GroupSettings,
    /// The cap that jobs of runs have set. It holds where `settings` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_cap: Option<u32>,
    /// Out of turn until this time, because of its rate.
    pub rate_limited_until: Option<Timestamp>,
}

impl GroupStatus {
    /// What holds for the group, if its queue has these settings for groups.
    pub fn limits(&self, queue: GroupSettings) -> GroupSettings {
        GroupSettings { cap: self.settings.cap.or(self.run_cap), ..self.settings }.or(queue)
    }
}

/// What happened per minute, please.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsRequest {
    /// On this queue.
    pub queue: QueueName,
    /// From the minute that contains this time.
    pub from: Timestamp,
    /// To the minute that contains this time, itself included.
    pub to: Timestamp,
}

/// Minutes that one call answers at most: two days.
const MINUTES_MAX: i64 = 2 * 24 * 60;

impl MetricsRequest {
    /// Refuses what cannot be meant; answers the first and the last minute.
    pub fn check(&self) -> Result<(i64, i64)> {
        if self.to < self.from {
            return Err(Error::invalid("to", "is before from"));
        }
        let (from, to) = (self.from.minute(), self.to.minute());
        if to - from >= MINUTES_MAX {
            return Err(Error::limit("minutes", MINUTES_MAX.cast_unsigned(), (to - from + 1).cast_unsigned()));
        }
        Ok((from, to))
    }
}

/// What happened on one queue in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinuteMetrics {
    /// The minute's beginning.
    pub minute: Timestamp,
    /// Jobs accepted.
    pub enqueued: u64,
    /// Jobs leased.
    pub claimed: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that ended on request.
    pub cancelled: u64,
    /// Attempts that failed and will be tried again.
    pub retried: u64,
    /// Leases that ran out.
    pub stalled: u64,
    /// Milliseconds that the claimed jobs had been ready; what a delay or a back-off took is not in it.
    pub waited_ms: u64,
    /// Milliseconds that the ended attempts took.
    pub ran_ms: u64,
}

impl MinuteMetrics {
    /// Of a minute in which nothing has happened yet, by its number since 1970.
    pub fn begin(minute: i64) -> Self {
        Self { minute: Timestamp::from_ms(minute.saturating_mul(60_000)), ..Self::default() }
    }
}

/// Why a job stands where it stands: one exact reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The job.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// The reason; in JSON its fields stand beside the others.
    #[serde(flatten)]
    pub reason: Reason,
}

/// The reasons. When several hold, the one that must be mended first is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Its time has not come.
    Delayed {
        /// When it comes.
        until: Timestamp,
    },
    /// Its last attempt failed and the next one waits.
    BackingOff {
        /// Until when.
        until: Timestamp,
        /// Attempts spent.
        attempt: u32,
        /// What went wrong.
        error: String,
    },
    /// Its time has come; the next claim or sweep makes it ready.
    Due,
    /// It waits for an active job with the same dedup key.
    HeldBehind {
        /// That job.
        job: JobId,
    },
    /// The queue is paused.
    QueuePaused,
    /// Its kind is paused.
    KindPaused {
        /// The kind.
        kind: Kind,
    },
    /// The queue has as many active jobs as it may.
    QueueAtCap {
        /// How many it may.
        cap: u32,
    },
    /// The queue has started as many jobs as it may for now.
    QueueRateLimited {
        /// Until when.
        until: Timestamp,
    },
    /// Its group has as many active jobs as it may.
    GroupAtCap {
        /// The group.
        group: GroupName,
        /// How many it may.
        cap: u32,
    },
    /// Its group has started as many jobs as it may for now.
    GroupRateLimited {
        /// The group.
        group: GroupName,
        /// Until when.
        until: Timestamp,
    },
    /// No live worker works on this queue.
    NoWorkerForQueue,
    /// Workers are there, but none has a handler for its kind.
    NoWorkerForKind {
        /// The kind.
        kind: Kind,
    },
    /// Workers are there, but none offers what it requires.
    NoWorkerWithLabels {
        /// What the best of them lacks.
        missing: Vec<Label>,
    },
    /// Nothing is in its way; it waits for its turn.
    WaitsItsTurn,
    /// A worker holds it.
    Running {
        /// Who.
        worker: WorkerId,
        /// Until when the lease goes.
        until: Timestamp,
    },
    /// It was cancelled and its handler is being told.
    Cancelling {
        /// Who works on it.
        worker: WorkerId,
    },
    /// Its worker vanished; the next sweep takes the lease away.
    LeaseExpired {
        /// Who held it.
        worker: WorkerId,
    },
    /// It has ended.
    Ended {
        /// What went wrong last, if it failed.
        error: Option<String>,
    },
    /// Its stored form cannot be read; look at it, then remove it.
    Quarantined {
        /// What is wrong with it.
        detail: String,
    },
}

impl Reason {
    /// Whether one of these live workers may take a job, and if not, what is missing.
    pub fn of_workers(live: &[&Beat], queue: &QueueName, kind: Kind, labels: &Labels) -> Self {
        let here: Vec<_> = live.iter().filter(|beat| beat.queues.contains(queue)).collect();
        if here.is_empty() {
            return Self::NoWorkerForQueue;
        }
        let able: Vec<_> = here.iter().filter(|beat| beat.kinds.contain(&kind)).collect();
        if able.is_empty() {
            return Self::NoWorkerForKind { kind };
        }
        let lacks = able.iter().map(|beat| labels.missing_from(&beat.labels));
        let missing: Vec<Label> = lacks.min_by_key(Vec::len).unwrap_or_default();
        if missing.is_empty() { Self::WaitsItsTurn } else { Self::NoWorkerWithLabels { missing } }
    }
}

/// One bounded step of the work that time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// Which work.
    pub kind: SweepKind,
    /// How many items at most: leases, jobs, dedup keys, runs. What a prune removes beside them (old minutes, memos, workers, log
    /// lines of removed jobs) is counted, and bounded by the store.
    pub max: u32,
}

impl Sweep {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_max("max", self.max)
    }
}

/// The work that time brings. Any number of processes may do it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepKind {
    /// Take back leases that ran out.
    Reap,
    /// Make due jobs ready, and bring groups back whose rate allows it.
    Promote,
    /// Remove what retention lets go: ended jobs, dedup keys, old metrics, old feed entries, dead workers.
    Prune,
}

impl SweepKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reap, Self::Promote, Self::Prune];
}

/// Minutes of metrics that a prune keeps: two days.
pub const MINUTES_KEPT: i64 = 2 * 24 * 60;
/// How long a prune keeps a worker that left without a word, and the last answers to it.
pub const WORKER_KEPT_MS: u64 = 24 * 3_600 * 1_000;

/// The answer to a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// How many items were handled.
    pub handled: u64,
    /// There may be more to do at once.
    pub more: bool,
    /// When, as far as is known, time alone will bring more: the end of the next lease, the next due job. What is
    /// claimed or enqueued meanwhile may come earlier.
    #[serde(default)]
    pub next_at: Option<Timestamp>,
}
