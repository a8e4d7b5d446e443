//! A run as the book keeps it.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::store::{NewRun, RUN_KEPT_MS, RunItem, RunState};
use windlass_core::time::Timestamp;

/// How a call is answered, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Ok,
    Existing,
    /// A run that was there got the messages of a creation.
    Signalled,
    Restarted,
    Repeated,
    Unread(u64),
    Taken,
    Duplicate,
    Invalid,
    Missing,
    Lost,
    Refused,
    Other,
}

impl Word {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::RunTaken { .. } => Self::Taken,
            Error::Duplicate { .. } => Self::Duplicate,
            Error::Invalid { .. } => Self::Invalid,
            Error::NotFound { .. } => Self::Missing,
            Error::LeaseLost => Self::Lost,
            Error::RunRefused { .. } => Self::Refused,
            Error::UnreadMessages { unread, .. } => Self::Unread(*unread),
            _ => Self::Other,
        }
    }
}

/// Something in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) item: RunItem,
    /// Items of one call that the contract does not put in order have the same number.
    pub(super) batch: u64,
}

/// Who holds a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The number of the lease.
    pub(super) lease: usize,
    pub(super) engine: WorkerId,
    pub(super) expires_at: Timestamp,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) place: u64,
    /// The number that the store gave it, from its first claim on.
    pub(super) number: Option<u64>,
    pub(super) kind: Kind,
    pub(super) content: u64,
    pub(super) state: RunState,
    pub(super) stuck: Option<String>,
    pub(super) summary: String,
    pub(super) history: Vec<Bytes>,
    pub(super) inbox: Vec<Item>,
    pub(super) held: Option<Holder>,
    /// Since when it waits to be claimed, as a number that rises.
    pub(super) ready: Option<u64>,
    pub(super) last_lease: Option<usize>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) created_at: Timestamp,
    pub(super) changed_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) keep_ms: u64,
    /// The number of the next item of the inbox.
    pub(super) next: u64,
    pub(super) input: Bytes,
    pub(super) parent: Option<RunId>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) job_results: bool,
    pub(super) published: BTreeMap<String, Payload>,
    pub(super) result: Option<Payload>,
    pub(super) error: Option<String>,
    pub(super) segment_from: usize,
    pub(super) stall_count: u32,
    pub(super) committed_by: Option<WorkerId>,
    pub(super) message_ids: BTreeSet<String>,
}

/// What the feed has last shown of a run.
pub(super) type Announced = (usize, RunState, Option<String>);

impl Entry {
    pub(super) fn new(run: &NewRun, place: u64, now: Timestamp) -> Self {
        Self {
            place,
            number: None,
            kind: run.kind.clone(),
            content: run.fingerprint(),
            state: RunState::Running,
            stuck: None,
            summary: String::new(),
            history: Vec::new(),
            inbox: Vec::new(),
            held: None,
            ready: None,
            last_lease: None,
            wake_at: None,
            created_at: now,
            changed_at: now,
            finished_at: None,
            keep_ms: run.keep_ms.unwrap_or(RUN_KEPT_MS),
            next: 0,
            input: run.input.clone(),
            parent: run.parent,
            labels: run.labels.clone(),
            job_results: run.job_results,
            published: BTreeMap::new(),
            result: None,
            error: None,
            segment_from: 0,
            stall_count: 0,
            committed_by: None,
            message_ids: BTreeSet::new(),
        }
    }

    /// The run started again, with what is kept of its earlier starts.
    pub(super) fn restarted(&self, run: &NewRun, now: Timestamp) -> Self {
        Self {
            number: self.number,
            history: self.history.clone(),
            next: self.next,
            last_lease: self.last_lease,
            created_at: self.created_at,
            segment_from: self.history.len(),
            message_ids: self.message_ids.clone(),
            ..Self::new(run, self.place, now)
        }
    }

    /// True when nobody advances it.
    pub(super) fn rests(&self) -> bool {
        match self.state {
            RunState::Running => self.stuck.is_some(),
            RunState::Terminated => self.held.is_none() && self.inbox.is_empty(),
            _ => true,
        }
    }

    /// True when a claim that names it gets it, if nobody holds it.
    pub(super) fn is_claimable(&self, now: Timestamp) -> bool {
        match self.state {
            RunState::Running => self.stuck.is_none() || self.is_due(now),
            RunState::Terminated => !self.inbox.is_empty(),
            _ => false,
        }
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.wake_at.is_some_and(|at| at <= now)
    }

    /// How many items of its inbox stand before this number.
    pub(super) fn before(&self, number: u64) -> usize {
        self.inbox.iter().filter(|item| item.number < number).count()
    }

    pub(super) fn unread(&self) -> u64 {
        self.inbox.iter().filter(|item| item.item.is_message()).count() as u64
    }

    pub(super) fn push(&mut self, item: RunItem, batch: u64) {
        self.inbox.push(Item { number: self.next, item, batch });
        self.next += 1;
    }

    pub(super) fn announced(&self) -> Announced {
        (self.history.len(), self.state, self.stuck.clone())
    }

    /// When time alone gives it something to do.
    pub(super) fn look_at(&self) -> Option<Timestamp> {
        match &self.held {
            Some(held) => Some(held.expires_at),
            None if self.state.is_terminal() || self.ready.is_some() => None,
            None => self.wake_at,
        }
    }

    pub(super) fn is_waking(&self, now: Timestamp) -> bool {
        self.look_at().is_some_and(|at| at <= now)
    }
}
