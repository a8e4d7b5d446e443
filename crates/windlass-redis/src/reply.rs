//! What scripts answer, taken apart in one place: an answer that is not understood is a fault, never a guess.

use crate::link::Value;
use bytes::Bytes;
use windlass_core::job::{State, Verb};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// An answer that no script gives.
pub(crate) fn odd(what: &str) -> Error {
    Error::corrupt(format!("the store's answer cannot be understood: {what}"))
}

/// The items of an answer, one after the other.
pub(crate) struct Items(std::vec::IntoIter<Value>);

impl Items {
    pub(crate) fn of(value: Value) -> Result<Self> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
            _ => Err(odd("it is no list")),
        }
    }

    /// None at all.
    pub(crate) fn none() -> Self {
        Self(Vec::new().into_iter())
    }

    /// Those of a map, names and values by turns, however the server writes it.
    pub(crate) fn of_map(value: Value) -> Result<Self> {
        match value {
            Value::Map(pairs) => {
                Ok(Self(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect::<Vec<_>>().into_iter()))
            }
            other => Self::of(other),
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// All that are left, as `read` takes them.
    pub(crate) fn all<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.left());
        while self.left() > 0 {
            all.push(read(self)?);
        }
        Ok(all)
    }

    fn next(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| odd("it is too short"))
    }

    /// Bytes, or nothing.
    pub(crate) fn maybe(&mut self) -> Result<Option<Bytes>> {
        match self.next()? {
            Value::Nil => Ok(None),
            value => bytes(value).map(Some),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes> {
        self.maybe()?.ok_or_else(|| odd("something is missing"))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        text(&self.bytes()?).map(str::to_owned)
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>> {
        self.maybe()?.map(|bytes| text(&bytes).map(str::to_owned)).transpose()
    }

    /// A number, be it one or the text of one.
    pub(crate) fn number(&mut self) -> Result<u64> {
        match self.next()? {
            Value::Int(number) => u64::try_from(number).map_err(|_| odd("a number is negative")),
            value => number(text(&bytes(value)?)?),
        }
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        time(text(&self.bytes()?)?)
    }

    /// The next few, apart from the others.
    pub(crate) fn take(&mut self, count: usize) -> Self {
        Self(self.0.by_ref().take(count).collect::<Vec<_>>().into_iter())
    }

    pub(crate) fn list(&mut self) -> Result<Self> {
        Self::of(self.next()?)
    }
}

/// Checks the items of a batch: what was found of each, and those that may be sent.
pub(crate) fn sound<T>(items: &[T], check: impl Fn(&T) -> Result<()>) -> (Vec<Result<()>>, Vec<&T>) {
    let checks: Vec<Result<()>> = items.iter().map(check).collect();
    let sound = items.iter().zip(&checks).filter(|(_, check)| check.is_ok()).map(|(item, _)| item).collect();
    (checks, sound)
}

fn bytes(value: Value) -> Result<Bytes> {
    match value {
        Value::BulkString(bytes) => Ok(Bytes::from(bytes)),
        Value::SimpleString(text) => Ok(Bytes::from(text)),
        Value::Okay => Ok(Bytes::from_static(b"OK")),
        Value::Int(number) => Ok(Bytes::from(number.to_string())),
        _ => Err(odd("it is no text")),
    }
}

/// A whole answer that is bytes, or nothing.
pub(crate) fn maybe_one(value: Value) -> Result<Option<Bytes>> {
    if value == Value::Nil { Ok(None) } else { bytes(value).map(Some) }
}

/// A whole answer that is one text.
pub(crate) fn one(value: Value) -> Result<String> {
    text(&bytes(value)?).map(str::to_owned)
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| odd("it is no UTF-8"))
}

pub(crate) fn number<N: std::str::FromStr>(text: &str) -> Result<N> {
    text.parse().map_err(|_| odd(&format!("`{text}` is no number")))
}

pub(crate) fn hex(text: &str) -> Result<u64> {
    u64::from_str_radix(text, 16).map_err(|_| odd(&format!("`{text}` is no number")))
}

pub(crate) fn hex_time(text: &str) -> Result<Timestamp> {
    i64::try_from(hex(text)?).map(Timestamp::from_ms).map_err(|_| odd("a time is out of range"))
}

/// A time with zeros before it, or dashes.
pub(crate) fn padded_time(text: &str) -> Result<Option<Timestamp>> {
    if text.starts_with("--") { Ok(None) } else { time(text).map(Some) }
}

/// A number, or a dash for none.
pub(crate) fn maybe<N: std::str::FromStr>(text: &str) -> Result<Option<N>> {
    if text == "-" { Ok(None) } else { number(text).map(Some) }
}

pub(crate) fn time(text: &str) -> Result<Timestamp> {
    number(text).map(Timestamp::from_ms)
}

pub(crate) fn maybe_time(text: &str) -> Result<Option<Timestamp>> {
    Ok(maybe(text)?.map(Timestamp::from_ms))
}

/// The letter of a state.
pub(crate) fn state_letter(state: State) -> &'static str {
    match state {
        State::Scheduled => "s",
        State::Ready => "r",
        State::Active => "a",
        State::Succeeded => "S",
        State::Failed => "F",
        State::Cancelled => "C",
    }
}

pub(crate) fn state(letter: &str) -> Result<State> {
    let found = State::ALL.into_iter().find(|state| state_letter(*state) == letter);
    found.ok_or_else(|| odd(&format!("`{letter}` is no state")))
}

pub(crate) fn verb(name: &str) -> Result<Verb> {
    let all = Verb::ALL.into_iter().chain([Verb::Enqueue]);
    all.into_iter().find(|verb| verb.as_str() == name).ok_or_else(|| odd(&format!("`{name}` is no verb")))
}

/// `illegal <state> <verb>`, without its first word.
pub(crate) fn illegal(rest: &str) -> Error {
    let parts = rest.split_once(' ').ok_or_else(|| odd(rest));
    match parts.and_then(|(from, what)| Ok((state(from)?, verb(what)?))) {
        Ok((from, verb)) => Error::IllegalTransition { from, verb },
        Err(error) => error,
    }
}
