//! Places in the source of a workflow.

use std::fmt;
use std::panic::Location;

/// A line of the source, `file:line`.
#[derive(Clone)]
pub struct SourceLine(Repr);

#[derive(Clone)]
enum Repr {
    /// In the running code.
    Compiled(&'static Location<'static>),
    /// Read from a record.
    Stored(Box<str>),
}

impl SourceLine {
    /// From the text of a record.
    pub fn stored(text: impl Into<Box<str>>) -> Self {
        Self(Repr::Stored(text.into()))
    }

    /// True when the place is unknown.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Stored(text) if text.is_empty())
    }
}

impl From<&'static Location<'static>> for SourceLine {
    fn from(location: &'static Location<'static>) -> Self {
        Self(Repr::Compiled(location))
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Compiled(location) => write!(f, "{}:{}", location.file(), location.line()),
            Repr::Stored(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for SourceLine {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}
