//! Cron expressions in a time zone.
//!
//! croner knows the calendar: which times on the wall an expression names. Which moments these are is decided here,
//! because croner's own answer differs from what cron users know: it takes an expression for a fixed time of the day only
//! when second, minute and hour are single values, so that `0,30 2 * * *` would vanish in the hour that is left out in
//! spring and tick four times in autumn.

use super::rule::CRON_BYTES_MAX;
use super::zone;
use crate::error::{Error, Result};
use crate::time::Timestamp;
use croner::errors::CronError;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp as Moment};
use std::str::FromStr;

const FIELD: &str = "rule.expression";
/// More changes of the clock than any zone has from 1970 to 2200.
const CHANGES_MAX: usize = 2_000;
/// The years in which ticks are looked for. It bounds the search: croner's own bound is the year 5000.
const YEARS: &str = "1970-2200";

/// A cron expression in a time zone.
#[derive(Debug)]
pub(super) struct Cron {
    times: croner::Cron,
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
        let (second, rest) = match fields.as_slice() {
            rest @ [_, _, _, _, _] => ("0", rest),
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            other => {
                let advice =
                    "write minute, hour, day of the month, month, day of the week, with a second before them or not";
                return Err(Error::invalid(FIELD, format!("has {} fields, not 5 or 6; {advice}", other.len())));
            }
        };
        // croner reads over an empty item, and over a field of nothing else, which never matches, for a very long time.
        if fields.iter().any(|field| field.split(',').any(str::is_empty)) {
            return Err(refuse(expression, &CronError::InvalidPattern("a list has an empty item".to_owned())));
        }
        let wild = rest.iter().take(2).any(|field| field.starts_with('*'));
        let whole = format!("{second} {} {YEARS}", rest.join(" "));
        let times = croner::Cron::from_str(&whole).map_err(|error| refuse(expression, &error))?;
        Ok(Self { times, zone: zone::find(zone)?, wild })
    }

    /// The first tick after `after`.
    pub(super) fn next_after(&self, after: Timestamp) -> Result<Option<Timestamp>> {
        // A moment beyond what jiff knows lies beyond the calendar's end, too.
        let Ok(after) = Moment::from_millisecond(after.as_ms().max(-1)) else { return Ok(None) };
        let tick = if self.wild { self.next_wild(after)? } else { self.next_fixed(after)? };
        Ok(tick.map(|tick| Timestamp::from_ms(tick.as_millisecond())))
    }

    /// The first time on the wall, from `from` on, that the expression names.
    fn time_from(&self, from: DateTime) -> Result<Option<DateTime>> {
        match self.times.find_next_occurrence(&from, true) {
            Ok(time) => Ok(Some(time)),
            Err(CronError::TimeSearchLimitExceeded) => Ok(None),
            Err(error) => Err(refuse(self.times.as_str(), &error)),
        }
    }

    /// Every named time has one moment, and later times have no earlier moments.
    fn next_fixed(&self, after: Moment) -> Result<Option<Moment>> {
        let mut from = following_second(self.zone.to_datetime(after));
        for _ in 0..CHANGES_MAX {
            let Some(time) = self.time_from(from)? else { return Ok(None) };
            let Some(tick) = self.moment_of(time) else { return Ok(None) };
            if tick > after {
                return Ok(Some(tick));
            }
            // `after` lies in the second of two equal hours, and this time had its moment in the first of them.
            from = self.end_of_repetition(after).max(following_second(time));
        }
        Ok(None)
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
    fn next_wild(&self, after: Moment) -> Result<Option<Moment>> {
        let mut changes = self.zone.following(after);
        let mut offset = self.zone.to_offset(after);
        let mut from = following_second(offset.to_datetime(after));
        let mut time = self.time_from(from)?;
        for _ in 0..CHANGES_MAX {
            // The expression names no time from `from` up to `time`.
            let Some(tick) = time.and_then(|time| offset.to_timestamp(time).ok()) else { return Ok(None) };
            let change = match changes.next() {
                Some(change) if change.timestamp() <= tick => change,
                _ => return Ok(Some(tick)),
            };
            offset = change.offset();
            let start = offset.to_datetime(change.timestamp());
            if start < from || time.is_some_and(|time| time < start) {
                from = start;
                time = self.time_from(from)?;
            }
        }
        Ok(None)
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

/// The second after `time`; croner looks at whole seconds only.
fn following_second(time: DateTime) -> DateTime {
    time.saturating_add(SignedDuration::from_secs(1))
}

/// What cannot be meant, in words. They quote what the user typed, so its control characters are taken out.
pub(super) fn refusal(text: &str) -> Error {
    Error::invalid(FIELD, text.replace(|c: char| c.is_control(), " "))
}

fn refuse(expression: &str, error: &CronError) -> Error {
    let why = match error {
        CronError::InvalidPattern(why) | CronError::IllegalCharacters(why) | CronError::ComponentError(why) => {
            why.clone()
        }
        other => other.to_string(),
    };
    let ranges =
        "minutes go from 0 to 59, hours to 23, days from 1 to 31, months to 12, weekdays from 0 to 7, both Sunday";
    refusal(&format!("`{expression}` cannot be read: {}; {ranges}", why.trim_end_matches('.')))
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
