//! How a command ends when it cannot do what it was asked: what the user sees, and the exit code.

use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use windlass::core::store::RunState;
use windlass_operate::ErrorKind;
use windlass_operate::store_url::hide_passwords;

/// Why a command could not do what it was asked.
pub(crate) use windlass_operate::OperateError as Failure;

/// The documented exit code.
pub(crate) fn code(failure: &Failure) -> u8 {
    match failure.kind {
        ErrorKind::Failed | ErrorKind::BrokenPipe => 1,
        ErrorKind::Invalid => USAGE,
        ErrorKind::Unavailable => 3,
        ErrorKind::NotFound => 4,
        ErrorKind::Conflict => 5,
        ErrorKind::Interrupted => INTERRUPTED,
    }
}

const USAGE: u8 = 2;
const INTERRUPTED: u8 = 130;

/// As one JSON object.
pub(crate) fn to_json(failure: &Failure) -> serde_json::Value {
    let hint = failure.hint.as_deref().map(hide_passwords);
    json!({ "message": hide_passwords(&failure.message), "hint": hint, "cause": failure.cause, "exit_code": code(failure) })
}

/// Says it on standard error. When nobody reads what we write, there is nothing to say to anybody.
pub(crate) fn report(failure: &Failure, json: bool) -> ExitCode {
    if failure.kind == ErrorKind::BrokenPipe {
        return ExitCode::SUCCESS;
    }
    if json {
        say(to_json(failure));
    } else {
        let (red, bold) = (crate::ui::ERROR, crate::ui::STRONG);
        say(format_args!("{red}error:{red:#} {}", hide_passwords(&failure.message)));
        if let Some(hint) = &failure.hint {
            say(format_args!("{bold}hint:{bold:#} {}", hide_passwords(hint)));
        }
    }
    ExitCode::from(code(failure))
}

/// A line on standard error. When nobody reads it, nobody misses it.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// The exit code of a command that waits for a run.
pub(crate) fn exit_code(state: RunState) -> ExitCode {
    match state {
        RunState::Succeeded | RunState::Running => ExitCode::SUCCESS,
        RunState::Failed | RunState::TimedOut => ExitCode::FAILURE,
        RunState::Cancelled | RunState::Terminated => ExitCode::from(INTERRUPTED),
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
        let failure = Failure::invalid(cut(message.trim_start_matches("error: ").trim()));
        return report(&failure.hint(hint.unwrap_or("see --help")), true);
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
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
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
