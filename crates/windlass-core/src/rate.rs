//! Rate limits: never more than `limit` in any window of `per_ms`, whatever the window's position.
//!
//! Up to [`LOG_LIMIT_MAX`] the meter keeps every start and is exact. Above, it counts in sixteen buckets and takes the
//! oldest one, which the window covers only in part, as whole: it may let through a little less, never more.

use crate::error::{Error, Result};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The largest limit that is metered exactly.
pub const LOG_LIMIT_MAX: u32 = 100;
const BUCKETS: i64 = 16;
/// The longest window: 31 days.
pub const RATE_WINDOW_MS_MAX: u64 = 31 * 24 * 3_600 * 1_000;

/// At most `limit` starts in any `per_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many starts.
    pub limit: u32,
    /// In how long a window.
    pub per_ms: u64,
}

impl Rate {
    /// Refuses a rate that would let nothing through or has no window.
    pub fn check(&self) -> Result<()> {
        if self.limit == 0 {
            return Err(Error::invalid("rate.limit", "is 0 and would stop everything; pause instead"));
        }
        match self.per_ms {
            0 => Err(Error::invalid("rate.per_ms", "is 0; give the window's length in milliseconds")),
            1..=RATE_WINDOW_MS_MAX => Ok(()),
            ms => Err(Error::limit("rate.per_ms", RATE_WINDOW_MS_MAX, ms)),
        }
    }

    fn per(&self) -> i64 {
        i64::try_from(self.per_ms).unwrap_or(i64::MAX)
    }

    fn width(&self) -> i64 {
        (self.per() / BUCKETS + i64::from(self.per() % BUCKETS != 0)).max(1)
    }
}

/// What was started within the last window: `(time, count)`, oldest first.
///
/// In exact mode a time is that of the starts; in bucket mode it is the last millisecond of their bucket, so that
/// a start is never forgotten before it has left every window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter(VecDeque<(i64, u32)>);

impl Meter {
    /// From times and counts, oldest first, for stores that keep them in a form of their own.
    pub fn from_starts(starts: impl IntoIterator<Item = (i64, u32)>) -> Self {
        Self(starts.into_iter().collect())
    }

    /// How many more may start now.
    pub fn room(&self, rate: Rate, now: Timestamp) -> u32 {
        let edge = now.as_ms().saturating_sub(rate.per());
        let used: u64 = self.0.iter().filter(|(at, _)| *at > edge).map(|(_, n)| u64::from(*n)).sum();
        rate.limit.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// Notes that `n` started now.
    pub fn take(&mut self, rate: Rate, now: Timestamp, n: u32) {
        if n == 0 {
            return;
        }
        let edge = now.as_ms().saturating_sub(rate.per());
        while self.0.front().is_some_and(|(at, _)| *at <= edge) {
            self.0.pop_front();
        }
        let at = if rate.limit <= LOG_LIMIT_MAX {
            now.as_ms()
        } else {
            let width = rate.width();
            now.as_ms().div_euclid(width).saturating_mul(width).saturating_add(width - 1)
        };
        match self.0.back_mut() {
            // A clock that jumped back must not break the order; a later time only holds the start longer.
            Some((last, count)) if *last >= at => *count = count.saturating_add(n),
            _ => self.0.push_back((at, n)),
        }
    }

    /// When at least one more may start; `None` when that is now.
    pub fn next_at(&self, rate: Rate, now: Timestamp) -> Option<Timestamp> {
        if self.room(rate, now) > 0 {
            return None;
        }
        let mut over = self.0.iter().map(|(_, n)| u64::from(*n)).sum::<u64>();
        for (at, n) in &self.0 {
            over -= u64::from(*n);
            if over < u64::from(rate.limit) {
                return Some(Timestamp::from_ms(at.saturating_add(rate.per())));
            }
        }
        None
    }

    /// True when it remembers nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when nothing that it remembers matters any more.
    pub fn is_idle(&self, rate: Rate, now: Timestamp) -> bool {
        self.0.back().is_none_or(|(at, _)| *at <= now.as_ms().saturating_sub(rate.per()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    #[test]
    fn the_exact_log_frees_a_place_one_window_after_each_start() {
        let rate = Rate { limit: 2, per_ms: 100 };
        let mut meter = Meter::default();
        meter.take(rate, at(1_000), 1);
        meter.take(rate, at(1_040), 1);
        assert_eq!(meter.room(rate, at(1_099)), 0);
        assert_eq!(meter.next_at(rate, at(1_099)), Some(at(1_100)));
        assert_eq!(meter.room(rate, at(1_100)), 1);
        assert_eq!(meter.next_at(rate, at(1_100)), None);
        assert_eq!(meter.room(rate, at(1_140)), 2);
        assert!(!meter.is_idle(rate, at(1_139)));
        assert!(meter.is_idle(rate, at(1_140)));
    }

    #[test]
    fn a_clock_that_jumps_back_frees_nothing() {
        let rate = Rate { limit: 1, per_ms: 100 };
        let mut meter = Meter::default();
        assert!(meter.is_empty());
        meter.take(rate, at(1_000), 1);
        assert!(!meter.is_empty());
        assert_eq!(meter.room(rate, at(500)), 0);
        meter.take(rate, at(500), 1);
        assert_eq!(meter.room(rate, at(1_050)), 0);
        assert!(!meter.is_idle(rate, at(1_099)), "what came after the jump hides nothing that came before it");
        assert!(meter.is_idle(rate, at(1_100)));
    }

    #[test]
    fn a_bucket_counts_until_its_last_millisecond_has_left_the_window() {
        let rate = Rate { limit: 200, per_ms: 160 };
        let mut meter = Meter::default();
        meter.take(rate, at(1_000), 200);
        assert_eq!(meter.next_at(rate, at(1_000)), Some(at(1_169)));
        assert_eq!((meter.room(rate, at(1_168)), meter.room(rate, at(1_169))), (0, 200));
    }

    #[test]
    fn a_limit_that_was_lowered_waits_for_as_many_as_are_too_many() {
        let mut meter = Meter::default();
        for ms in [1_000, 1_010, 1_020] {
            meter.take(Rate { limit: 3, per_ms: 100 }, at(ms), 1);
        }
        assert_eq!(meter.next_at(Rate { limit: 2, per_ms: 100 }, at(1_030)), Some(at(1_110)));
        assert_eq!(meter.next_at(Rate { limit: 1, per_ms: 100 }, at(1_030)), Some(at(1_120)));
    }

    #[test]
    fn a_large_limit_remembers_sixteen_buckets_and_one_that_is_leaving() {
        for (per_ms, width) in [(1, 1), (16, 1), (17, 2), (160, 10), (161, 11), (1_000, 63)] {
            let rate = Rate { limit: 1_000, per_ms };
            assert_eq!(rate.width(), width, "{per_ms}");
            let mut meter = Meter::default();
            for ms in 0..3 * i64::try_from(per_ms).unwrap() {
                meter.take(rate, at(ms), 1);
            }
            assert!(meter.0.len() <= 17, "{} buckets for {per_ms} ms", meter.0.len());
        }
    }

    #[test]
    fn rates_that_cannot_be_meant_are_refused() {
        assert_eq!(RATE_WINDOW_MS_MAX, 2_678_400_000, "31 days");
        assert!(Rate { limit: 0, per_ms: 1 }.check().is_err());
        assert!(Rate { limit: 1, per_ms: 0 }.check().is_err());
        assert!(Rate { limit: 1, per_ms: RATE_WINDOW_MS_MAX + 1 }.check().is_err());
        assert!(Rate { limit: 1, per_ms: RATE_WINDOW_MS_MAX }.check().is_ok());
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_the_limit_and_next_at_keeps_its_word(
            limit in 1u32..400, per_ms in 1u64..2_000, steps in prop::collection::vec((0i64..300, 0u32..200), 1..120),
        ) {
            let rate = Rate { limit, per_ms };
            let (mut meter, mut now, mut starts) = (Meter::default(), 10_000i64, Vec::new());
            for (gap, want) in steps {
                now += gap;
                let n = want.min(meter.room(rate, at(now)));
                meter.take(rate, at(now), n);
                starts.push((now, n));
                match meter.next_at(rate, at(now)) {
                    Some(next) => {
                        prop_assert!(next > at(now) && meter.room(rate, next) > 0);
                        prop_assert_eq!(meter.room(rate, next.minus_ms(1)), 0);
                    }
                    None => prop_assert!(meter.room(rate, at(now)) > 0),
                }
                prop_assert!(meter.0.len() <= 101);
            }
            for (end, _) in &starts {
                let edge = end - i64::try_from(per_ms).unwrap();
                let within: u32 = starts.iter().filter(|(t, _)| *t > edge && t <= end).map(|(_, n)| n).sum();
                prop_assert!(within <= limit, "{} in the window that ends at {}", within, end);
            }
        }

        #[test]
        fn large_limits_lose_at_most_a_sixteenth_of_the_window(limit in 101u32..1_000, per_ms in 160u64..5_000) {
            let rate = Rate { limit, per_ms };
            let mut meter = Meter::default();
            meter.take(rate, at(10_000), limit);
            let free = meter.next_at(rate, at(10_000)).unwrap();
            prop_assert!(free.ms_since(at(10_000)) <= per_ms + per_ms / 16 + 1);
        }
    }
}
