//! Time as the stores see it: milliseconds, UTC, never read but handed in.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// A point in time: milliseconds since 1970, UTC. RFC 3339 in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The latest time a caller may name: the first moment of the year 2200.
    pub const MAX: Self = Self(7_258_118_400_000);

    /// From milliseconds since 1970.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// In milliseconds since 1970.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// Later by `ms`; stops at the end of time instead of wrapping.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Earlier by `ms`; stops at the beginning of time instead of wrapping.
    #[must_use]
    pub fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Milliseconds from `earlier` to `self`; 0 when it is the other way round.
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// The minute that contains it, counted from 1970.
    pub fn minute(self) -> i64 {
        self.0.div_euclid(60_000)
    }

    /// Accepts a time that a caller named: from 1970 to 2200.
    pub fn check(self, field: &'static str) -> Result<Self> {
        if (0..=Self::MAX.0).contains(&self.0) {
            return Ok(self);
        }
        Err(Error::invalid(field, format!("{} ms is outside 1970 to 2200; times are milliseconds since 1970", self.0)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let time: jiff::Timestamp = text.parse().map_err(|_| {
            Error::invalid("time", format!("`{text}` is not RFC 3339; write it as 2026-11-15T20:00:00Z"))
        })?;
        Ok(Self(time.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_i64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            // A time outside the calendar, which every store refuses by itself.
            let outside = text.strip_suffix(" ms").and_then(|ms| ms.parse().ok()).map(Self);
            outside.map_or_else(|| text.parse(), Ok).map_err(de::Error::custom)
        } else {
            i64::deserialize(deserializer).map(Self)
        }
    }
}

/// Where time comes from. A store is given one and reads no other.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(elapsed.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// How long a test waits in real time for something that must happen, before it counts as hung.
///
/// It ends a test that would wait for ever, and says what was waited for. It is no statement about speed: on a loaded
/// machine anything may take a hundred times as long as usual, and must still pass. A test of how soon something happens
/// uses a virtual clock, or counts.
pub const HANG_GUARD: std::time::Duration = std::time::Duration::from_secs(300);

/// A clock that moves only when it is told to, for tests.
#[derive(Debug)]
pub struct VirtualClock(AtomicI64);

impl VirtualClock {
    /// Starts at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves forward.
    pub fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(i64::try_from(ms).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Jumps, forward or back.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.0, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_rfc_3339_and_comes_back() {
        let time = Timestamp::from_ms(1_763_236_800_123);
        assert_eq!(time.to_string(), "2025-11-15T20:00:00.123Z");
        assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Timestamp::from_ms(5).plus_ms(u64::MAX), Timestamp::from_ms(i64::MAX));
        assert_eq!(Timestamp::from_ms(5).ms_since(Timestamp::from_ms(9)), 0);
        assert!(Timestamp::from_ms(-1).check("run_at").is_err());
        assert!(Timestamp::MAX.plus_ms(1).check("run_at").is_err());
        assert!(Timestamp::MAX.check("run_at").is_ok());
    }
}
