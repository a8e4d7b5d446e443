//! Questions to a server, and its answers as plain texts and numbers. What is not answered is `None`, whatever the reason.

use crate::link::{Command, Link, Value};
use windlass_core::{Error, Result};

/// A command of these words.
pub(super) fn command(words: &[&str]) -> Command {
    let mut words = words.iter();
    let first = words.next().copied().unwrap_or_default();
    words.fold(Command::new(first), Command::arg)
}

/// The answer to a command.
pub(super) async fn ask(link: &Link, words: &[&str]) -> Option<Value> {
    link.command(&command(words)).await.ok()
}

/// The answers to commands, sent together.
pub(super) async fn ask_all(link: &Link, all: &[Vec<&str>]) -> Vec<Option<Value>> {
    let commands: Vec<Command> = all.iter().map(|words| command(words)).collect();
    match link.commands(&commands).await {
        Ok(answers) => answers.into_iter().map(Result::ok).collect(),
        Err(_) => all.iter().map(|_| None).collect(),
    }
}

/// Whether the server answers a command that only an examination sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The server answers the command.
    Granted,
    /// It has the command, and the user may not run it.
    Forbidden,
    /// It does not have the command: a managed service, or one that was renamed.
    Absent,
    /// It did not answer: the connection was lost, or the answer took too long.
    Unanswered,
}

impl Access {
    /// What the answer to a command shows.
    pub(super) fn of<T>(answer: &Result<T>) -> Self {
        match answer {
            Ok(_) => Self::Granted,
            Err(Error::Incompatible { .. }) => Self::Absent,
            Err(Error::Invalid { .. }) => Self::Forbidden,
            Err(_) => Self::Unanswered,
        }
    }

    /// Asks the server.
    pub(super) async fn to(link: &Link, words: &[&str]) -> Self {
        Self::of(&link.command(&command(words)).await)
    }

    /// Why nothing was learnt, and what to do about it; nothing when the server answers.
    pub(super) fn refusal(self, name: &str, rule: &str) -> Option<(String, String)> {
        match self {
            Self::Granted => None,
            Self::Forbidden => Some((format!("the user may not run {name}"), format!("grant {rule} to the user"))),
            Self::Absent => Some((
                format!("the server does not have {name}"),
                "at a managed service look at its console or monitoring; docs/redis-managed.md says what is not known then"
                    .to_owned(),
            )),
            Self::Unanswered => Some((
                format!("the server did not answer {name}"),
                "examine it again; if it repeats, look at the server's load and at the network".to_owned(),
            )),
        }
    }
}

/// How to change a setting of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Whether the server answers CONFIG.
    pub(super) config: Access,
}

impl Change {
    /// What to do so that a setting has this value.
    pub(super) fn advice(self, name: &str, value: &str) -> String {
        match self.config {
            Access::Granted => format!("redis-cli CONFIG SET {name} {value}, and the same line in redis.conf"),
            Access::Forbidden | Access::Absent | Access::Unanswered => format!(
                "set {name} to {value} where the server is configured: in redis.conf, or in the parameter group or console of a \
                 managed service"
            ),
        }
    }
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

pub(super) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

/// A value of a map, however the server writes maps.
pub(super) fn field(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Map(pairs) => {
            pairs.iter().find(|(key, _)| text(key).as_deref() == Some(name)).and_then(|(_, value)| text(value))
        }
        Value::Array(items) => items.chunks(2).find_map(|pair| match pair {
            [key, value] if text(key).as_deref() == Some(name) => text(value),
            _ => None,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{incompatible, timeout, unavailable, unknown};

    #[test]
    fn only_a_refusal_of_rights_is_reported_as_a_missing_right() {
        let of = |error: Error| Access::of::<()>(&Err(error));
        assert_eq!(Access::of(&Ok(())), Access::Granted);
        assert_eq!(of(incompatible("no such command")), Access::Absent);
        let denied =
            crate::error::read("NOPERM", "User u has no permissions to run the 'config|get' command").into_error();
        assert_eq!(of(denied), Access::Forbidden);
        for error in [timeout("slow"), unavailable("lost"), unknown("lost")] {
            let access = of(error.clone());
            assert_eq!(access, Access::Unanswered, "{error:?}");
            let (why, next) = access.refusal("CONFIG GET", "+config|get").unwrap();
            assert!(why.contains("did not answer") && !next.contains("grant"), "{why}; {next}");
        }
    }
}
