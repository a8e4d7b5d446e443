//! What is seen of those who work while they do: who was answered when, and which calls were not.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use windlass_core::Error;
use windlass_core::time::{Clock, SystemClock, Timestamp};

/// Calls that had no answer of their own, and were repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// It is unknown whether they were applied.
    pub unknown: u64,
    /// The store could not be reached or was busy.
    pub unavailable: u64,
    /// The store had no room.
    pub full: u64,
    /// A part of the store was missing.
    pub refused: u64,
}

/// Shared by all who work on one store in one process.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Held for reading by every call, so that whoever holds it for writing finds the store still.
    gate: RwLock<()>,
    /// Calls that are refused because the store is damaged are repeated: it will be repaired.
    expects_damage: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    unanswered: Unanswered,
    /// When each worker's last claim was answered.
    claimed: BTreeMap<String, Timestamp>,
    completed: u64,
    last: String,
}

impl Watch {
    pub(crate) async fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().await
    }

    /// Waits until no call is under way, and keeps it so.
    pub(crate) async fn still(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    /// From now on calls that are refused because the store is damaged are repeated, or not any more.
    pub(crate) fn expect_damage(&self, is_expected: bool) {
        self.expects_damage.store(is_expected, Ordering::Relaxed);
    }

    /// Whether a call that ended like this is repeated.
    pub(crate) fn is_repeated(&self, error: &Error) -> bool {
        error.is_retryable() || (self.expects_damage.load(Ordering::Relaxed) && matches!(error, Error::Corrupt { .. }))
    }

    pub(crate) fn count(&self, error: &Error) {
        let mut seen = self.seen.lock();
        let Seen { unanswered, last, .. } = &mut *seen;
        match error {
            Error::Full { .. } => unanswered.full += 1,
            Error::Corrupt { .. } => unanswered.refused += 1,
            error if error.is_outcome_unknown() => unanswered.unknown += 1,
            _ => unanswered.unavailable += 1,
        }
        *last = error.to_string();
    }

    pub(crate) fn claimed(&self, worker: &str) {
        let now = SystemClock.now();
        let mut seen = self.seen.lock();
        match seen.claimed.get_mut(worker) {
            Some(at) => *at = now,
            None => drop(seen.claimed.insert(worker.to_owned(), now)),
        }
    }

    pub(crate) fn completed(&self) {
        self.seen.lock().completed += 1;
    }

    /// Completions so far.
    pub(crate) fn completions(&self) -> u64 {
        self.seen.lock().completed
    }

    pub(crate) fn unanswered(&self) -> Unanswered {
        self.seen.lock().unanswered
    }

    /// When the last of all workers was answered, if each was after `since`.
    pub(crate) fn all_claimed_since(&self, since: Timestamp) -> Option<Timestamp> {
        let seen = self.seen.lock();
        let all = seen.claimed.values().all(|at| *at >= since);
        seen.claimed.values().max().copied().filter(|_| all)
    }

    /// The last error that was asked again, for messages.
    pub(crate) fn last_error(&self) -> String {
        self.seen.lock().last.clone()
    }
}
