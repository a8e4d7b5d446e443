//! Code runs by the names of their workflows, for tools that do not have the code.

use super::client::RunHandle;
use super::message::Message;
use super::start::{CodeDefinition, FirstSignal, ReusePolicy, StartOptions};
use crate::client::Client;
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use windlass_core::name::Kind;
use windlass_core::store::RunMessage;
use windlass_core::{Error, Result};
use windlass_durable::RunRetry;

/// A code run to start without its code.
#[derive(Clone, Debug)]
pub struct UntypedStart {
    /// The workflow and its version, `name@version`.
    pub kind: String,
    /// The input, JSON. Only the code can tell whether it has the right form: an input that it cannot read makes the run stuck.
    pub input: Box<RawValue>,
    /// An id of the caller, such as that of the order; `None` for an id of its own.
    pub id: Option<String>,
    /// What to do when a run of the same id has ended.
    pub reuse: ReusePolicy,
    /// The time until the code starts.
    pub delay_ms: Option<u64>,
    /// The time after which the run is cancelled and ends as timed out.
    pub timeout_ms: Option<u64>,
    /// How long the run is kept when it has ended; by default 14 days.
    pub keep_ms: Option<u64>,
    /// Labels by which the run is found in lists.
    pub labels: BTreeMap<String, String>,
    /// How often the run is started again when it has failed.
    pub retry: RunRetry,
    /// Signals that the run gets with its start; see [`Start::signal`](super::Start::signal).
    pub signals: Vec<UntypedSignal>,
}

/// A signal to start a run with.
#[derive(Clone, Debug)]
pub struct UntypedSignal {
    /// The id of the message; `None` for one that is made up.
    pub id: Option<String>,
    /// The name of the signal.
    pub name: String,
    /// The message, JSON.
    pub body: Box<RawValue>,
}

impl UntypedStart {
    /// A start without options.
    pub fn new(kind: impl Into<String>, input: Box<RawValue>) -> Self {
        Self {
            kind: kind.into(),
            input,
            id: None,
            reuse: ReusePolicy::default(),
            delay_ms: None,
            timeout_ms: None,
            keep_ms: None,
            labels: BTreeMap::new(),
            retry: RunRetry::default(),
            signals: Vec::new(),
        }
    }
}

/// The kind of a workflow as people write it: `name` stands for `name@1`.
pub fn kind_named(text: &str) -> Result<Kind> {
    let (name, version) = text.split_once('@').unwrap_or((text, "1"));
    windlass_core::name::check("kind", name)?;
    match version.parse::<u32>() {
        Ok(number) if number.to_string() == version => Kind::new(format!("{name}@{version}")),
        _ => Err(Error::invalid("kind", "has a version that is not a number; write it as order@2")),
    }
}

/// The timeout in the definition of a code run, counted from the start of the run.
pub fn timeout_ms_of(definition: &[u8]) -> Result<Option<u64>> {
    let definition: CodeDefinition = serde_json::from_slice(definition)
        .map_err(|error| Error::corrupt(format!("the definition of a code run: {error}")))?;
    Ok(definition.timeout_ms)
}

impl Client {
    /// Starts a run of a workflow by its name. Until a worker has registered the workflow, the run waits.
    pub async fn start_untyped(&self, start: UntypedStart) -> Result<RunHandle<()>> {
        let UntypedStart { kind, input, id, reuse, delay_ms, timeout_ms, keep_ms, labels, retry, signals } = start;
        let signal = |UntypedSignal { id, name, body }: UntypedSignal| FirstSignal { id, name, body };
        let signals = signals.into_iter().map(signal).collect();
        let options = StartOptions { id, reuse, delay_ms, timeout_ms, keep_ms, labels, retry, signals };
        let input = Bytes::copy_from_slice(input.get().as_bytes());
        let id = options.start(self, kind_named(&kind)?, input).await?;
        Ok(self.run_by_id(id))
    }
}

impl RunHandle<()> {
    /// Sends a signal by its name, with the id of the message if it has one. The store drops a signal whose id is among the last
    /// 1,000 that the run was sent.
    pub async fn signal_json(&self, name: &str, body: Box<RawValue>, message_id: Option<String>) -> Result<()> {
        windlass_core::name::check("signal", name)?;
        let message = Message::Signal { name: name.to_owned(), body }.to(self.id());
        self.send(RunMessage { id: message_id, ..message }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_a_version_is_the_first_version() {
        assert_eq!(kind_named("order").unwrap().as_str(), "order@1");
        assert_eq!(kind_named("order@12").unwrap().as_str(), "order@12");
        for wrong in ["", "@1", "order@", "order@two", "order@01", "order@1@2", "a\tb", "order@-1"] {
            kind_named(wrong).unwrap_err();
        }
    }
}
