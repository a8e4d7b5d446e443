//! Cron expressions in a time zone.
//!
//! [`Pattern`] finds the times on the wall that an expression names. Which moments these are is decided here.

use super::pattern::Pattern;
use super::rule::CRON_BYTES_MAX;
use super::zone;
use crate::error::{Error, Result};
use crate::time::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp as Moment};

const FIELD: &str = "rule.expression";
/// More changes of the clock than any zone has from 1970 to 2200.
const CHANGES_MAX: usize = 2_000;

/// A cron expression in a time zone.
#[derive(Debug)]
pub(super) struct Cron {
    times: Pattern,
    zone: TimeZone,
    /// It follows the clock instead of naming times of the day.
    wild: bool,
}

impl Cron {
    pub(super) fn parse(expression: &str, zone: &str) -> Result<Self> {
        if expression.len() > CRON_BYTES_MAX {
            return Err(Error::limit("rule.expression, in bytes,", CRON_BYTES_MAX as u64, expression.len() as u64));
        }
        let expression = nickname(expression.trim());
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let times = match *fields {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
            _ => {
                let advice =
                    "write minute, hour, day of the month, month, day of the week, with a second before them or not";
                return Err(Error::invalid(FIELD, format!("has {} fields, not 5 or 6; {advice}", fields.len())));
            }
        };
        if fields.iter().any(|field| field.split(',').any(str::is_empty)) {
            return Err(refuse(expression, "a list has an empty item"));
        }
        let [_, minute, hour, ..] = times;
        let wild = [minute, hour].iter().any(|field| field.starts_with('*'));
        let times = Pattern::parse(times).map_err(|reason| refuse(expression, &reason))?;
        Ok(Self { times, zone: zone::find(zone)?, wild })
    }

    /// The first tick after `after`.
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        // A moment beyond jiff's range lies beyond the calendar's end, too.
        let after = Moment::from_millisecond(after.as_ms().max(-1)).ok()?;
        let tick = if self.wild { self.next_wild(after) } else { self.next_fixed(after) };
        tick.map(|tick| Timestamp::from_ms(tick.as_millisecond()))
    }

    /// Every named time has one moment, and later times have no earlier moments.
    fn next_fixed(&self, after: Moment) -> Option<Moment> {
        let mut from = following_second(self.zone.to_datetime(after));
        for _ in 0..CHANGES_MAX {
            let time = self.times.first_from(from)?;
            let tick = self.moment_of(time)?;
            if tick > after {
                return Some(tick);
            }
            // `after` lies in the second of two equal hours, and this time had its moment in the first of them.
            from = self.end_of_repetition(after).max(following_second(time));
        }
        None
    }

    fn moment_of(&self, time: DateTime) -> Option<Moment> {
        match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(time).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(time).ok(),
            AmbiguousOffset::Gap { before, .. } => Some(self.change_at_or_before(before.to_timestamp(time).ok()?)),
        }
    }

    /// The last change of the clock that is not after `moment`; `moment` itself when there was none.
    fn change_at_or_before(&self, moment: Moment) -> Moment {
        let beyond = moment.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(moment);
        self.zone.preceding(beyond).next().map_or(moment, |change| change.timestamp())
    }

    /// What the clock would have shown at the last change, had it not been set back.
    fn end_of_repetition(&self, after: Moment) -> DateTime {
        let change = self.change_at_or_before(after);
        let before = change.saturating_sub(SignedDuration::from_secs(1)).unwrap_or(change);
        self.zone.to_offset(before).to_datetime(change)
    }

    /// Every moment at which the clock shows a named time: found span by span between the changes of the clock.
    fn next_wild(&self, after: Moment) -> Option<Moment> {
        let mut changes = self.zone.following(after);
        let mut offset = self.zone.to_offset(after);
        let mut from = following_second(offset.to_datetime(after));
        let mut time = self.times.first_from(from)?;
        for _ in 0..CHANGES_MAX {
            // The expression names no time from `from` up to `time`.
            let tick = offset.to_timestamp(time).ok()?;
            let change = match changes.next() {
                Some(change) if change.timestamp() <= tick => change,
                _ => return Some(tick),
            };
            offset = change.offset();
            let start = offset.to_datetime(change.timestamp());
            if start < from || time < start {
                from = start;
                time = self.times.first_from(from)?;
            }
        }
        None
    }
}

/// The expression that a nickname stands for.
fn nickname(expression: &str) -> &str {
    match expression.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => expression,
    }
}

/// The second after `time`; a pattern names whole seconds only.
fn following_second(time: DateTime) -> DateTime {
    time.saturating_add(SignedDuration::from_secs(1))
}

/// What cannot be meant, in words. They quote what the user typed, so its control characters are taken out.
pub(super) fn refusal(text: &str) -> Error {
    Error::invalid(FIELD, text.replace(|c: char| c.is_control(), " "))
}

fn refuse(expression: &str, reason: &str) -> Error {
    let ranges =
        "minutes go from 0 to 59, hours to 23, days from 1 to 31, months to 12, weekdays from 0 to 7, both Sunday";
    refusal(&format!("`{expression}` cannot be read: {reason}; {ranges}"))
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
