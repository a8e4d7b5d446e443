//! Runs of workflows: started, followed, cancelled, run once more; and the engine that advances them.
//!
//! A run is stored and is advanced by any process that runs an [`Engine`]; every [`Worker`](crate::Worker) does, unless it is
//! configured not to. The process that starts a run need not stay: nothing of a run lives only in a process.
//!
//! The engine serves runs of any [`RunKind`]. Runs that follow a graph are one kind.

mod cache;
mod calls;
mod client;
mod code;
mod commit_queue;
mod engine;
mod export;
mod flow;
mod graph;
mod kind;
mod kinds;
mod needs;
mod pending;
mod retry;
mod start;
mod status;

pub use client::{NewGraphRun, Rerun, Runs};
pub use engine::Engine;
pub use export::{EXPORT_FORMAT, EXPORT_VERSION, RunExport, StoredEntry};
pub use flow::{Flow, OnFailure};
pub use graph::{COMMAND_KIND, GraphState, NodeTimes};
pub use kind::{Arrived, RunKind, Takes, Turn, TurnCommit};
pub use needs::{NeedEnd, Needs};
pub use start::{StartRun, start_run};
pub use status::RunStatus;
