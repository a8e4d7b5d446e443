//! Runs of workflows: started, followed, cancelled, run once more; and the engine that advances them.
//!
//! A run is kept by the store and advanced by any process that runs an [`Engine`]; every [`Worker`](crate::Worker) does,
//! unless it is told not to. Whoever starts a run need not stay: nothing of it lives in a process.

mod cache;
mod client;
mod engine;
mod flow;
mod job;
mod lost;
mod message;
mod mind;
mod needs;
mod retry;
mod start;
mod status;

pub use client::{NewGraphRun, Rerun, Runs};
pub use engine::Engine;
pub use flow::{Flow, OnFailure};
pub use job::COMMAND_KIND;
pub use needs::{NeedEnd, Needs};
pub use start::{StartRun, start_run};
pub use status::{NodeTimes, RunStatus};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::graph::{Event, Graph};
use windlass_core::name::Kind;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// The kind of runs that follow a graph.
const GRAPH_KIND: &str = "graph";

fn graph_kind() -> Result<Kind> {
    Kind::new(GRAPH_KIND)
}

/// What a graph run is about, as it is kept.
#[derive(Serialize, Deserialize)]
struct Definition<G> {
    version: u32,
    graph: G,
}

/// What a graph run was given, as it is kept.
#[derive(Serialize, Deserialize)]
struct Input<V> {
    inputs: V,
}

const VERSION: u32 = 1;

fn encode_definition(graph: &Graph) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(&Definition { version: VERSION, graph });
    text.map_err(|error| Error::invalid("graph", error.to_string()))
}

fn decode_definition(bytes: &[u8]) -> Result<Graph> {
    let definition: Definition<Graph> =
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("its definition: {error}")))?;
    if definition.version != VERSION {
        let what = format!("its definition has version {}, this program knows {VERSION}", definition.version);
        return Err(Error::Incompatible { what });
    }
    definition.graph.check().map_err(|fault| Error::corrupt(format!("its definition: {fault}")))?;
    Ok(definition.graph)
}

fn encode_input(inputs: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(&Input { inputs }).map_err(|error| Error::invalid("inputs", error.to_string()))
}

fn decode_input(bytes: &[u8]) -> Result<Value> {
    let input: Input<Value> =
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("its input: {error}")))?;
    Ok(input.inputs)
}

/// An entry of a history: when, and what.
type Entry = (Timestamp, Event);

fn encode_entry(at: Timestamp, event: &Event) -> Result<Vec<u8>> {
    serde_json::to_vec(&(at.as_ms(), event)).map_err(|error| Error::invalid("event", error.to_string()))
}

fn decode_entry(bytes: &[u8]) -> Result<Entry> {
    let (ms, event): (i64, Event) =
        serde_json::from_slice(bytes).map_err(|error| Error::corrupt(format!("its history: {error}")))?;
    Ok((Timestamp::from_ms(ms), event))
}
