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
