//! The store's clock, made of tokio's: it stands still while anything runs, and jumps when all is idle.

use std::time::Duration;
use tokio::time::Instant;
use windlass_core::time::{Clock, Timestamp};

/// Tokio's clock, as a time of the day.
#[derive(Debug)]
pub(super) struct PausedClock {
    base: Timestamp,
    start: Instant,
}

impl PausedClock {
    /// Pauses tokio's time, unless that is done already; it is `base` now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads tokio's clock")]
    pub(super) fn starting_at(base: Timestamp) -> Self {
        if !is_paused() {
            tokio::time::pause();
        }
        Self { base, start: Instant::now() }
    }

    /// How much time has passed.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads tokio's clock")]
    pub(super) fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.start)
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        self.base.plus_ms(u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Tokio does not tell whether its time is paused, so this looks whether it moves along with the machine's.
#[expect(clippy::disallowed_methods, reason = "compares the two clocks")]
fn is_paused() -> bool {
    let (before, machine) = (Instant::now(), std::time::Instant::now());
    while std::time::Instant::now() == machine {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_stands_still_until_all_is_idle() {
        assert!(!is_paused());
        let clock = PausedClock::starting_at(Timestamp::from_ms(7));
        assert!(is_paused());
        assert_eq!(clock.now(), Timestamp::from_ms(7));
        // sleeps because: that is what makes the virtual clock jump
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let late = clock.now().ms_since(Timestamp::from_ms(7 + 3_600_000));
        assert!(clock.elapsed() >= Duration::from_secs(3_600) && late <= 1, "timers are rounded up to a millisecond");
        // A second one in the same test finds it paused.
        assert_eq!(PausedClock::starting_at(Timestamp::from_ms(1)).now(), Timestamp::from_ms(1));
    }
}
