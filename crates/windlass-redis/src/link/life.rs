//! Whether a connection still counts.

use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

const OPEN: u8 = 0;
const BROKEN: u8 = 1;
const REPLACED: u8 = 2;

/// The state of one connection, shared by its users and by those who may end it. It ends once.
#[derive(Debug, Default)]
pub(crate) struct Life {
    state: AtomicU8,
    ended: Notify,
}

impl Life {
    /// The socket is closed.
    pub(super) fn break_off(&self) {
        self.end(BROKEN);
    }

    /// The server is no longer the primary, or is about to be replaced: whatever it still answers does not count.
    pub(super) fn replace(&self) {
        self.end(REPLACED);
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) != OPEN
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.state.load(Ordering::Acquire) == REPLACED
    }

    /// Waits for the end.
    pub(super) async fn over(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    fn end(&self, state: u8) {
        // A connection that was replaced and then breaks stays replaced.
        self.state.fetch_max(state, Ordering::AcqRel);
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_connection_is_seen_before_and_after_it() {
        let life = Life::default();
        let mut waiting = std::pin::pin!(life.over());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        life.replace();
        waiting.await;
        life.over().await;
        life.break_off();
        assert!(life.is_over() && life.is_replaced());
    }
}
