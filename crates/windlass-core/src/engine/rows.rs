//! What the engine keeps: one plain struct per table.

use crate::id::{JobId, RunId, Token};
use crate::job::{Failure, Held, JobSpec, Life, Progress, State};
use crate::name::{GroupName, Kind, Labels, QueueName, WorkerId};
use crate::payload::Payload;
use crate::rate::{Meter, Rate};
use crate::store::{Beat, GroupSettings, QueueSettings, RunState};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a job's record is kept. Never used again for another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u64);

/// The number of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// The number of a lane: queue, kind and required labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u64);

/// The number of a group. The jobs of a queue that name no group are one group too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// The place of a job among those of its lane and group: priority first, then the store's sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ord64(pub i64);

/// Bits of an [`Ord64`] below the priority.
const PLACE_BITS: u32 = 47;
/// First-in-first-out places lie above the middle and last-in-first-out ones below it, so that the latter go first.
const MIDDLE: i64 = 1 << (PLACE_BITS - 1);

impl Ord64 {
    /// The place of the job that took sequence number `seq`.
    pub fn new(priority: i16, seq: u64, lifo: bool) -> Self {
        // 2^46 numbers last for two centuries at ten thousand a second.
        let seq = i64::try_from(seq).unwrap_or(i64::MAX).min(MIDDLE - 1);
        let place = if lifo { MIDDLE - seq } else { MIDDLE + seq };
        Self((i64::from(priority) << PLACE_BITS) + place)
    }

    /// The same place at another priority.
    #[must_use]
    pub fn with_priority(self, priority: i16) -> Self {
        let place = self.0 & ((1 << PLACE_BITS) - 1);
        Self((i64::from(priority) << PLACE_BITS) + place)
    }
}

/// A job as the engine keeps it. Its indexes and counters are functions of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it is kept.
    pub row: Row,
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueId,
    /// Its lane.
    pub lane: LaneId,
    /// Its group, while it is ready or active.
    pub group: Option<GroupId>,
    /// It names a group.
    pub grouped: bool,
    /// Lower first.
    pub priority: i16,
    /// It heads its priority.
    pub lifo: bool,
    /// Its place, while it is ready or active.
    pub ord: Ord64,
    /// Everything the machine decides.
    pub life: Life,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Since when it waits: the time of its last way into ready.
    pub ready_at: Timestamp,
    /// Tells its content from another one under the same id.
    pub fingerprint: u64,
    /// Its dedup key.
    pub dedup: Option<[u8; 16]>,
    /// It says itself how long it is kept.
    pub keeps_itself: bool,
    /// When it goes, if it says so itself and has ended.
    pub remove_at: Option<Timestamp>,
    /// Its stored form cannot be read.
    pub quarantined: bool,
    /// The run it belongs to.
    pub run: Option<RunId>,
}

impl Record {
    /// Where it stands.
    pub fn state(&self) -> State {
        self.life.state
    }

    /// The same job with another life. (Everything else is plain data; the life is not, and need not be cloned.)
    pub(super) fn with_life(&self, life: Life) -> Self {
        Self { life, ..*self }
    }

    /// Waits behind an active job with the same dedup key.
    pub fn is_held(&self) -> bool {
        self.life.state == State::Scheduled && self.life.due_at.is_none()
    }
}

/// The rest of a job: written rarely, read by people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// How far its handler is.
    pub progress: Option<Progress>,
    /// What its handler returned.
    pub result: Option<Payload>,
    /// Named values.
    #[serde(default)]
    pub outputs: BTreeMap<String, String>,
    /// The last attempts that went wrong.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// When a job that is held behind another may start.
    #[serde(default)]
    pub held_due_at: Option<Timestamp>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub id: QueueId,
    /// Its name.
    pub name: QueueName,
    /// How it is set.
    pub settings: QueueSettings,
    /// Jobs per state, in the order of [`State::ALL`].
    pub counts: [u64; 6],
    /// The latest virtual time at which a turn began; newcomers start here, or where their lane has come to.
    pub vtime: u64,
    /// What was started lately.
    pub meter: Meter,
    /// The group of the jobs that name none.
    pub plain: GroupId,
    /// Named groups that have ready jobs; while there is none, a claim needs no ring.
    pub named_ready: u64,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its number.
    pub id: LaneId,
    /// Its queue.
    pub queue: QueueId,
    /// The kind of its jobs.
    pub kind: Kind,
    /// What its jobs require.
    pub labels: Labels,
    /// Jobs in it, ended ones included.
    pub jobs: u64,
    /// Jobs in it that are ready.
    pub ready: u64,
    /// No ready job in it stands before this place; a hint that spares a claim the look into every lane.
    pub head: Ord64,
}

/// Why a group is out of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parked {
    /// It is not.
    #[default]
    No,
    /// It has as many active jobs as it may.
    Cap,
    /// It has started as many jobs as it may for now.
    Rate,
}

/// What limits a group, as stores write it: the settings of an operator, and the cap that jobs of runs have set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupLimits {
    /// The cap of the settings.
    pub cap: Option<u32>,
    /// The rate of the settings.
    pub rate: Option<Rate>,
    /// The weight of the settings.
    pub weight: Option<u32>,
    /// The cap that jobs of runs have set. It holds where the settings have none, and keeps no idle group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_cap: Option<u32>,
}

impl GroupLimits {
    /// The settings of an operator.
    pub fn settings(&self) -> GroupSettings {
        GroupSettings { cap: self.cap, rate: self.rate, weight: self.weight }
    }

    /// The same with other settings.
    #[must_use]
    pub fn with_settings(self, settings: GroupSettings) -> Self {
        let GroupSettings { cap, rate, weight } = settings;
        Self { cap, rate, weight, ..self }
    }

    /// What holds, if the queue has these settings for groups.
    pub fn or(&self, queue: GroupSettings) -> GroupSettings {
        GroupSettings { cap: self.cap.or(self.run_cap), ..self.settings() }.or(queue)
    }

    /// True when there are none.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A group. It exists while it has ready or active jobs, settings, or starts that its rate remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: GroupId,
    /// Its queue.
    pub queue: QueueId,
    /// Its name; `None` for the jobs that name none.
    pub name: Option<GroupName>,
    /// What limits it, besides what its queue says for all groups.
    pub limits: GroupLimits,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Jobs that are worked on.
    pub active: u64,
    /// Its virtual time: the more it was served, the later.
    pub vtime: u64,
    /// What was started lately.
    pub meter: Meter,
    /// Out of the ring?
    pub parked: Parked,
    /// When to look at it again.
    pub wake_at: Option<Timestamp>,
}

/// The jobs of one group in one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sub {
    /// How many are ready.
    pub ready: u64,
    /// Its place in the lane's ring, which may be earlier or later than the group's virtual time. `None` while the group
    /// is parked.
    pub vtime: Option<u64>,
}

/// Who holds a dedup key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupRow {
    /// The job that holds it.
    pub owner: JobId,
    /// When it is free in any case.
    pub until: Option<Timestamp>,
    /// It stays held until then, even when its job has ended.
    pub sticky: bool,
    /// The job that waits behind the active one.
    pub successor: Option<JobId>,
}

/// What a worker was answered last, to answer it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimMemo {
    /// The id of the claim.
    pub request_id: u64,
    /// Tells its content from another one under the same id.
    pub fingerprint: u64,
    /// The token of the leases.
    pub token: u64,
    /// The jobs.
    pub rows: Vec<Row>,
}

/// The outcomes of a worker's last report.
pub type ReportMemo = Vec<(JobId, Token, State)>;

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// What it said last.
    pub beat: Beat,
    /// When it came.
    pub since: Timestamp,
    /// When it was last heard of, at most a third of its time ago.
    pub seen_at: Timestamp,
}

impl Worker {
    /// Heard of recently enough.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now.ms_since(self.seen_at) <= self.beat.ttl_ms
    }

    /// Its id.
    pub fn id(&self) -> &WorkerId {
        &self.beat.worker
    }
}

/// A run as the engine keeps it, without its definition, its input, its history and its inbox. Its places in the indexes are
/// functions of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// Its place among all runs.
    pub seq: u64,
    /// Which engines can advance it.
    pub kind: Kind,
    /// What people call it.
    pub name: Arc<str>,
    /// Tells definitions apart.
    pub definition_hash: [u8; 16],
    /// Tells its content from another one under the same id.
    pub fingerprint: u64,
    /// Where it stands.
    pub state: RunState,
    /// Why nobody can advance it.
    pub stuck: Option<String>,
    /// What its engine says in short.
    pub summary: Arc<str>,
    /// Entries of its history.
    pub history_len: u64,
    /// The number of the oldest item of its inbox.
    pub inbox_first: u64,
    /// The number of the next item of its inbox.
    pub inbox_next: u64,
    /// The engine that holds its lease.
    pub held: Option<Held>,
    /// The token of the last commit that let go of it.
    pub last_token: Option<Token>,
    /// Its place among those that have something to do and that nobody holds.
    pub ready: Option<u64>,
    /// When it has something to do even if nothing happens to it.
    pub wake_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How long it is kept then.
    pub keep_ms: u64,
    /// The run that created it.
    pub parent: Option<RunId>,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The ends of its jobs come with the results of the jobs.
    pub job_results: bool,
    /// The error of the step that ended it.
    pub error: Option<String>,
    /// The number of the first entry of its segment.
    pub segment_from: u64,
    /// The bytes of its input and of the entries of its segment.
    pub segment_bytes: u64,
    /// Leases that have run out since its last commit.
    pub stall_count: u32,
    /// Messages in its inbox.
    pub unread_messages: u64,
    /// Numbers between `inbox_first` and `inbox_next` whose items were taken already.
    pub inbox_holes: u64,
    /// How many message ids were delivered to it.
    pub message_ids: u64,
    /// The engine that made its last commit.
    pub committed_by: Option<WorkerId>,
}

impl RunRow {
    /// When time alone gives it something to do.
    pub fn look_at(&self) -> Option<Timestamp> {
        match &self.held {
            Some(held) => Some(held.expires_at),
            None if self.state.is_terminal() || self.ready.is_some() => None,
            None => self.wake_at,
        }
    }

    /// When it goes.
    pub fn remove_at(&self) -> Option<Timestamp> {
        self.finished_at.filter(|_| self.rests()).map(|at| at.plus_ms(self.keep_ms))
    }

    /// True when nobody advances it: it has ended and, if it was terminated, an engine has cleaned up after it; or it is stuck.
    pub fn rests(&self) -> bool {
        match self.state {
            RunState::Running => self.stuck.is_some(),
            RunState::Terminated => self.held.is_none() && !self.has_items(),
            RunState::Succeeded | RunState::Failed | RunState::Cancelled | RunState::TimedOut => true,
        }
    }

    /// True when a claim that names the run may have it, if no engine holds it. A stuck run is claimed when its wake-up has come,
    /// a terminated one while there are items in its inbox.
    pub fn is_claimable(&self, now: Timestamp) -> bool {
        match self.state {
            RunState::Running => self.stuck.is_none() || self.is_due(now),
            RunState::Terminated => self.has_items(),
            RunState::Succeeded | RunState::Failed | RunState::Cancelled | RunState::TimedOut => false,
        }
    }

    /// True when its wake-up has come.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.wake_at.is_some_and(|at| at <= now)
    }

    /// True when there are items in its inbox.
    pub fn has_items(&self) -> bool {
        self.inbox_first < self.inbox_next
    }

    /// How many items there are in its inbox.
    pub fn inbox_len(&self) -> u64 {
        self.inbox_next.saturating_sub(self.inbox_first).saturating_sub(self.inbox_holes)
    }
}

/// A value of a run that is kept apart from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunValue {
    /// The values that it publishes.
    Published,
    /// Its result.
    Result,
}

impl RunValue {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Published, Self::Result];
}

/// A job to insert: the record and what it was asked to be.
#[derive(Clone, Debug)]
pub struct Fresh {
    /// The record.
    pub record: Record,
    /// What it was asked to be.
    pub spec: Arc<JobSpec>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn priority_then_sequence_and_the_last_in_first_among_lifo(
            p in any::<i16>(), q in any::<i16>(), a in 1u64..1 << 40, b in 1u64..1 << 40,
        ) {
            let (fifo_a, fifo_b) = (Ord64::new(p, a, false), Ord64::new(q, b, false));
            prop_assert_eq!(fifo_a.cmp(&fifo_b), (p, a).cmp(&(q, b)));
            prop_assert_eq!(Ord64::new(p, a, true).cmp(&Ord64::new(p, b, true)), b.cmp(&a));
            prop_assert!(Ord64::new(p, a, true) < Ord64::new(p, b, false));
            prop_assert_eq!(fifo_a.with_priority(q), Ord64::new(q, a, false));
            prop_assert_eq!(Ord64::new(p, a, true).with_priority(q), Ord64::new(q, a, true));
        }
    }
}
