//! When a schedule ticks.

use super::cron::{self, Cron};
use crate::error::{Error, Result};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest cron expression.
pub const CRON_BYTES_MAX: usize = 255;
/// The shortest interval. Schedules are looked at about once a second, so a shorter one could not be kept.
pub const EVERY_MS_MIN: u64 = 1_000;
/// The longest interval: 366 days.
pub const EVERY_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;

/// When a schedule ticks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// By the calendar and the clock on the wall.
    ///
    /// When the clocks change, it does as Vixie cron does. A rule whose minute or hour begins with `*` follows the clock:
    /// it ticks in both of two equal hours, and not in one that is left out. Any other rule names times of the day: one
    /// that comes twice ticks the first time only, and one that is left out ticks at the moment of the change.
    Cron {
        /// Five fields: minute, hour, day of the month, month, day of the week; or six, with the second before them.
        /// `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` will do, too.
        expression: String,
        /// The time zone by its IANA name, such as `Europe/Berlin`.
        #[serde(default = "utc")]
        zone: String,
    },
    /// At a fixed interval.
    Every {
        /// From [`EVERY_MS_MIN`] to [`EVERY_MS_MAX`].
        ms: u64,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

impl Rule {
    /// A cron rule in UTC.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self::Cron { expression: expression.into(), zone: utc() }
    }

    /// A cron rule in a time zone.
    pub fn cron_in(zone: impl Into<String>, expression: impl Into<String>) -> Self {
        Self::Cron { expression: expression.into(), zone: zone.into() }
    }

    /// An interval.
    pub fn every_ms(ms: u64) -> Self {
        Self::Every { ms }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Every { ms: ..EVERY_MS_MIN } => {
                Err(Error::invalid("rule.ms", format!("is below {EVERY_MS_MIN}; give at least one second")))
            }
            Self::Every { ms } if *ms > EVERY_MS_MAX => Err(Error::limit("rule.ms", EVERY_MS_MAX, *ms)),
            Self::Every { .. } => Ok(()),
            Self::Cron { expression, zone } => match Cron::parse(expression, zone)?.next_after(Timestamp::default()) {
                Some(_) => Ok(()),
                None => {
                    Err(cron::refusal(&format!("`{expression}` names a day that never comes; check its day and month")))
                }
            },
        }
    }

    /// The first tick after `after`; `None` when there is none before the end of the calendar, the year 2200.
    ///
    /// An interval ticks at `anchor` and at every multiple of it from there on.
    pub fn next_after(&self, after: Timestamp, anchor: Timestamp) -> Result<Option<Timestamp>> {
        self.ticks(anchor)?.next_after(after)
    }

    /// The rule, read once to be asked many times.
    pub(super) fn ticks(&self, anchor: Timestamp) -> Result<Ticks> {
        match self {
            Self::Cron { expression, zone } => Ok(Ticks::Cron(Box::new(Cron::parse(expression, zone)?))),
            Self::Every { ms: 0 } => Err(Error::invalid("rule.ms", "is 0; give at least one second")),
            Self::Every { ms } => Ok(Ticks::Every { ms: *ms, anchor }),
        }
    }
}

/// The ticks of a rule.
#[derive(Debug)]
pub(super) enum Ticks {
    Cron(Box<Cron>),
    Every { ms: u64, anchor: Timestamp },
}

impl Ticks {
    pub(super) fn next_after(&self, after: Timestamp) -> Result<Option<Timestamp>> {
        let tick = match self {
            Self::Cron(cron) => cron.next_after(after),
            Self::Every { anchor, .. } if after < *anchor => Some(*anchor),
            Self::Every { ms, anchor } => {
                let passed = after.ms_since(*anchor).checked_div(*ms).unwrap_or(0);
                Some(anchor.plus_ms(passed.saturating_add(1).saturating_mul(*ms)))
            }
        };
        Ok(tick.filter(|tick| *tick > after && *tick <= Timestamp::MAX))
    }

    /// The last tick that is not before `floor` and is before `limit`.
    ///
    /// It is found by asking for the tick after ever earlier times, and then halving: a rule may have ticked millions of
    /// times since `floor`, so it must not be walked.
    pub(super) fn last_before(&self, limit: Timestamp, floor: Timestamp) -> Result<Option<Timestamp>> {
        let earliest = floor.minus_ms(1);
        let (mut high, mut back_ms) = (limit, 1_000u64);
        let mut found = loop {
            let low = limit.minus_ms(back_ms).max(earliest);
            match self.next_after(low)? {
                Some(tick) if tick < limit => break tick,
                _ if low <= earliest => return Ok(None),
                _ => (high, back_ms) = (low, back_ms.saturating_mul(2)),
            }
        };
        // Each round halves what lies between `found` and `high`; 64 of them exhaust any time.
        for _ in 0..64 {
            match self.next_after(found)? {
                Some(tick) if tick < limit => found = tick,
                _ => break,
            }
            let middle = found.plus_ms(high.ms_since(found) / 2);
            match self.next_after(middle)? {
                Some(tick) if tick < limit => found = tick,
                _ => high = middle,
            }
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
#[path = "rule_tests.rs"]
pub(in crate::schedule) mod tests;
