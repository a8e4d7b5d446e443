//! Signals that were delivered, and receivers that wait for them.

use super::{OpId, Shared, lock};
use crate::record::{Body, Name};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Where a message comes from: how an operator finds one that the code cannot read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number of its record.
    pub(crate) record: u64,
    /// The number that it had in the inbox, if this process has taken it from there.
    pub(crate) item: Option<u64>,
}

/// A message in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) body: Body,
    pub(crate) id: String,
    pub(crate) origin: Origin,
}

/// The messages and the receivers of one name. One of the two lists is always empty.
#[derive(Default)]
pub(crate) struct SignalQueue {
    pub(super) ready: VecDeque<Message>,
    pub(super) waiting: VecDeque<OpId>,
    /// Messages that were handed to receivers whose futures have not been polled since.
    pub(super) handed: HashMap<OpId, (String, Origin)>,
}

impl SignalQueue {
    /// Adds a receiver.
    pub(crate) fn wait(&mut self, op: OpId) {
        self.waiting.push_back(op);
    }
}

impl Shared {
    /// Takes the oldest message of this name, or makes `op` wait for the next one.
    pub(crate) fn take_signal(self: &Arc<Self>, name: &Name) -> Option<Body> {
        let mut state = lock(&self.state);
        let message = state.signals.get_mut(name)?.ready.pop_front()?;
        state.received = message.origin;
        Some(message.body)
    }
}
