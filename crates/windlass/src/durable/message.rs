//! Messages to code runs. Their form is part of the protocol between versions and languages: it only grows.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use windlass_core::id::RunId;
use windlass_core::store::RunMessage;

/// A message to a code run. `cancel` and `resume` are those of graph runs, too.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum Message {
    /// A signal.
    Signal {
        /// The name of the signal.
        name: String,
        /// The message, JSON.
        body: Box<RawValue>,
    },
    /// The value of a promise.
    Resolve {
        /// The token of the promise within the run, 16 hexadecimal digits.
        token: String,
        /// The value, JSON.
        body: Box<RawValue>,
    },
    /// A request to cancel the run.
    Cancel {
        /// The reason, for people.
        reason: String,
    },
    /// Try again with a run that is stuck.
    Resume {
        /// The most records of the segment from now on, if that changes.
        #[serde(skip_serializing_if = "Option::is_none")]
        cap: Option<u64>,
    },
    /// The end of the run; the store itself acts on it.
    Terminate {
        /// The reason, for people.
        reason: String,
    },
}

/// The fields of any message. Raw JSON cannot be read through a tagged enum.
#[derive(Deserialize)]
struct Fields<'m> {
    #[serde(borrow)]
    say: Cow<'m, str>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    cap: Option<u64>,
    #[serde(default, borrow)]
    body: Option<&'m RawValue>,
}

impl Message {
    /// Reads a message; the error says why it cannot be one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Fields { say, name, token, reason, cap, body } =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let body = || body.unwrap_or(RawValue::NULL).to_owned();
        let missing = |field: &str| format!("a message `{say}` without `{field}`");
        Ok(match say.as_ref() {
            "signal" => Self::Signal { name: name.ok_or_else(|| missing("name"))?, body: body() },
            "resolve" => Self::Resolve { token: token.ok_or_else(|| missing("token"))?, body: body() },
            "cancel" => Self::Cancel { reason: reason.unwrap_or_default() },
            "resume" => Self::Resume { cap },
            "terminate" => Self::Terminate { reason: reason.unwrap_or_default() },
            other => return Err(format!("an unknown message `{other}`")),
        })
    }

    /// The message to one run.
    pub(super) fn to(&self, run: RunId) -> RunMessage {
        let message = RunMessage::new(run, serde_json::to_string(self).unwrap_or_default());
        match self {
            Self::Resume { .. } => RunMessage { reopens: true, only_if_stuck: true, ..message },
            Self::Terminate { .. } => RunMessage { terminates: true, ..message },
            Self::Signal { .. } | Self::Resolve { .. } | Self::Cancel { .. } => message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_form() {
        let body = RawValue::from_string("{\"a\":1.0}".to_owned()).unwrap();
        let examples = [
            (
                Message::Signal { name: "approve".into(), body: body.clone() },
                r#"{"say":"signal","name":"approve","body":{"a":1.0}}"#,
            ),
            (Message::Resolve { token: "00ff".into(), body }, r#"{"say":"resolve","token":"00ff","body":{"a":1.0}}"#),
            (Message::Cancel { reason: "late".into() }, r#"{"say":"cancel","reason":"late"}"#),
            (Message::Resume { cap: None }, r#"{"say":"resume"}"#),
            (Message::Resume { cap: Some(200_000) }, r#"{"say":"resume","cap":200000}"#),
            (Message::Terminate { reason: "broken".into() }, r#"{"say":"terminate","reason":"broken"}"#),
        ];
        for (message, text) in examples {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(serde_json::to_string(&Message::parse(text).unwrap()).unwrap(), text);
        }
        for text in ["", "{}", "null", r#"{"say":"signal"}"#, r#"{"say":"dance"}"#] {
            Message::parse(text).unwrap_err();
        }
    }
}
