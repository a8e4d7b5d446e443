//! Runs that follow a graph.

mod job;
mod lost;
mod message;
mod state;
mod steps;

pub use job::COMMAND_KIND;
pub(super) use message::Message;
pub use state::{GraphState, NodeTimes};
pub(super) use steps::Inbox;

use super::kind::{RunKind, Turn};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::graph::{Event, Graph};
use windlass_core::name::Kind;
use windlass_core::store::{ClaimedRun, InboxItem, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// About how much memory one node takes in the state of a run, in bytes.
const NODE_BYTES: usize = 400;

/// The kind of runs that follow a graph.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GraphRuns;

impl RunKind for GraphRuns {
    type Definition = Graph;
    type State = GraphState;

    fn kind(&self) -> Result<Kind> {
        graph_kind()
    }

    fn decode(&self, definition: &[u8]) -> Result<Graph> {
        decode_definition(definition)
    }

    fn begin(&self, run: &ClaimedRun, graph: &Arc<Graph>, input: &[u8]) -> Result<GraphState> {
        Ok(GraphState::new(run.lease.run, Arc::clone(graph), Arc::new(decode_input(input)?)))
    }

    fn replay(&self, state: &mut GraphState, entries: &[Bytes]) -> Result<()> {
        state.replay(entries)
    }

    async fn decide(&self, state: &mut GraphState, turn: &mut Turn) -> Result<Vec<RunStep>> {
        let inbox = lost::whole_inbox(state, turn).await?;
        state.decide(inbox, turn.now(), turn.ids())
    }

    async fn clean_up(&self, state: &mut GraphState, _turn: &mut Turn) -> Result<Vec<RunStep>> {
        Ok(vec![steps::terminated(state)])
    }

    fn summarize(&self, state: &GraphState) -> String {
        state.summary()
    }

    fn accepts(&self, state: &GraphState, inbox: &[InboxItem]) -> bool {
        state.has_jobs_of(inbox)
    }

    fn size(&self, state: &GraphState) -> usize {
        (state.graph.nodes.len() + 1) * NODE_BYTES
    }
}

/// The kind of runs that follow a graph, as the store has it.
const GRAPH_KIND: &str = "graph";

pub(super) fn graph_kind() -> Result<Kind> {
    Kind::new(GRAPH_KIND)
}

/// The stored form of a definition.
#[derive(Serialize, Deserialize)]
struct Definition<G> {
    version: u32,
    graph: G,
}

/// The stored form of the inputs.
#[derive(Serialize, Deserialize)]
struct Input<V> {
    inputs: V,
}

const VERSION: u32 = 1;

pub(super) fn encode_definition(graph: &Graph) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(&Definition { version: VERSION, graph });
    text.map_err(|error| Error::invalid("graph", error.to_string()))
}

pub(super) fn decode_definition(bytes: &[u8]) -> Result<Graph> {
    let definition: Definition<Graph> =
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("its definition: {error}")))?;
    if definition.version != VERSION {
        let what = format!("its definition has version {}, this program knows {VERSION}", definition.version);
        return Err(Error::Incompatible { what });
    }
    definition.graph.check().map_err(|fault| Error::corrupt(format!("its definition: {fault}")))?;
    Ok(definition.graph)
}

pub(super) fn encode_input(inputs: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(&Input { inputs }).map_err(|error| Error::invalid("inputs", error.to_string()))
}

pub(super) fn decode_input(bytes: &[u8]) -> Result<Value> {
    let input: Input<Value> =
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("its input: {error}")))?;
    Ok(input.inputs)
}

/// An entry of a history: its time and its event.
pub(super) type Entry = (Timestamp, Event);

fn encode_entry(at: Timestamp, event: &Event) -> Result<Vec<u8>> {
    serde_json::to_vec(&(at.as_ms(), event)).map_err(|error| Error::invalid("event", error.to_string()))
}

pub(super) fn decode_entry(bytes: &[u8]) -> Result<Entry> {
    let (ms, event): (i64, Event) =
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("its history: {error}")))?;
    Ok((Timestamp::from_ms(ms), event))
}
