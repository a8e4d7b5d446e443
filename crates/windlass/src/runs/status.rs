//! The status of a graph run, for people.

use super::client::check_kind;
use super::graph::{GraphState, decode_definition, decode_entry, decode_input};
use std::ops::Deref;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::graph::Event;
use windlass_core::id::RunId;
use windlass_core::store::{Run, RunRead, Store};
use windlass_core::time::Timestamp;

/// A run, and the state of its graph: the fields of [`GraphState`] can be read through the status.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// What a listing shows.
    pub run: Run,
    state: GraphState,
    /// The history entries that `state` contains.
    seen: u64,
}

impl Deref for RunStatus {
    type Target = GraphState;
    fn deref(&self) -> &GraphState {
        &self.state
    }
}

const ENTRIES_READ: u32 = 10_000;

impl RunStatus {
    /// Reads a run; `None` when it is not there.
    pub(super) async fn read(store: &dyn Store, run: RunId) -> Result<Option<Self>> {
        let read = RunRead { definition: true, input: true, history_max: ENTRIES_READ, ..RunRead::brief(run) };
        let Some(view) = store.read_runs(vec![read]).await?.pop().flatten() else { return Ok(None) };
        check_kind(&view.run)?;
        let graph = Arc::new(decode_definition(&view.definition.unwrap_or_default())?);
        let inputs = decode_input(&view.input.unwrap_or_default())?;
        let state = GraphState::new(run, graph, Arc::new(inputs));
        let mut status = Self { run: view.run, state, seen: 0 };
        for entry in &view.history {
            let (at, event) = decode_entry(entry)?;
            status.take_in(at, &event);
        }
        if status.is_behind() {
            status.refresh(store).await?;
        }
        Ok(Some(status))
    }

    /// The same run before the first entry of its history, which is read from there.
    #[must_use]
    pub fn rewound(&self) -> Self {
        let state = GraphState::new(self.run.id, Arc::clone(&self.graph), Arc::clone(&self.inputs));
        Self { run: self.run.clone(), state, seen: 0 }
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

    /// Applies an event that was read on.
    pub fn take_in(&mut self, at: Timestamp, event: &Event) {
        self.state.apply(at, event);
        self.seen += 1;
    }
}
