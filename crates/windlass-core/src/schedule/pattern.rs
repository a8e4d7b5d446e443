//! The fields of a cron expression, and the times on the wall that they name. Zones and changes of the clock are the
//! matter of `cron.rs`.

use jiff::civil::{Date, DateTime, Time, Weekday};

/// The years in which times are searched for, both included.
const YEARS: std::ops::RangeInclusive<i16> = 1970..=2200;
const NAMES: [(&str, &str); 20] = [
    // As the end of a range, Sunday is the last day of the week.
    ("-SUN", "-7"),
    ("SUN", "0"),
    ("MON", "1"),
    ("TUE", "2"),
    ("WED", "3"),
    ("THU", "4"),
    ("FRI", "5"),
    ("SAT", "6"),
    ("JAN", "1"),
    ("FEB", "2"),
    ("MAR", "3"),
    ("APR", "4"),
    ("MAY", "5"),
    ("JUN", "6"),
    ("JUL", "7"),
    ("AUG", "8"),
    ("SEP", "9"),
    ("OCT", "10"),
    ("NOV", "11"),
    ("DEC", "12"),
];

/// The parsed fields of a cron expression.
#[derive(Debug)]
pub(super) struct Pattern {
    seconds: Set,
    minutes: Set,
    hours: Set,
    months: Set,
    days: Days,
    weekdays: Weekdays,
    /// A day has to match both day fields, not one of them: the day of the week begins with `+`.
    both: bool,
}

/// The day of the month.
#[derive(Debug, Default)]
struct Days {
    /// The field is `*` or `?`.
    any: bool,
    plain: Set,
    /// `15W`: the weekday from Monday to Friday that is nearest to a day, within the month.
    nearest_weekday: Set,
    /// `L`: the last day of the month.
    last: bool,
    /// `LW`: the last day from Monday to Friday. It takes the place of `last`.
    last_weekday: bool,
}

/// The day of the week, where Sunday is 0.
#[derive(Debug, Default)]
struct Weekdays {
    /// The field is `*` or `?`.
    any: bool,
    plain: Set,
    /// `5#2`: the second Friday of the month is a 5 in the set at index 1.
    nth: [Set; 5],
    /// `5L`: the last Friday of the month.
    last: Set,
}

impl Pattern {
    /// Reads second, minute, hour, day of the month, month and day of the week. The error says which part is wrong.
    pub(super) fn parse(fields: [&str; 6]) -> Result<Self, String> {
        let [second, minute, hour, day, month, weekday] = fields.map(numbered);
        let (day, weekday) = (day.replace('?', "*"), weekday.replace('?', "*"));
        let (both, weekday) = weekday.strip_prefix('+').map_or((false, weekday.as_str()), |rest| (true, rest));
        for (field, more) in [(&*second, ""), (&minute, ""), (&hour, ""), (&day, "LW"), (&month, ""), (weekday, "L#")] {
            let known = |c: char| c.is_ascii_digit() || "*/,-".contains(c) || more.contains(c);
            if let Some(c) = field.chars().find(|c| !known(*c)) {
                return Err(format!("the character `{c}` has no meaning in `{field}`"));
            }
        }
        Ok(Self {
            seconds: plain(&second, 0, 59)?,
            minutes: plain(&minute, 0, 59)?,
            hours: plain(&hour, 0, 23)?,
            days: Days::parse(&day)?,
            months: plain(&month, 1, 12)?,
            weekdays: Weekdays::parse(weekday)?,
            both,
        })
    }

    /// The first time, from `from` on, that the pattern names; `None` when there is none up to the end of [`YEARS`].
    /// Fractions of a second are cut off.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let start = DateTime::new(*YEARS.start(), 1, 1, 0, 0, 0, 0).ok()?;
        let from = from.max(start);
        let mut date = from.date();
        if self.has_date(date)
            && let Some(time) = self.first_time_from(from.time())
        {
            return Some(date.to_datetime(time));
        }
        let midnight = self.first_time_from(Time::midnight())?;
        loop {
            date = if self.months.has(date.month().unsigned_abs()) { date } else { date.last_of_month() }
                .tomorrow()
                .ok()?;
            if !YEARS.contains(&date.year()) {
                return None;
            }
            if self.has_date(date) {
                return Some(date.to_datetime(midnight));
            }
        }
    }

    fn first_time_from(&self, time: Time) -> Option<Time> {
        let (hour, minute, second) =
            (time.hour().unsigned_abs(), time.minute().unsigned_abs(), time.second().unsigned_abs());
        let (hour, minute, second) = self.first_of_day(hour, minute, second)?;
        Time::new(hour.try_into().ok()?, minute.try_into().ok()?, second.try_into().ok()?, 0).ok()
    }

    fn first_of_day(&self, hour: u8, minute: u8, second: u8) -> Option<(u8, u8, u8)> {
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.first_from(second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = self.minutes.first_from(minute + 1) {
                return Some((hour, minute, self.seconds.first_from(0)?));
            }
        }
        Some((self.hours.first_from(hour + 1)?, self.minutes.first_from(0)?, self.seconds.first_from(0)?))
    }

    fn has_date(&self, date: Date) -> bool {
        let named = || match (self.days.any, self.weekdays.any) {
            (true, true) => true,
            (false, true) => self.days.has(date),
            (true, false) => self.weekdays.has(date),
            (false, false) if self.both => self.days.has(date) && self.weekdays.has(date),
            (false, false) => self.days.has(date) || self.weekdays.has(date),
        };
        YEARS.contains(&date.year()) && self.months.has(date.month().unsigned_abs()) && named()
    }
}

impl Days {
    fn parse(field: &str) -> Result<Self, String> {
        let mut days = Self { any: field == "*", ..Self::default() };
        for item in items(field) {
            match item.split_once('W') {
                _ if item.contains(['/', '-']) => days.plain.add(item, 1, 31)?,
                Some(("L", _)) => days.last_weekday = true,
                Some((day, _)) => days.nearest_weekday.add_number(day, 1, 31)?,
                None if item == "L" => days.last = true,
                None => days.plain.add(item, 1, 31)?,
            }
        }
        Ok(days)
    }

    fn has(&self, date: Date) -> bool {
        let last = date.last_of_month();
        let at_end = if self.last_weekday { nearest_weekday(last) == date } else { self.last && date == last };
        at_end || self.plain.has(date.day().unsigned_abs()) || self.is_nearest_weekday(date)
    }

    /// The nearest weekday is at most two days away.
    fn is_nearest_weekday(&self, date: Date) -> bool {
        let days = date.day().saturating_sub(2).max(1)..=date.day().saturating_add(2).min(date.days_in_month());
        self.nearest_weekday != Set::default()
            && days
                .filter(|day| self.nearest_weekday.has(day.unsigned_abs()))
                .any(|day| Date::new(date.year(), date.month(), day).is_ok_and(|named| nearest_weekday(named) == date))
    }
}

/// The day from Monday to Friday of the same month that is nearest to `date`.
fn nearest_weekday(date: Date) -> Date {
    let days = match date.weekday() {
        Weekday::Saturday if date.day() == 1 => 2,
        Weekday::Saturday => -1,
        Weekday::Sunday if date == date.last_of_month() => -2,
        Weekday::Sunday => 1,
        _ => 0,
    };
    Date::new(date.year(), date.month(), date.day() + days).unwrap_or(date)
}

impl Weekdays {
    fn parse(field: &str) -> Result<Self, String> {
        let mut weekdays = Self { any: field == "*", ..Self::default() };
        // `L` alone names no day of the week.
        for item in items(field).filter(|item| *item != "L") {
            let (days, nth) = match item.split_once('#') {
                Some((days, nth)) => (days, Some(nth)),
                None if item.contains(['/', '-']) || !item.ends_with('L') => (item, None),
                None => (item.split('L').next().unwrap_or_default(), Some("L")),
            };
            let set = match nth {
                None => &mut weekdays.plain,
                Some(nth) if nth.ends_with('L') && !nth.contains(['/', '-']) => &mut weekdays.last,
                Some(nth) => number(nth)
                    .and_then(|nth| weekdays.nth.get_mut(usize::from(nth).checked_sub(1)?))
                    .ok_or_else(|| format!("`{item}` does not name the 1st to 5th of a weekday"))?,
            };
            set.add(days, 0, 7)?;
            set.fold_sunday();
        }
        Ok(weekdays)
    }

    fn has(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset().unsigned_abs();
        let day = date.day().unsigned_abs();
        let nth = self.nth.get(usize::from((day - 1) / 7));
        self.plain.has(weekday)
            || nth.is_some_and(|set| set.has(weekday))
            || (self.last.has(weekday) && day + 7 > date.days_in_month().unsigned_abs())
    }
}

/// The field in upper case, with numbers in the place of names.
fn numbered(field: &str) -> String {
    NAMES.iter().fold(field.to_uppercase(), |field, (name, number)| field.replace(name, number))
}

/// The items of a list; none of `*`, which stands by itself.
fn items(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').filter(move |item| !item.is_empty() && field != "*")
}

fn plain(field: &str, low: u8, high: u8) -> Result<Set, String> {
    let mut set = if field == "*" { Set::range(low, high, 1) } else { Set::default() };
    items(field).try_for_each(|item| set.add(item, low, high))?;
    Ok(set)
}

fn number(text: &str) -> Option<u8> {
    text.parse().ok()
}

/// A set of numbers from 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn has(self, number: u8) -> bool {
        self.0 & (1 << number) != 0
    }

    /// The smallest number of the set that is not below `number`.
    fn first_from(self, number: u8) -> Option<u8> {
        (number..64).find(|number| self.has(*number))
    }

    fn range(first: u8, last: u8, step: u16) -> Self {
        Self((first..=last).step_by(step.into()).fold(0, |bits, number| bits | 1 << number))
    }

    /// Adds `5`, `1-5`, `*/2` or `1-5/2`.
    fn add(&mut self, item: &str, low: u8, high: u8) -> Result<(), String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let (first, last) = match range.split_once('-') {
            None if range == "*" && step.is_some() => (low, high),
            Some((first, last)) => (bounded(item, first, low, high)?, bounded(item, last, low, high)?),
            None if step.is_some() => return Err(format!("the step of `{item}` needs a range: write */n or a-b/n")),
            None => return self.add_number(range, low, high),
        };
        if first > last {
            return Err(format!("the range `{item}` ends before it begins"));
        }
        let step = match step.map(str::parse::<u16>) {
            None => 1,
            Some(Ok(step @ 1..)) => step,
            Some(_) => return Err(format!("the step of `{item}` is not a number above 0")),
        };
        self.0 |= Self::range(first, last, step).0;
        Ok(())
    }

    fn add_number(&mut self, text: &str, low: u8, high: u8) -> Result<(), String> {
        self.0 |= 1 << bounded(text, text, low, high)?;
        Ok(())
    }

    /// Sunday is 0 and 7.
    fn fold_sunday(&mut self) {
        self.0 = (self.0 | self.0 >> 7) & 0x7f;
    }
}

fn bounded(item: &str, text: &str, low: u8, high: u8) -> Result<u8, String> {
    number(text)
        .filter(|number| (low..=high).contains(number))
        .ok_or_else(|| format!("`{item}` is not a number from {low} to {high}, or a range of them"))
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
