//! How a command ends when it cannot do what it was asked: what the user sees, and the exit code.

use crate::secrets::hide;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use windlass::Error;
use windlass::core::error::LANES_OF_A_QUEUE;

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The work failed.
    Failed = 1,
    /// The command line, the configuration or a value makes no sense.
    Usage = 2,
    /// The store cannot be reached.
    Unavailable = 3,
    /// There is no such thing.
    NotFound = 4,
    /// It is not possible as things stand.
    Conflict = 5,
    /// The user broke it off.
    Interrupted = 130,
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
    /// As the store said it, for programs.
    error: Option<Error>,
    /// Nobody reads what we write; there is nothing to say to anybody.
    quiet: bool,
}

impl Failure {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, error: None, quiet: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Code::Failed, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// What was named is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self.code, Code::NotFound)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// The same, as a matter of the store.
    pub(crate) fn made_unavailable(self) -> Self {
        Self { code: Code::Unavailable, ..self }
    }

    /// The same in other words.
    pub(crate) fn says(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Whether it says what to do.
    pub(crate) fn has_hint(&self) -> bool {
        self.hint.is_some()
    }

    /// What the store said, if it was the store.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether the user broke it off.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.code == Code::Interrupted
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }

    /// As one JSON object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let hint = self.hint.as_deref().map(hide);
        json!({ "message": hide(&self.message), "hint": hint, "cause": self.error, "exit_code": self.code as u8 })
    }

    pub(crate) fn interrupted() -> Self {
        Self::new(Code::Interrupted, "interrupted")
    }

    /// What to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says it on standard error.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        if json {
            say(self.to_json());
        } else {
            let (red, bold) = (crate::ui::ERROR, crate::ui::STRONG);
            say(format_args!("{red}error:{red:#} {}", hide(&self.message)));
            if let Some(hint) = &self.hint {
                say(format_args!("{bold}hint:{bold:#} {}", hide(hint)));
            }
        }
        self.code()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

/// A line on standard error. When nobody reads it, nobody misses it.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Unavailable { .. } | Error::Unknown { .. } | Error::Timeout { .. } => Code::Unavailable,
            Error::Invalid { .. } | Error::Limit { .. } => Code::Usage,
            Error::NotFound { .. } => Code::NotFound,
            Error::LeaseLost
            | Error::IllegalTransition { .. }
            | Error::Duplicate { .. }
            | Error::KeyTaken { .. }
            | Error::RunTaken { .. }
            | Error::RunRefused { .. } => Code::Conflict,
            _ => Code::Failed,
        };
        let message = match &error {
            // Without the advice to repeat the call with its ids: those went with the command.
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
        Self { error: Some(error), hint, ..Self::new(code, message) }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let quiet = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::failed(error.to_string()) }
    }
}

/// What the parser has to say: help and version are no failures. Programs get it as JSON, like any other failure.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && json {
        let text = hide(&error.to_string());
        let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let hint =
            rest.split("\n\n").map(str::trim).find(|part| part.starts_with("tip:") || part.starts_with("Usage:"));
        let failure = Failure::usage(cut(message.trim_start_matches("error: ").trim()));
        return failure.hint(hint.unwrap_or("see --help")).report(true);
    }
    if error.use_stderr() {
        // What was typed is repeated, and may be very long.
        say(hide(error.render().ansi().to_string().trim_end()).lines().map(cut).collect::<Vec<_>>().join("\n"));
    } else {
        // When nobody reads it, nobody misses it.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Code::Usage as u8))
}

/// Takes the middle out of a very long line: what matters stands at its ends.
fn cut(line: &str) -> String {
    const HALF: usize = 200;
    let length = line.chars().count();
    if length <= 2 * HALF {
        return line.to_owned();
    }
    let (head, tail): (String, String) =
        (line.chars().take(HALF).collect(), line.chars().skip(length - HALF).collect());
    format!("{head} … {tail}")
}
