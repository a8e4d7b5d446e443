//! Retry policies: how long to wait after a failed attempt. Pure, so that every store and worker agrees.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The longest delay between two attempts: 366 days.
pub const RETRY_DELAY_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;
/// The longest list of delays.
pub const RETRY_DELAYS_MAX: usize = 100;

/// How long to wait before the next attempt. How many attempts there are is said by the job, not by its policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum RetryPolicy {
    /// No second attempt.
    None,
    /// Always the same delay.
    Fixed {
        /// The delay.
        delay_ms: u64,
    },
    /// `base`, then `base × factor`, and so on up to the cap.
    Exponential {
        /// The delay after the first failure.
        base_ms: u64,
        /// What each further delay is multiplied by.
        factor: u32,
        /// No delay is longer than this.
        cap_ms: u64,
        /// From 0 to 100: up to this share is taken off at random, so that jobs that failed together do not return
        /// together.
        jitter_percent: u8,
    },
    /// One delay per attempt; the last one is repeated.
    Delays {
        /// The delays, in order.
        delays_ms: Vec<u64>,
    },
    /// The worker's code for this kind decides.
    ByKind,
}

impl Default for RetryPolicy {
    /// 1 s, doubling up to 1 h, with a fifth of jitter.
    fn default() -> Self {
        Self::Exponential { base_ms: 1_000, factor: 2, cap_ms: 3_600_000, jitter_percent: 20 }
    }
}

/// What a policy says about one failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Try again after this delay.
    AfterMs(u64),
    /// Do not try again.
    Never,
    /// Ask the worker's code for this kind.
    AskKind,
}

impl RetryPolicy {
    /// What to do after attempt number `attempt` (the first is 1) failed. `random` feeds the jitter.
    pub fn advise(&self, attempt: u32, random: u64) -> RetryAdvice {
        let earlier = attempt.saturating_sub(1);
        match self {
            Self::None => RetryAdvice::Never,
            Self::Fixed { delay_ms } => RetryAdvice::AfterMs(*delay_ms),
            Self::Exponential { base_ms, factor, cap_ms, jitter_percent } => {
                let grown = u64::from(*factor).saturating_pow(earlier).saturating_mul(*base_ms).min(*cap_ms);
                let most_off = u128::from(grown) * u128::from(*jitter_percent) / 100;
                let off = (u128::from(random) * (most_off + 1)) >> 64;
                RetryAdvice::AfterMs(grown - u64::try_from(off).unwrap_or(grown))
            }
            Self::Delays { delays_ms } => match delays_ms.get(earlier as usize).or(delays_ms.last()) {
                Some(delay_ms) => RetryAdvice::AfterMs(*delay_ms),
                None => RetryAdvice::Never,
            },
            Self::ByKind => RetryAdvice::AskKind,
        }
    }

    /// Refuses a policy that cannot be meant.
    pub fn check(&self) -> Result<()> {
        let bound = |field: &str, ms: u64| match ms {
            0..=RETRY_DELAY_MS_MAX => Ok(()),
            _ => Err(Error::limit(field, RETRY_DELAY_MS_MAX, ms)),
        };
        match self {
            Self::None | Self::ByKind => Ok(()),
            Self::Fixed { delay_ms } => bound("retry.delay_ms", *delay_ms),
            Self::Exponential { base_ms, factor, cap_ms, jitter_percent } => {
                bound("retry.base_ms", *base_ms)?;
                bound("retry.cap_ms", *cap_ms)?;
                if *factor == 0 {
                    return Err(Error::invalid("retry.factor", "is 0; use 1 or more"));
                }
                if *jitter_percent > 100 {
                    return Err(Error::limit("retry.jitter_percent", 100, u64::from(*jitter_percent)));
                }
                if cap_ms < base_ms {
                    return Err(Error::invalid("retry.cap_ms", "is below base_ms; raise it or lower base_ms"));
                }
                Ok(())
            }
            Self::Delays { delays_ms } => {
                if delays_ms.is_empty() {
                    return Err(Error::invalid("retry.delays_ms", "is empty; use the policy `none`"));
                }
                if delays_ms.len() > RETRY_DELAYS_MAX {
                    return Err(Error::limit("retry.delays_ms", RETRY_DELAYS_MAX as u64, delays_ms.len() as u64));
                }
                delays_ms.iter().try_for_each(|ms| bound("retry.delays_ms", *ms))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_delay_is_a_leap_year() {
        assert_eq!(RETRY_DELAY_MS_MAX, 31_622_400_000);
    }

    #[test]
    fn the_first_retry_waits_the_base_and_each_further_one_a_factor_more() {
        let policy = RetryPolicy::Exponential { base_ms: 100, factor: 3, cap_ms: 1_000, jitter_percent: 0 };
        let delays: Vec<_> = (1..=5).map(|attempt| policy.advise(attempt, u64::MAX)).collect();
        assert_eq!(delays, [100, 300, 900, 1_000, 1_000].map(RetryAdvice::AfterMs));
    }

    #[test]
    fn a_list_repeats_its_last_delay() {
        let policy = RetryPolicy::Delays { delays_ms: vec![5, 10] };
        assert_eq!([1, 2, 3, 9].map(|n| policy.advise(n, 0)), [5, 10, 10, 10].map(RetryAdvice::AfterMs));
        assert_eq!(RetryPolicy::None.advise(1, 0), RetryAdvice::Never);
        assert_eq!(RetryPolicy::Fixed { delay_ms: 7 }.advise(9, 1), RetryAdvice::AfterMs(7));
        assert_eq!(RetryPolicy::ByKind.advise(1, 0), RetryAdvice::AskKind);
    }

    #[test]
    fn jitter_reaches_both_ends_and_nothing_beyond() {
        let policy = RetryPolicy::Exponential { base_ms: 100, factor: 2, cap_ms: 100, jitter_percent: 20 };
        assert_eq!(policy.advise(1, 0), RetryAdvice::AfterMs(100));
        assert_eq!(policy.advise(1, u64::MAX), RetryAdvice::AfterMs(80));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let exponential = |base_ms, factor, cap_ms, jitter_percent| RetryPolicy::Exponential {
            base_ms,
            factor,
            cap_ms,
            jitter_percent,
        };
        for bad in [
            exponential(u64::MAX, 2, u64::MAX, 0),
            exponential(1, 2, RETRY_DELAY_MS_MAX + 1, 0),
            exponential(1, 0, 10, 0),
            exponential(1, 2, 10, 101),
            exponential(10, 2, 9, 0),
            RetryPolicy::Fixed { delay_ms: RETRY_DELAY_MS_MAX + 1 },
            RetryPolicy::Delays { delays_ms: vec![] },
            RetryPolicy::Delays { delays_ms: vec![1; 101] },
            RetryPolicy::Delays { delays_ms: vec![1, u64::MAX] },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        for good in [
            RetryPolicy::default(),
            RetryPolicy::None,
            RetryPolicy::ByKind,
            exponential(10, 1, 10, 100),
            RetryPolicy::Fixed { delay_ms: RETRY_DELAY_MS_MAX },
            RetryPolicy::Delays { delays_ms: vec![1; 100] },
        ] {
            good.check().unwrap();
        }
    }

    proptest! {
        #[test]
        fn no_exponential_overflows_or_leaves_its_bounds(
            base_ms: u64, factor: u32, cap_ms: u64, jitter_percent in 0u8..=100, attempt: u32, random: u64,
        ) {
            let policy = RetryPolicy::Exponential { base_ms, factor, cap_ms, jitter_percent };
            match policy.advise(attempt, random) {
                RetryAdvice::AfterMs(ms) => prop_assert!(ms <= cap_ms),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
