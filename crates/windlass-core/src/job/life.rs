//! The mutable life of a job: everything the machine reads and writes.

use super::machine::State;
use crate::id::Token;
use crate::name::WorkerId;
use crate::time::Timestamp;

/// The lease an active job is held under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Proves the claim.
    pub token: Token,
    /// Who holds it.
    pub worker: WorkerId,
    /// When it ends, by the store's clock.
    pub expires_at: Timestamp,
}

/// The last outcome that was accepted, kept to answer it again should its reply be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// The token it came with.
    pub token: Token,
    /// The state it led to.
    pub state: State,
}

/// The mutable life of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Where it stands.
    pub state: State,
    /// When a scheduled job becomes ready; `None` while it is held behind another job.
    pub due_at: Option<Timestamp>,
    /// Attempts spent, the running one included; stalls and releases of jobs that never started are given back.
    pub attempt: u32,
    /// Attempts it may spend.
    pub attempts_max: u32,
    /// Leases that ran out since the last explicit retry.
    pub stalls: u32,
    /// Leases that may run out.
    pub stalls_max: u32,
    /// Explicit retries of the ended job.
    pub retries: u32,
    /// The lease, while active.
    pub held: Option<Held>,
    /// Set when an active job was cancelled; it ends as cancelled, whatever its handler reports.
    pub cancel_requested: bool,
    /// The last outcome that was accepted.
    pub last_report: Option<LastReport>,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl Life {
    /// The life of a job that was just enqueued.
    pub fn new(due_at: Option<Timestamp>, now: Timestamp, attempts_max: u32, stalls_max: u32) -> Self {
        let ready = due_at.is_some_and(|due| due <= now);
        Self {
            state: if ready { State::Ready } else { State::Scheduled },
            due_at: if ready { None } else { due_at },
            attempt: 0,
            attempts_max,
            stalls: 0,
            stalls_max,
            retries: 0,
            held: None,
            cancel_requested: false,
            last_report: None,
            claimed_at: None,
            finished_at: None,
        }
    }

    /// True when `token` is that of the current lease.
    pub fn is_held_by(&self, token: Token) -> bool {
        self.held.as_ref().is_some_and(|held| held.token == token)
    }

    /// The state that the outcome with this token led to, when it was the last one that was accepted.
    pub fn answer_again(&self, token: Token) -> Option<State> {
        self.last_report.filter(|last| last.token == token).map(|last| last.state)
    }
}
