//! Whether a worker does its work: what a readiness probe wants to know.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// An idle worker claims at every poll; one that has not for so long is cut off from its store.
const RECENT: Duration = Duration::from_secs(10);

/// How a worker is: for readiness probes and pages. Cheap to clone, and still there when the worker has ended.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    /// When the store last answered a claim.
    claimed_at: Mutex<Option<Instant>>,
    /// When the store last heard that the worker lives.
    heard_at: Mutex<Option<Instant>>,
    /// It has as many jobs as it may hold, so it does not claim.
    full: AtomicBool,
    leaving: AtomicBool,
    running: AtomicUsize,
    stuck: AtomicUsize,
}

impl Health {
    /// True when the store has answered a claim within the last ten seconds, or when all slots are taken and the store
    /// has heard of the worker within that time; and when it was not asked to stop.
    ///
    /// A worker that can reach its store but is refused every claim is not ready, however alive it looks.
    pub fn is_ready(&self) -> bool {
        let facts = &self.0;
        let recent = |at: &Mutex<Option<Instant>>| at.lock().is_some_and(|at| now().duration_since(at) < RECENT);
        let busy = facts.full.load(Ordering::Relaxed) && recent(&facts.heard_at);
        !facts.leaving.load(Ordering::Relaxed) && (recent(&facts.claimed_at) || busy)
    }

    /// How long ago the store last answered a claim; `None` when it never has.
    pub fn last_claim(&self) -> Option<Duration> {
        self.0.claimed_at.lock().map(|at| now().duration_since(at))
    }

    /// How many jobs run now.
    pub fn running(&self) -> usize {
        self.0.running.load(Ordering::Relaxed)
    }

    /// True when it holds as many jobs as it may, so that it does not claim.
    pub fn is_full(&self) -> bool {
        self.0.full.load(Ordering::Relaxed)
    }

    /// How many handlers did not let go of their jobs when the worker ended: each blocks a thread.
    pub fn stuck(&self) -> usize {
        self.0.stuck.load(Ordering::Relaxed)
    }

    pub(super) fn note_claim(&self) {
        *self.0.claimed_at.lock() = Some(now());
    }

    pub(super) fn note_heard(&self) {
        *self.0.heard_at.lock() = Some(now());
    }

    pub(super) fn note_load(&self, running: usize, full: bool) {
        self.0.running.store(running, Ordering::Relaxed);
        self.0.full.store(full, Ordering::Relaxed);
    }

    pub(super) fn note_leaving(&self) {
        self.0.leaving.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_stuck(&self, handlers: usize) {
        self.0.stuck.store(handlers, Ordering::Relaxed);
    }
}

/// A clock that no one can set back: leases and probes are timed by it.
#[expect(clippy::disallowed_methods, reason = "tokio's clock stands still and jumps when a test tells it to")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ready_means_a_recent_claim_or_full_slots_that_the_store_knows_of() {
        let health = Health::default();
        assert!(!health.is_ready(), "never claimed");
        health.note_heard();
        assert!(!health.is_ready(), "being heard of is not enough");
        health.note_claim();
        assert!(health.is_ready());
        tokio::time::advance(RECENT).await;
        assert!(!health.is_ready(), "too long ago");
        health.note_load(4, true);
        assert!(!health.is_ready(), "full, and cut off");
        health.note_heard();
        assert!(health.is_ready(), "full, and known");
        health.note_leaving();
        assert!(!health.is_ready());
    }
}
