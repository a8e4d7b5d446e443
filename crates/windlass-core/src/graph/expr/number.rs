//! Numbers: whole ones keep all their digits, and are compared by them.

use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Why a text is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// It does not look like one.
    #[error("`{0}` is no number")]
    NoNumber(String),
    /// A whole number that would lose digits.
    #[error("`{0}` is too large to be kept exactly: whole numbers are from {min} to {max}", min = i64::MIN, max = u64::MAX)]
    TooLarge(String),
}

/// Reads a number: a whole one exactly, or not at all; one with a fraction or an exponent as a double.
pub fn parse_number(text: &str) -> Result<Number, NumberError> {
    if is_whole(text) {
        let number = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
        return number.map_err(|_| NumberError::TooLarge(text.to_owned()));
    }
    let number = text.parse().ok().and_then(Number::from_f64);
    number.ok_or_else(|| NumberError::NoNumber(text.to_owned()))
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number to compare.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compared {
    Whole(i128),
    Double(f64),
}

impl Compared {
    /// A value as a number, if it is one or the text of one.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Some(Self::Whole(whole.into())),
                (None, Some(whole)) => Some(Self::Whole(whole.into())),
                (None, None) => number.as_f64().map(Self::Double),
            },
            Value::String(text) => {
                let text = text.trim();
                let whole = is_whole(text).then(|| text.parse().ok().map(Self::Whole)).flatten();
                // One that is larger still is compared by its size alone.
                let double = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(Self::Double);
                whole.or_else(double)
            }
            _ => None,
        }
    }

    pub(super) fn order(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(&b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(&b),
            (Self::Whole(a), Self::Double(b)) => Some(order_with_double(a, b)),
            (Self::Double(a), Self::Whole(b)) => Some(order_with_double(b, a).reverse()),
        }
    }
}

/// A finite double beyond all whole numbers becomes the largest or smallest of them, which no number in use is.
#[expect(clippy::cast_possible_truncation, reason = "the fraction is compared afterwards, and the cast saturates")]
fn order_with_double(whole: i128, double: f64) -> Ordering {
    let below = double.floor();
    match whole.cmp(&(below as i128)) {
        Ordering::Equal if double > below => Ordering::Less,
        order => order,
    }
}
