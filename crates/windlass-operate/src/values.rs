//! Values as people type them, on a command line and in a bulk file: durations, rates, retry policies, `key=value`.

use crate::text::{TIME_UNITS, excerpt};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use windlass::core::rate::Rate;
use windlass::core::retry::RetryPolicy;

/// Why a typed value is invalid, in a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue(pub String);

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidValue {}

/// A duration as it is typed: `500ms`, `30s`, `5m`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its length in milliseconds.
    pub ms: u64,
}

impl Span {
    /// The same as a [`Duration`].
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

impl FromStr for Span {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wrong =
            |why: &str| InvalidValue(format!("`{}` {why}; write it as 500ms, 30s, 5m, 2h or 7d", excerpt(text)));
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(wrong("is no length of time"));
        }
        if unit.is_empty() {
            return Err(wrong("has no unit"));
        }
        let (_, unit_ms) =
            TIME_UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(|| wrong("has no unit I know"))?;
        let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
        ms.map(|ms| Self { ms }).ok_or_else(|| wrong("is longer than I can count"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = TIME_UNITS.into_iter().find(|(_, unit_ms)| self.ms >= *unit_ms && self.ms.is_multiple_of(*unit_ms));
        let (unit, unit_ms) = exact.unwrap_or(("ms", 1));
        write!(f, "{}{unit}", self.ms / unit_ms)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

fn from_text<'de, T: FromStr<Err = InvalidValue>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// A rate as it is typed: `100/1m` is a hundred starts a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateText(pub Rate);

impl FromStr for RateText {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wrong =
            || InvalidValue(format!("`{}` is no rate; write how many starts in how long, as 100/1m", excerpt(text)));
        let (limit, window) = text.split_once('/').ok_or_else(wrong)?;
        let limit = limit.parse().map_err(|_| wrong())?;
        let Span { ms: per_ms } = window.parse()?;
        let rate = Rate { limit, per_ms };
        rate.check().map_err(|error| InvalidValue(error.to_string()))?;
        Ok(Self(rate))
    }
}

/// The form of a rate that [`RateText`] parses.
pub fn rate_text(rate: Rate) -> String {
    format!("{}/{}", rate.limit, Span { ms: rate.per_ms })
}

/// A setting as it is typed: a value, or `none` to clear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrNone<T> {
    /// Typed as `none`.
    Clear,
    /// A value.
    To(T),
}

impl<T> OrNone<T> {
    /// The value; `None` when the setting is cleared.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Clear => None,
            Self::To(value) => Some(value),
        }
    }
}

impl<T: FromStr> FromStr for OrNone<T>
where
    T::Err: fmt::Display,
{
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        if text == "none" {
            return Ok(Self::Clear);
        }
        text.parse().map(Self::To).map_err(|error| InvalidValue(format!("{error} (or `none` to clear it)")))
    }
}

/// A retry policy as it is typed: `none`, `fixed:5s`, `exponential:1s..1h`, `delays:1s,10s`, `by_kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryText(pub RetryPolicy);

const RETRY_FORMS: &str = "none, fixed:5s, exponential:1s..1h, exponential:1s..1h,factor=3,jitter=10, delays:1s,10s,1m \
                           or by_kind";

impl FromStr for RetryText {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wrong = || InvalidValue(format!("`{}` is no retry policy; write {RETRY_FORMS}", excerpt(text)));
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let policy = match (name, rest) {
            ("none", "") => RetryPolicy::None,
            ("by_kind", "") => RetryPolicy::ByKind,
            ("exponential", "") => RetryPolicy::default(),
            ("fixed", delay) => RetryPolicy::Fixed { delay_ms: delay.parse::<Span>()?.ms },
            ("delays", list) => {
                let delays: Result<Vec<Span>, InvalidValue> = list.split(',').map(str::parse).collect();
                RetryPolicy::Delays { delays_ms: delays?.into_iter().map(|span| span.ms).collect() }
            }
            ("exponential", rest) => exponential(rest).ok_or_else(wrong)??,
            _ => return Err(wrong()),
        };
        policy.check().map_err(|error| InvalidValue(error.to_string()))?;
        Ok(Self(policy))
    }
}

/// `1s..1h`, perhaps followed by `,factor=3` and `,jitter=10`; `None` when the text has another form.
fn exponential(text: &str) -> Option<Result<RetryPolicy, InvalidValue>> {
    let mut parts = text.split(',');
    let (base, cap) = parts.next()?.split_once("..")?;
    let (mut factor, mut jitter_percent) = (2, 20);
    for part in parts {
        match part.split_once('=')? {
            ("factor", value) => factor = value.parse().ok()?,
            ("jitter", value) => jitter_percent = value.parse().ok()?,
            _ => return None,
        }
    }
    let read = |text: &str| text.parse::<Span>().map(|span| span.ms);
    Some(
        read(base)
            .and_then(|base_ms| Ok(RetryPolicy::Exponential { base_ms, factor, cap_ms: read(cap)?, jitter_percent })),
    )
}

impl<'de> Deserialize<'de> for RetryText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// Splits `key=value`.
pub fn pair(text: &str) -> Result<(String, String), InvalidValue> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(InvalidValue(format!("`{}` is no pair; write it as key=value", excerpt(text)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000)] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.ms, span.to_string().as_str()), (ms, text));
        }
        assert_eq!("0s".parse::<Span>().unwrap().to_string(), "0ms");
        for bad in ["", "5", "m", "-5m", "1.5h", "5 m", "5min", "99999999999999999999d", "1h30m"] {
            let error = bad.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains("500ms, 30s, 5m, 2h or 7d"), "{bad}: {error}");
        }
    }

    #[test]
    fn rates_and_policies_are_read_and_checked() {
        assert_eq!("100/1m".parse(), Ok(RateText(Rate { limit: 100, per_ms: 60_000 })));
        assert_eq!(rate_text(Rate { limit: 5, per_ms: 1_000 }), "5/1s");
        for bad in ["100", "x/1m", "0/1m", "5/0s", "5/60", "5/99d"] {
            assert!(bad.parse::<RateText>().is_err(), "{bad}");
        }
        assert_eq!("exponential:1s..1h".parse(), Ok(RetryText(RetryPolicy::default())));
        let given = "exponential:1s..1h,factor=3,jitter=0".parse::<RetryText>().unwrap().0;
        assert!(matches!(given, RetryPolicy::Exponential { factor: 3, jitter_percent: 0, .. }));
        assert_eq!("delays:1s,2s".parse(), Ok(RetryText(RetryPolicy::Delays { delays_ms: vec![1_000, 2_000] })));
        for bad in
            ["", "never", "fixed", "fixed:5", "exponential:1h..1s", "exponential:1s..9999d", "none:1s", "delays:"]
        {
            assert!(bad.parse::<RetryText>().is_err(), "{bad}");
        }
        assert_eq!("none".parse(), Ok(OrNone::<Span>::Clear));
        assert_eq!("5".parse(), Ok(OrNone::To(5u32)));
    }
}
