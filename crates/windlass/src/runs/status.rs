//! Where a run stands, for people.

use super::{decode_definition, decode_entry, decode_input};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::graph::{Event, Graph, Progress};
use windlass_core::id::RunId;
use windlass_core::store::{Run, RunRead, Store};
use windlass_core::time::Timestamp;

/// When a node started and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTimes {
    /// When its first job was enqueued.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A run, its graph, and how far it is.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// What a listing shows.
    pub run: Run,
    /// What is run.
    pub graph: Arc<Graph>,
    /// What it was given.
    pub inputs: Value,
    /// How far it is.
    pub progress: Progress,
    /// When what happened, by node.
    pub times: Vec<NodeTimes>,
    seen: u64,
}

const ENTRIES_READ: u32 = 10_000;

impl RunStatus {
    /// Reads a run; `None` when it is not there.
    pub(super) async fn read(store: &dyn Store, run: RunId) -> Result<Option<Self>> {
        let read = RunRead { run, definition: true, input: true, history_from: 0, history_max: ENTRIES_READ };
        let Some(view) = store.read_runs(vec![read]).await?.pop().flatten() else { return Ok(None) };
        let graph = Arc::new(decode_definition(&view.definition.unwrap_or_default())?);
        let inputs = decode_input(&view.input.unwrap_or_default())?;
        let times = vec![NodeTimes::default(); graph.nodes.len()];
        let progress = Progress::new(&graph);
        let mut status = Self { run: view.run, graph, inputs, progress, times, seen: 0 };
        for entry in &view.history {
            let (at, event) = decode_entry(entry)?;
            status.take_in(at, &event);
        }
        if status.is_behind() {
            status.refresh(store).await?;
        }
        Ok(Some(status))
    }

    /// The same run before anything has happened to it: what is read on from there is all of its history.
    #[must_use]
    pub fn rewound(&self) -> Self {
        let (progress, times) = (Progress::new(&self.graph), vec![NodeTimes::default(); self.graph.nodes.len()]);
        Self { progress, times, seen: 0, ..self.clone() }
    }

    /// Whether the history went on after what was taken in, as far as is known.
    pub fn is_behind(&self) -> bool {
        self.seen < self.run.history_len
    }

    /// Reads what is new. Answers it; `None` when the run is gone.
    pub async fn refresh(&mut self, store: &dyn Store) -> Result<Option<Vec<(Timestamp, Event)>>> {
        let mut new = Vec::new();
        loop {
            let Some(some) = self.read_on(store).await? else { return Ok(None) };
            for (at, event) in &some {
                self.take_in(*at, event);
            }
            let none = some.is_empty();
            new.extend(some);
            if none || !self.is_behind() {
                return Ok(Some(new));
            }
        }
    }

    /// Reads some of what is new and takes none of it in: that is up to the caller, in this order. `None` when the run is
    /// gone.
    pub async fn read_on(&mut self, store: &dyn Store) -> Result<Option<Vec<(Timestamp, Event)>>> {
        let read = RunRead { history_from: self.seen, history_max: ENTRIES_READ, ..RunRead::brief(self.run.id) };
        let Some(view) = store.read_runs(vec![read]).await?.pop().flatten() else { return Ok(None) };
        // A later run of the same id is another one.
        if view.run.created_at != self.run.created_at || view.run.history_len < self.seen {
            return Ok(None);
        }
        self.run = view.run;
        view.history.iter().map(|entry| decode_entry(entry)).collect::<Result<_>>().map(Some)
    }

    /// Takes in what was read on.
    pub fn take_in(&mut self, at: Timestamp, event: &Event) {
        self.progress.apply(&self.graph, event);
        self.note(at, event);
        self.seen += 1;
    }

    fn note(&mut self, at: Timestamp, event: &Event) {
        let all = 0..self.times.len();
        match event {
            Event::Started { node, .. } => {
                if let Some(times) = self.times.get_mut(*node) {
                    times.started_at.get_or_insert(at);
                }
            }
            Event::Ended { node, .. } | Event::Settled { node, .. } | Event::Stopping { node } => {
                self.note_end(at, *node..node + 1);
            }
            Event::Cancelled { .. } | Event::TimedOut => self.note_end(at, all),
            Event::Rerun { nodes, .. } => {
                for &node in nodes {
                    if let Some(times) = self.times.get_mut(node) {
                        *times = NodeTimes::default();
                    }
                }
            }
            Event::Begun | Event::Expanded { .. } | Event::Finished { .. } => {}
        }
    }

    fn note_end(&mut self, at: Timestamp, nodes: std::ops::Range<usize>) {
        for node in nodes {
            if let (Some(times), Some(progress)) = (self.times.get_mut(node), self.progress.nodes.get(node))
                && progress.outcome.is_some()
            {
                times.ended_at.get_or_insert(at);
            }
        }
    }
}
