//! How a handler says that it failed.

use std::any::Any;
use std::fmt;
use std::time::Duration;
use windlass_core::job::FailureClass;

/// What a handler's failure means for its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// As the job's policy says.
    #[default]
    Policy,
    /// Try again after this time, if an attempt is left.
    After(Duration),
    /// Never again: the job is dead.
    Never,
}

/// A handler's failure. Every error becomes one with `?`, those of `anyhow`, boxed ones and plain text included, and is
/// retried as the job's policy says.
///
/// ```
/// use windlass::JobError;
/// use std::time::Duration;
///
/// fn parse(text: &str) -> Result<u32, JobError> {
///     Ok(text.parse()?) // any error
/// }
/// assert!(parse("x").unwrap_err().to_string().contains("invalid digit"));
///
/// // The address does not exist and never will:
/// let dead = JobError::fatal("no such user");
/// // The provider says when to come back:
/// let later = JobError::new("429 Too Many Requests").retry_after(Duration::from_secs(30));
/// # let _ = (dead, later);
/// ```
pub struct JobError {
    message: String,
    then: Then,
    class: FailureClass,
    /// It was told to stop and did.
    of_stop: bool,
    detail: Option<serde_json::Value>,
}

impl JobError {
    /// A failure in words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self::classed(FailureClass::Error, message)
    }

    /// A failure that no further attempt can mend.
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self { then: Then::Never, ..Self::new(message) }
    }

    /// The same, to be tried again after `delay` whatever the policy says, as long as an attempt is left.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.then = Then::After(delay);
        self
    }

    /// The same with a value for code that reads the failure, such as a workflow: it is kept with the job and arrives in
    /// `CallError::detail`. At most 16 KiB of JSON; a larger value is left out, and the message says so.
    #[must_use]
    pub fn detail(mut self, value: impl serde::Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => self.detail = Some(value),
            Err(error) => self.message.push_str(&format!(" (its detail cannot be encoded as JSON: {error})")),
        }
        self
    }

    /// The same failure once more: a batch fails each of its jobs.
    pub(crate) fn again(&self) -> Self {
        let (message, detail) = (self.message.clone(), self.detail.clone());
        Self { message, then: self.then, class: self.class, of_stop: self.of_stop, detail }
    }

    /// A failure that is not the handler's own word: a panic, a timeout.
    pub(crate) fn classed(class: FailureClass, message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), then: Then::Policy, class, of_stop: false, detail: None }
    }

    /// That of a handler which has ended because it was told to: it is as if it had been dropped.
    #[cfg(all(unix, feature = "commands"))]
    pub(crate) fn of_stop() -> Self {
        Self { of_stop: true, ..Self::new("it was told to stop") }
    }

    pub(crate) fn is_of_stop(&self) -> bool {
        self.of_stop
    }

    /// The same in other words.
    #[cfg(all(unix, feature = "commands"))]
    pub(crate) fn in_words(mut self, words: impl FnOnce(String) -> String) -> Self {
        self.message = words(self.message);
        self
    }

    /// How the store files it.
    pub(crate) fn class(&self) -> FailureClass {
        self.class
    }

    /// The value that was attached to it.
    pub fn detail_value(&self) -> Option<&serde_json::Value> {
        self.detail.as_ref()
    }

    /// What it means for the job.
    pub fn then(&self) -> Then {
        self.then
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.then)
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for JobError {
    /// With everything that caused it.
    fn from(error: E) -> Self {
        let error: Box<dyn std::error::Error + Send + Sync> = error.into();
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let text = next.to_string();
            // Many errors repeat their cause in their own words.
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = next.source();
        }
        Self::new(message)
    }
}

/// The detail of a failure in place of a result that the store refused because of its size.
pub(crate) fn too_large_detail() -> serde_json::Value {
    serde_json::json!({ "windlass": "result_too_large" })
}

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order cannot be saved")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn an_error_tells_its_causes() {
        let cause = "x".parse::<u8>().unwrap_err();
        let error = JobError::from(Outer(cause));
        assert_eq!(error.to_string(), "the order cannot be saved: invalid digit found in string");
        assert_eq!(error.then(), Then::Policy);
    }

    #[test]
    fn boxed_errors_and_texts_are_errors_too() {
        let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new("x".parse::<u8>().unwrap_err());
        assert_eq!(JobError::from(boxed).to_string(), "invalid digit found in string");
        assert_eq!(JobError::from("no").to_string(), "no");
        assert_eq!(JobError::from("no".to_owned()).to_string(), "no");
        let passed_on = || -> Result<(), JobError> { Err(JobError::fatal("no"))? };
        assert_eq!(passed_on().unwrap_err().then(), Then::Never, "one that is one already stays what it is");
    }

    #[test]
    fn the_handler_decides_whether_to_try_again() {
        assert_eq!(JobError::fatal("no").then(), Then::Never);
        let later = JobError::fatal("no").retry_after(Duration::from_secs(3));
        assert_eq!(later.then(), Then::After(Duration::from_secs(3)));
    }
}
