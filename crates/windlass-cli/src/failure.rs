//! How a command ends when it cannot do what it was asked: what the user sees, and the exit code.

use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use windlass::Error;
use windlass::core::store::RunState;
use windlass_operate::store_url::hide_passwords;
use windlass_operate::{ErrorKind, OperateError};

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

    /// The same without what to do about it.
    pub(crate) fn without_hint(self) -> Self {
        Self { hint: None, ..self }
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
        let hint = self.hint.as_deref().map(hide_passwords);
        json!({ "message": hide_passwords(&self.message), "hint": hint, "cause": self.error, "exit_code": self.code as u8 })
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
            say(format_args!("{red}error:{red:#} {}", hide_passwords(&self.message)));
            if let Some(hint) = &self.hint {
                say(format_args!("{bold}hint:{bold:#} {}", hide_passwords(hint)));
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

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Self {
        let code = match error.kind {
            ErrorKind::Failed => Code::Failed,
            ErrorKind::Invalid => Code::Usage,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::Conflict,
        };
        Self { code, message: error.message, hint: error.hint, error: error.cause, quiet: false }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        OperateError::from(error).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let quiet = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::failed(error.to_string()) }
    }
}

/// The exit code of a command that waits for a run.
pub(crate) fn exit_code(state: RunState) -> ExitCode {
    match state {
        RunState::Succeeded | RunState::Running => ExitCode::SUCCESS,
        RunState::Failed => ExitCode::FAILURE,
        RunState::Cancelled => ExitCode::from(Code::Interrupted as u8),
    }
}

/// What the parser has to say: help and version are no failures. Programs get it as JSON, like any other failure.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && json {
        let text = hide_passwords(&error.to_string());
        let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let hint =
            rest.split("\n\n").map(str::trim).find(|part| part.starts_with("tip:") || part.starts_with("Usage:"));
        let failure = Failure::usage(cut(message.trim_start_matches("error: ").trim()));
        return failure.hint(hint.unwrap_or("see --help")).report(true);
    }
    if error.use_stderr() {
        // What was typed is repeated, and may be very long.
        say(hide_passwords(error.render().ansi().to_string().trim_end())
            .lines()
            .map(cut)
            .collect::<Vec<_>>()
            .join("\n"));
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
