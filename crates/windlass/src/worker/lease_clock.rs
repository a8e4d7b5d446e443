//! The clock by which a worker decides whether a lease may have ended.
//!
//! A lease ends on the store's clock, which this process cannot read when it matters: just before a handler starts. What it
//! can measure is the time since it *sent* the claim or the renewal. The store applied the call later than that, so a
//! lease whose full length has not passed since the sending has not ended. Time in which the process was stopped or the
//! machine was suspended counts, which the clock of [`std::time::Instant`] leaves out on Linux. There is no margin:
//! the rates of two clocks differ by at most some hundred ppm (15 ms in a lease of 30 s at 500 ppm), and the store refuses
//! what comes too late in any case. A store whose wall clock is set forward can end a lease earlier than that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that cannot be set and that counts suspended time where the system has one.
pub(crate) trait LeaseClock: Send + Sync + 'static {
    /// Time since a moment that stays the same as long as the process runs.
    fn now(&self) -> Duration;
}

/// The machine's: `CLOCK_BOOTTIME` on Linux; elsewhere `CLOCK_MONOTONIC`, which counts suspended time on macOS.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BootClock;

#[cfg(unix)]
impl LeaseClock for BootClock {
    fn now(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = ClockId::Monotonic;
        let time = clock_gettime(id);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

#[cfg(not(unix))]
impl LeaseClock for BootClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads this clock")]
    fn now(&self) -> Duration {
        static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        std::time::Instant::now().duration_since(*START)
    }
}

/// Tokio's clock, for tests whose time is paused.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokioClock(tokio::time::Instant);

#[cfg(feature = "testing")]
impl TokioClock {
    pub(crate) fn start() -> Self {
        Self(super::health::now())
    }
}

#[cfg(feature = "testing")]
impl LeaseClock for TokioClock {
    fn now(&self) -> Duration {
        super::health::now().duration_since(self.0)
    }
}

/// When a lease may end at the earliest. Renewals move it.
#[derive(Debug)]
pub(crate) struct LeaseEnd(AtomicU64);

impl LeaseEnd {
    /// One that is never reached: of a lease of which nothing is known.
    pub(crate) const fn never() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// Of a claim that was sent at `sent_at`.
    pub(crate) fn of(sent_at: Duration, lease_ms: u64) -> Self {
        Self(AtomicU64::new(end_us(sent_at, lease_ms)))
    }

    /// A renewal that was sent at `sent_at` has succeeded. The end is never moved earlier, as in the store.
    pub(crate) fn extend(&self, sent_at: Duration, lease_ms: u64) {
        self.0.fetch_max(end_us(sent_at, lease_ms), Ordering::AcqRel);
    }

    /// True when the whole lease has passed since it was asked for.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        us(now) >= self.0.load(Ordering::Acquire)
    }
}

fn end_us(sent_at: Duration, lease_ms: u64) -> u64 {
    us(sent_at).saturating_add(lease_ms.saturating_mul(1_000))
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_lease_ends_its_length_after_the_claim_was_sent_and_a_renewal_only_moves_it_later() {
        let end = LeaseEnd::of(ms(100), 30_000);
        assert!(!end.is_over(ms(30_099)) && end.is_over(ms(30_100)));
        end.extend(ms(10_100), 30_000);
        assert!(!end.is_over(ms(40_099)) && end.is_over(ms(40_100)));
        end.extend(ms(10_200), 1_000);
        assert!(!end.is_over(ms(40_099)), "a shorter renewal does not shorten it");
        assert!(!LeaseEnd::never().is_over(ms(u64::MAX / 1_000_000)));
        assert!(!LeaseEnd::of(ms(1), u64::MAX).is_over(ms(1_000)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_of_leases_counts_suspended_time() {
        use rustix::time::{ClockId, clock_gettime};
        let boot = || {
            let time = clock_gettime(ClockId::Boottime);
            Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
        };
        let (before, now, after) = (boot(), BootClock.now(), boot());
        assert!(before <= now && now <= after, "{before:?} {now:?} {after:?}");
    }
}
