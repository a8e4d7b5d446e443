//! The error of this library: a message for people, what to do next, and the store's own error for programs.

use std::fmt;
use windlass::Error;
use windlass::core::error::LANES_OF_A_QUEUE;

/// What kind of error it is. The command line turns it into an exit code, a server into a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The operation failed.
    Failed,
    /// The input is invalid; nothing was changed.
    Invalid,
    /// The store cannot be reached, or its answer was lost.
    Unavailable,
    /// What was named does not exist.
    NotFound,
    /// The present state does not allow the operation.
    Conflict,
    /// The user broke the operation off.
    Interrupted,
    /// The reader of an output has closed it.
    BrokenPipe,
}

/// Why an operation could not be done, and what to do next.
#[derive(Clone, Debug)]
pub struct OperateError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// What went wrong, in a sentence for people.
    pub message: String,
    /// What to do next, often as a command of the `windlass` command line.
    pub hint: Option<String>,
    /// The error of the store, if one was the cause.
    pub cause: Option<Error>,
}

impl OperateError {
    /// An error without a hint and without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, cause: None }
    }

    /// The operation failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// The input is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// What was named does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// The present state does not allow the operation.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// The user broke the operation off.
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "interrupted")
    }

    /// Sets what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Replaces the message; kind and cause stay.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }
}

impl fmt::Display for OperateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for OperateError {}

impl From<Error> for OperateError {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Unavailable { .. } | Error::Unknown { .. } | Error::Timeout { .. } => ErrorKind::Unavailable,
            Error::Invalid { .. } | Error::Limit { .. } => ErrorKind::Invalid,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::LeaseLost
            | Error::IllegalTransition { .. }
            | Error::Duplicate { .. }
            | Error::KeyTaken { .. }
            | Error::RunTaken { .. }
            | Error::RunRefused { .. } => ErrorKind::Conflict,
            _ => ErrorKind::Failed,
        };
        let message = match &error {
            // Without the advice to repeat the call with its ids: people do not have them.
            Error::Unknown { reason } => format!("the store's answer was lost: {reason}"),
            Error::Timeout { reason } => format!("no answer in time: {reason}"),
            error => error.to_string(),
        };
        let hint = match &error {
            Error::Limit { what, .. } if what.ends_with(LANES_OF_A_QUEUE) => Some(
                "use another queue, or fewer kinds and sets of labels; those without jobs are not counted".to_owned(),
            ),
            _ => None,
        };
        Self { kind, message, hint, cause: Some(error) }
    }
}

impl From<std::io::Error> for OperateError {
    fn from(error: std::io::Error) -> Self {
        let is_closed = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self::new(if is_closed { ErrorKind::BrokenPipe } else { ErrorKind::Failed }, error.to_string())
    }
}

/// What broke the connection, without the words that the error adds.
pub fn connection_failure(error: &Error) -> String {
    match error {
        Error::Unavailable { reason } | Error::Unknown { reason } | Error::Timeout { reason } => reason.clone(),
        other => other.to_string(),
    }
}
