//! Errors that workflow code receives and returns.

use std::error::Error as StdError;
use std::fmt;

/// An error of any type, as workflows return it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The longest message of an error that a history keeps, in bytes. The rest is cut off.
pub const ERROR_BYTES_MAX: usize = 16 << 10;

/// Why a call, a child or a local step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// All attempts failed, or one failed for good.
    Failed,
    /// A timeout of the call passed.
    TimedOut,
    /// The call, a scope around it, or the run was cancelled.
    Cancelled,
    /// The job or the child was terminated by an operator.
    Terminated,
    /// The input or the result is larger than the limit.
    TooLarge,
    /// The request is invalid: a name that no store accepts, or a value that JSON cannot hold.
    Invalid,
    /// The id of the child is taken by another run.
    Taken,
}

impl ErrorClass {
    /// Its name in records, messages and labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::Taken => "taken",
        }
    }

    /// The class of that name. A name that this version does not have counts as [`Failed`](Self::Failed).
    pub fn named(name: &str) -> Self {
        let all = [Self::TimedOut, Self::Cancelled, Self::Terminated, Self::TooLarge, Self::Invalid, Self::Taken];
        all.into_iter().find(|class| class.name() == name).unwrap_or(Self::Failed)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of a call, a child or a local step.
#[derive(Clone, Debug, PartialEq)]
pub struct CallError {
    /// The reason, for code to decide on.
    pub class: ErrorClass,
    /// The reason, for people.
    pub message: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// The value that the handler attached to its error.
    pub detail: Option<serde_json::Value>,
}

impl CallError {
    /// An error of this class, without detail and after no attempt. A message of more than [`ERROR_BYTES_MAX`] bytes is cut off.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: cut(message.into()), attempts: 0, detail: None }
    }

    /// A failure after one attempt.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { attempts: 1, ..Self::new(ErrorClass::Failed, message) }
    }

    /// The error of an operation that was cancelled.
    pub fn cancelled() -> Self {
        Self::new(ErrorClass::Cancelled, "cancelled")
    }

    /// The error in place of a value of `bytes` bytes, which is more than `bytes_max`.
    pub(crate) fn too_large(what: &str, bytes: usize, bytes_max: usize) -> Self {
        Self::new(ErrorClass::TooLarge, format!("{what} has {bytes} bytes, at most {bytes_max} are allowed"))
    }

    /// True when the operation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.class == ErrorClass::Cancelled
    }

    /// True when a timeout passed.
    pub fn is_timed_out(&self) -> bool {
        self.class == ErrorClass::TimedOut
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for CallError {}

pub(crate) fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(ERROR_BYTES_MAX));
    message
}

/// The run, or a scope around the operation, was cancelled.
///
/// A workflow that was asked to cancel and returns an error with this one among its [sources](StdError::source) ends as
/// cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cancelled")
    }
}

impl StdError for Cancelled {}

/// An error type for workflows that need none of their own.
///
/// Any type that converts into [`BoxError`] can be the error of a workflow.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A call, a child or a local step failed.
    Call(CallError),
    /// An operation was cancelled.
    Cancelled(Cancelled),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Cancelled(error) => error.fmt(f),
            Self::Other(message) => f.write_str(message),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Cancelled(error) => Some(error),
            Self::Other(_) => None,
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Cancelled> for Error {
    fn from(error: Cancelled) -> Self {
        Self::Cancelled(error)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::Other(message.to_owned())
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Other(message)
    }
}

/// True when `error` or one of its sources is a cancellation.
pub(crate) fn is_cancelled(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<Cancelled>() || error.downcast_ref::<CallError>().is_some_and(CallError::is_cancelled) {
            return true;
        }
        next = error.source();
    }
    false
}
