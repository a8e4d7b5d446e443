//! How often a run that fails is started again.

use serde::{Deserialize, Serialize};
use windlass_core::error::{Error, Result};
use windlass_core::retry::{RetryAdvice, RetryPolicy};

/// The most attempts of a run.
pub const RUN_ATTEMPTS_MAX: u32 = 1_000;
/// The attempts of a run that has a policy and no number of attempts.
const ATTEMPTS_WITH_POLICY: u32 = 3;

/// How often a run that fails is started again, and when. By default never.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRetry {
    /// Attempts at most; `None` for one, or for three with a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// How long to wait before the next attempt; `None` for 1 s, doubling up to 1 h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<RetryPolicy>,
}

impl RunRetry {
    /// True when nothing is set.
    pub fn is_none(&self) -> bool {
        self.attempts.is_none() && self.policy.is_none()
    }

    /// Attempts at most.
    pub fn attempts_max(&self) -> u32 {
        self.attempts.unwrap_or(if self.policy.is_some() { ATTEMPTS_WITH_POLICY } else { 1 })
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        match self.attempts {
            Some(0) => return Err(Error::invalid("attempts", "is 0; use 1 or more")),
            Some(attempts) if attempts > RUN_ATTEMPTS_MAX => {
                return Err(Error::limit("attempts", u64::from(RUN_ATTEMPTS_MAX), u64::from(attempts)));
            }
            _ => {}
        }
        match &self.policy {
            Some(RetryPolicy::ByKind) => {
                Err(Error::invalid("retry", "is `by_kind`, which only workers of jobs have; use another policy"))
            }
            Some(policy) => policy.check(),
            None => Ok(()),
        }
    }

    /// How long to wait after attempt number `attempt` (the first is 1) failed; `None` when it was the last one.
    pub(crate) fn delay_ms(&self, attempt: u32, random: u64) -> Option<u64> {
        if attempt >= self.attempts_max() {
            return None;
        }
        match self.policy.clone().unwrap_or_default().advise(attempt, random) {
            RetryAdvice::AfterMs(ms) => Some(ms),
            RetryAdvice::Never | RetryAdvice::AskKind => None,
        }
    }
}
