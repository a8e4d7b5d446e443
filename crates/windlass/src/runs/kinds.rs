//! The kinds of runs that an engine serves, without their types.

use super::kind::{RunKind, Turn};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::{ClaimedRun, RunItem, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// A decoded definition of any kind.
pub(super) type Definition = Arc<dyn Any + Send + Sync>;

/// A [`RunKind`] without its types.
pub(super) trait AnyKind: Send + Sync {
    fn decode(&self, definition: &[u8]) -> Result<Definition>;
    fn begin(&self, run: RunId, definition: Definition, input: &[u8]) -> Result<Box<dyn AnyState>>;
}

/// The state of a run of any kind, with its kind.
pub(super) trait AnyState: Send {
    fn replay(&mut self, entries: &[Bytes]) -> Result<()>;
    fn decide<'d>(&'d mut self, turn: &'d mut Turn) -> BoxFuture<'d, Result<Vec<RunStep>>>;
    fn summarize(&self) -> String;
    fn accepts(&self, inbox: &[RunItem]) -> bool;
    fn size(&self) -> usize;
}

struct Untyped<K>(Arc<K>);

impl<K: RunKind> AnyKind for Untyped<K> {
    fn decode(&self, definition: &[u8]) -> Result<Definition> {
        Ok(Arc::new(self.0.decode(definition)?))
    }

    fn begin(&self, run: RunId, definition: Definition, input: &[u8]) -> Result<Box<dyn AnyState>> {
        let definition = definition.downcast().map_err(|_| Error::corrupt("its definition is of another kind"))?;
        let state = self.0.begin(run, &definition, input)?;
        Ok(Box::new(UntypedState { kind: Arc::clone(&self.0), state }))
    }
}

struct UntypedState<K: RunKind> {
    kind: Arc<K>,
    state: K::State,
}

impl<K: RunKind> AnyState for UntypedState<K> {
    fn replay(&mut self, entries: &[Bytes]) -> Result<()> {
        self.kind.replay(&mut self.state, entries)
    }

    fn decide<'d>(&'d mut self, turn: &'d mut Turn) -> BoxFuture<'d, Result<Vec<RunStep>>> {
        Box::pin(self.kind.decide(&mut self.state, turn))
    }

    fn summarize(&self) -> String {
        self.kind.summarize(&self.state)
    }

    fn accepts(&self, inbox: &[RunItem]) -> bool {
        self.kind.accepts(&self.state, inbox)
    }

    fn size(&self) -> usize {
        self.kind.size(&self.state)
    }
}

/// The kinds that an engine serves.
#[derive(Default)]
pub(super) struct Kinds(HashMap<Kind, Arc<dyn AnyKind>>);

impl Kinds {
    /// Adds a kind. It replaces one of the same name.
    pub(super) fn add(&mut self, kind: impl RunKind) -> Result<()> {
        self.0.insert(kind.kind()?, Arc::new(Untyped(Arc::new(kind))));
        Ok(())
    }

    pub(super) fn names(&self) -> Vec<Kind> {
        self.0.keys().cloned().collect()
    }

    pub(super) fn get(&self, kind: &Kind) -> Result<Arc<dyn AnyKind>> {
        self.0.get(kind).cloned().ok_or_else(|| Error::corrupt(format!("this engine does not serve the kind `{kind}`")))
    }
}

/// A run in memory: its state, and the part of the history that the state contains.
pub(super) struct LoadedRun {
    pub(super) run: RunId,
    /// The number of the run in its store and the time of its creation: another run may have had its id before.
    created: (u64, Timestamp),
    pub(super) history_len: u64,
    pub(super) state: Box<dyn AnyState>,
}

impl LoadedRun {
    /// The claimed run before the first entry of its history.
    pub(super) fn new(claimed: &ClaimedRun, state: Box<dyn AnyState>) -> Self {
        let created = (claimed.number, claimed.created_at);
        Self { run: claimed.lease.run, created, history_len: 0, state }
    }

    /// Applies history entries in order.
    pub(super) fn replay(&mut self, entries: &[Bytes]) -> Result<()> {
        self.state.replay(entries)?;
        self.history_len += entries.len() as u64;
        Ok(())
    }

    /// Whether the history of the claimed run begins with what this state was made of.
    pub(super) fn precedes(&self, claimed: &ClaimedRun) -> bool {
        self.created == (claimed.number, claimed.created_at) && self.history_len <= claimed.history_len
    }

    /// Whether this is the state of the claimed run.
    pub(super) fn is_current(&self, claimed: &ClaimedRun) -> bool {
        self.history_len == claimed.history_len && self.state.accepts(&claimed.inbox)
    }

    /// Decides, and gives every step the summary of the state that follows from all of them.
    pub(super) async fn decide(&mut self, turn: &mut Turn) -> Result<Vec<RunStep>> {
        if self.history_len != turn.claimed().history_len {
            return Err(Error::corrupt("its history is shorter than it should be"));
        }
        let mut steps = self.state.decide(turn).await?;
        if steps.is_empty() {
            return Err(Error::corrupt("its kind decided on no step"));
        }
        let summary = self.state.summarize();
        steps.iter_mut().for_each(|step| step.summary.clone_from(&summary));
        self.history_len += steps.iter().map(|step| step.history.len() as u64).sum::<u64>();
        Ok(steps)
    }
}
