//! What can go wrong with a server, told so that a failed test needs no second look.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a server did not start, or did not do what it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program is not on this machine.
    #[error("`{program}` was not found: run `cargo xtask test`, which installs it, or set {variable}")]
    ProgramMissing {
        /// Its name.
        program: String,
        /// The variable that says where it is.
        variable: &'static str,
    },
    /// The operating system refused something.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// Its answer.
        source: io::Error,
    },
    /// A program that helps (`openssl`, `redis-cli`) failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// What was run.
        command: String,
        /// What it printed.
        output: String,
    },
    /// The server ended before it answered.
    #[error("the server ended ({status}) before it answered; its last lines:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// The server runs and does not answer.
    #[error("the server did not answer PING within {within:?} ({last}); its last lines:\n{log}")]
    NotReady {
        /// How long it was given.
        within: Duration,
        /// What became of the last attempt.
        last: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server is not running.
    #[error("the server on port {port} is down; `restart` it first")]
    Down {
        /// Its port.
        port: u16,
    },
    /// The server answered a command with an error.
    #[error("`{command}` on port {port} was answered: {reply}")]
    Refused {
        /// The server's port.
        port: u16,
        /// The command.
        command: String,
        /// The server's words.
        reply: String,
    },
    /// Something did not come about in time.
    #[error("waited {within:?} in vain until {until}; last seen: {last}")]
    TimedOut {
        /// How long.
        within: Duration,
        /// For what.
        until: String,
        /// What was there instead.
        last: String,
    },
    /// Every port that was tried is taken.
    #[error("no free port on 127.0.0.1 after {tried} tries")]
    NoFreePort {
        /// How many.
        tried: usize,
    },
    /// There is no such node, or it has another part than the call needs.
    #[error("{0}")]
    NoSuchNode(String),
}

impl ServerError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |source| Self::Io { doing, source }
    }

    /// Whether another process was quicker to take the port.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { log, .. } if log.contains("Address already in use"))
    }
}
