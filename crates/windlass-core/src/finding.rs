//! What an examination of a store finds.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Info,
    /// It may become a problem, or the store promises less than people may expect.
    Warning,
    /// It is a problem.
    Error,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The check that found it, in one word.
    pub check: &'static str,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Finding {
    /// A finding without a hint.
    pub fn new(severity: Severity, check: &'static str, message: impl Into<String>) -> Self {
        Self { severity, check, message: message.into(), hint: None }
    }

    /// A check that found nothing wrong.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, message)
    }

    /// Something that is good to know.
    pub fn info(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, check, message)
    }

    /// Something that may become a problem.
    pub fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, message)
    }

    /// A problem.
    pub fn error(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, check, message)
    }

    /// Sets what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
