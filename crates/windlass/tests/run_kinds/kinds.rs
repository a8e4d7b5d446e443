//! The kinds.

use super::pass;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::core::job::Due;
use windlass::core::name::Kind;
use windlass::core::store::{ClaimedRun, InboxItem, RunItem, RunState, RunStep};
use windlass::runs::{RunKind, Turn};
use windlass::{Error, Result};

fn body(found: &InboxItem) -> Option<Bytes> {
    match &found.item {
        RunItem::Message { body, .. } => Some(Bytes::from(body.clone())),
        _ => None,
    }
}

/// A run that ends when it has received as many messages as its definition says.
pub(crate) struct Counter;

pub(crate) struct Counted {
    wanted: usize,
    received: Vec<Bytes>,
}

impl RunKind for Counter {
    type Definition = usize;
    type State = Counted;

    fn kind(&self) -> Result<Kind> {
        Kind::new("counter")
    }

    fn decode(&self, definition: &[u8]) -> Result<usize> {
        let text = std::str::from_utf8(definition).unwrap_or_default();
        text.parse().map_err(|error| Error::corrupt(format!("its definition `{text}`: {error}")))
    }

    fn begin(&self, _: &ClaimedRun, wanted: &Arc<usize>, input: &[u8]) -> Result<Counted> {
        Ok(Counted { wanted: **wanted, received: vec![Bytes::copy_from_slice(input)] })
    }

    fn replay(&self, state: &mut Counted, entries: &[Bytes]) -> Result<()> {
        state.received.extend_from_slice(entries);
        Ok(())
    }

    async fn decide(&self, state: &mut Counted, turn: &mut Turn) -> Result<Vec<RunStep>> {
        let new: Vec<Bytes> = turn.claimed().inbox.iter().filter_map(body).collect();
        if new.iter().any(|body| body == "nonsense") {
            return Err(Error::invalid("message", "makes no sense"));
        }
        state.received.extend_from_slice(&new);
        let is_done = state.received.len() > state.wanted;
        let run_state = if is_done { RunState::Succeeded } else { RunState::Running };
        Ok(vec![RunStep { history: new, state: run_state, ..RunStep::nothing() }])
    }

    fn summarize(&self, state: &Counted) -> String {
        format!("{} of {} messages after {:?}", state.received.len() - 1, state.wanted, state.received[0])
    }
}

pub(crate) const SLOW: Duration = Duration::from_secs(3);
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A run whose decisions take three seconds, and that notes the messages that arrive meanwhile. With the definition `go on` it
/// does not end with its first decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slow {
    pub(crate) begun: Arc<AtomicUsize>,
    pub(crate) made: Arc<AtomicUsize>,
}

impl RunKind for Slow {
    type Definition = RunState;
    type State = RunState;

    fn kind(&self) -> Result<Kind> {
        Kind::new("slow")
    }

    fn decode(&self, definition: &[u8]) -> Result<RunState> {
        Ok(if definition == b"go on" { RunState::Running } else { RunState::Succeeded })
    }

    fn begin(&self, _: &ClaimedRun, after: &Arc<RunState>, _: &[u8]) -> Result<RunState> {
        Ok(**after)
    }

    fn replay(&self, _: &mut RunState, _: &[Bytes]) -> Result<()> {
        Ok(())
    }

    async fn decide(&self, after: &mut RunState, turn: &mut Turn) -> Result<Vec<RunStep>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut entries: Vec<Bytes> = turn.claimed().inbox.iter().filter_map(body).collect();
        let mut time = std::pin::pin!(pass(SLOW));
        loop {
            tokio::select! {
                () = &mut time => break,
                arrived = turn.arrivals() => entries.extend(arrived.items.iter().filter_map(body)),
            }
        }
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(vec![RunStep { history: entries, state: *after, ..RunStep::nothing() }])
    }

    fn summarize(&self, _: &RunState) -> String {
        "decided".to_owned()
    }
}

/// A run whose decision fails in the way that its definition names.
pub(crate) struct Failing;

impl RunKind for Failing {
    type Definition = String;
    type State = String;

    fn kind(&self) -> Result<Kind> {
        Kind::new("failing")
    }

    fn decode(&self, definition: &[u8]) -> Result<String> {
        assert_ne!(definition, b"decode", "decode panics");
        Ok(String::from_utf8_lossy(definition).into_owned())
    }

    fn begin(&self, _: &ClaimedRun, how: &Arc<String>, _: &[u8]) -> Result<String> {
        assert_ne!(how.as_str(), "begin", "begin panics");
        Ok(how.to_string())
    }

    fn replay(&self, how: &mut String, _: &[Bytes]) -> Result<()> {
        assert_ne!(how, "replay", "replay panics");
        Ok(())
    }

    async fn decide(&self, how: &mut String, turn: &mut Turn) -> Result<Vec<RunStep>> {
        if how.starts_with("later ") {
            pass(LEASE * 2).await;
        }
        match how.trim_start_matches("later ") {
            "panic" => panic!("decide panics"),
            "invalid" => Err(Error::invalid("definition", "cannot be decided")),
            "unavailable" => Err(Error::Unavailable { reason: "by plan".to_owned() }),
            "nothing" => Ok(Vec::new()),
            "unread" => {
                // Read by the engine, and not by the decision.
                let done = turn.claimed().inbox.iter().filter_map(body).collect();
                Ok(vec![RunStep { history: done, ..RunStep::nothing() }])
            }
            "read" => {
                let items = turn.arrivals().await.items;
                let history = items.iter().filter_map(body).collect();
                Ok(vec![RunStep { history, state: RunState::Succeeded, ..RunStep::nothing() }])
            }
            _ => Ok(vec![RunStep { state: RunState::Succeeded, ..RunStep::nothing() }]),
        }
    }

    fn summarize(&self, how: &String) -> String {
        assert_ne!(how, "summarize", "summarize panics");
        if how == "long" { "é".repeat(5_000) } else { String::new() }
    }
}

/// A run that sleeps for a day, and decides slowly about messages.
pub(crate) struct Sleeper;

impl RunKind for Sleeper {
    type Definition = ();
    type State = ();

    fn kind(&self) -> Result<Kind> {
        Kind::new("counter")
    }

    fn decode(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn begin(&self, _: &ClaimedRun, _: &Arc<()>, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn replay(&self, (): &mut (), _: &[Bytes]) -> Result<()> {
        Ok(())
    }

    async fn decide(&self, (): &mut (), turn: &mut Turn) -> Result<Vec<RunStep>> {
        if !turn.claimed().inbox.is_empty() {
            pass(SLOW).await;
        }
        Ok(vec![RunStep { wake: Some(Due::DelayMs(86_400_000)), ..RunStep::nothing() }])
    }

    fn summarize(&self, (): &()) -> String {
        String::new()
    }
}
