//! Why a run cannot be advanced by this build.

use crate::record::{Record, SourceLine};
use std::fmt;

/// One side of a mismatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// What this side has at the place in question.
    pub what: String,
    /// The line of the source that made it, `file:line`; empty when it is unknown.
    pub place: String,
    /// The build that the line belongs to; empty when it is unknown.
    pub build: String,
}

impl Side {
    pub(crate) fn new(what: impl Into<String>, place: Option<&SourceLine>, build: &str) -> Self {
        let place = place.map(SourceLine::to_string).unwrap_or_default();
        Self { what: what.into(), place, build: build.to_owned() }
    }

    pub(crate) fn of_record(record: &Record, build: &str) -> Self {
        Self::new(record.describe(), record.place(), build)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.place.is_empty() {
            write!(f, " at {}", self.place)?;
        }
        if !self.build.is_empty() {
            write!(f, " (build {})", self.build)?;
        }
        Ok(())
    }
}

/// Why a run cannot be advanced by this build. Nothing of the turn that failed may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stuck {
    /// The code does not do what the history says it did.
    Mismatch {
        /// The number of the record that does not match.
        number: u64,
        /// What the history has.
        history: Box<Side>,
        /// What the code did instead.
        code: Box<Side>,
    },
    /// The code of the workflow panicked. The text has the message and the place.
    Panic(String),
    /// A recorded value, the input or a message does not decode as the type that the code expects.
    Decode(String),
    /// The code used its `Wf` where it must not be used.
    Misuse(String),
    /// The code awaited a future that something outside of the run wakes.
    Foreign(String),
    /// The code waits, and nothing is outstanding that could wake it.
    Deadlock(String),
    /// The code woke itself more often than [`POLLS_MAX`](crate::POLLS_MAX) times in one turn.
    Livelock(String),
    /// The code has not returned to the executor for long: it blocks its thread.
    Blocked(String),
    /// The history of the segment is longer than the caller allows.
    TooLong(String),
}

impl Stuck {
    /// The kind of reason in one word: a label for metrics and listings.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Mismatch { .. } => "mismatch",
            Self::Panic(_) => "panic",
            Self::Decode(_) => "decode",
            Self::Misuse(_) => "misuse",
            Self::Foreign(_) => "foreign",
            Self::Deadlock(_) => "deadlock",
            Self::Livelock(_) => "livelock",
            Self::Blocked(_) => "blocked",
            Self::TooLong(_) => "too_long",
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { number, history, code } => {
                write!(
                    f,
                    "the code does not match record {number} of the history\n  history: {history}\n  code:    {code}"
                )
            }
            Self::Panic(text) => write!(f, "the workflow panicked: {text}"),
            Self::Decode(text)
            | Self::Misuse(text)
            | Self::Foreign(text)
            | Self::Deadlock(text)
            | Self::Livelock(text)
            | Self::Blocked(text)
            | Self::TooLong(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Stuck {}

/// The message that a stuck run cannot read. The reason of the run begins with it: `message 5 (record 12) does not decode: …`,
/// or `message 5 is not understood: …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The number of the message in the inbox. It may have been taken from there since: then its record is in the history.
    pub item: Option<u64>,
    /// The number of its record. The history may not have it yet: then the message stands in the inbox.
    pub record: Option<u64>,
    /// Code of an earlier build has received it: what the history has behind it may follow from it.
    pub was_received: bool,
}

const RECEIVED: &str = ", received by an earlier build";

impl Unreadable {
    /// A message in the inbox that is not even understood.
    pub const fn item(number: u64) -> Self {
        Self { item: Some(number), record: None, was_received: false }
    }

    /// Reads the reason of a stuck run; `None` if it is about something else.
    pub fn of_reason(reason: &str) -> Option<Self> {
        let ends = [" does not decode: ", " is not understood: "];
        let end = ends.into_iter().filter_map(|words| reason.find(words)).min()?;
        let (text, was_received) = match reason[..end].strip_suffix(RECEIVED) {
            Some(text) => (text, true),
            None => (&reason[..end], false),
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let (item, record) = match (text.strip_prefix("message "), text.strip_prefix("record ")) {
            (Some(text), _) => match text.split_once(" (record ") {
                Some((item, record)) => (Some(number(item)?), Some(number(record.strip_suffix(')')?)?)),
                None => (Some(number(text)?), None),
            },
            (None, Some(text)) => (None, Some(number(text)?)),
            (None, None) => return None,
        };
        Some(Self { item, record, was_received })
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.item, self.record) {
            (Some(item), Some(record)) => write!(f, "message {item} (record {record})")?,
            (Some(item), None) => write!(f, "message {item}")?,
            (None, record) => write!(f, "record {}", record.unwrap_or_default())?,
        }
        if self.was_received { f.write_str(RECEIVED) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unreadable_message_of_a_reason_is_found_again() {
        for item in [None, Some(5)] {
            for record in [None, Some(12)] {
                for was_received in [false, true] {
                    let message = Unreadable { item, record, was_received };
                    if (item, record) == (None, None) {
                        continue;
                    }
                    for what in ["does not decode", "is not understood"] {
                        let reason = format!("{message} {what}: message 7 does not decode: x (record 9)");
                        assert_eq!(Unreadable::of_reason(&reason), Some(message), "{reason}");
                    }
                }
            }
        }
        for other in
            ["the workflow panicked: message 5 does not decode: x", "message x is not understood: y", "message 5", ""]
        {
            assert_eq!(Unreadable::of_reason(other), None, "{other}");
        }
    }
}
