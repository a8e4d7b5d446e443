//! Questions to a server, and its answers as plain texts and numbers. What is not answered is `None`, whatever the reason.

use crate::link::{Command, Link, Value};

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
