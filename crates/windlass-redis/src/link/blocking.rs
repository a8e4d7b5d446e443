//! Commands that wait at the server, such as `XREAD BLOCK`: a server reads nothing else from their connection meanwhile.

use super::exchange::What;
use super::wire::Wire;
use super::{Command, Link, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::Result;

/// A connection of its own for one waiting command at a time.
pub struct Blocking {
    link: Link,
    wire: Wire,
    /// A command was begun and its answer was not waited for.
    is_stale: bool,
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Blocking {
    pub(super) fn new(link: Link) -> Self {
        let wire = Wire::new(Arc::clone(&link.0.shared));
        Self { link, wire, is_stale: false }
    }

    /// Sends a command that waits for at most `block` at the server. Dropped half-way, the next one takes a new connection.
    pub async fn command(&mut self, command: &Command, block: Duration) -> Result<Value> {
        if self.is_stale {
            self.wire = Wire::new(Arc::clone(&self.link.0.shared));
        }
        self.is_stale = true;
        let limit = block + self.link.options().response_timeout;
        let answer = self.link.0.run(&self.wire, What::Plain(&command.0), None, limit).await;
        self.is_stale = false;
        Ok(answer?.main)
    }
}
