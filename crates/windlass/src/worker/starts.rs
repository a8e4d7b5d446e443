//! Request ids of a worker's start.
//!
//! A store takes two claims of one worker with one request id for one claim. A worker that keeps its id must therefore
//! begin above all request ids of its earlier starts. The clock orders starts of different processes. Within one process
//! two starts may read the same millisecond, or a clock that was set back, so each start also comes after the last one.

use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::time::Clock;

/// Bits of a request id that count the claims of a start; the bits above are milliseconds.
const CLAIM_BITS: u32 = 20;

/// Where the last start of this process began.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The request id below the first one of a start: above those of all earlier starts of this process, and of other
/// processes as far as the clock tells.
pub(super) fn begin(clock: &dyn Clock) -> u64 {
    let now = u64::try_from(clock.now().as_ms()).unwrap_or(0) << CLAIM_BITS;
    let after = |last: u64| now.max(last.saturating_add(1 << CLAIM_BITS));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
    after(last.unwrap_or_else(|last| last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::time::{Timestamp, VirtualClock};

    #[test]
    fn starts_within_one_millisecond_and_after_a_clock_was_set_back_rise() {
        let at = |ms| VirtualClock::new(Timestamp::from_ms(ms));
        let now = at(1_700_000_000_000);
        let first = begin(&now);
        let (second, back) = (begin(&now), begin(&at(1_600_000_000_000)));
        let room = 1 << CLAIM_BITS;
        assert!(second >= first + room && back >= second + room, "{first} {second} {back}");
        assert!(begin(&at(1_800_000_000_000)) >= 1_800_000_000_000 << CLAIM_BITS, "a later process begins later");
    }
}
