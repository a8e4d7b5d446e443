//! Elapsed time: the one place of this module that reads a clock.

use std::time::Duration;
use tokio::time::Instant;

/// Started; tells how long ago that was. On a paused tokio clock, by that clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the one place that measures; tokio's clock stands still in tests")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(self) -> Duration {
        Self::start().0.saturating_duration_since(self.0)
    }
}
