//! The kinds of runs that an engine serves, without their types.

use super::kind::{RunKind, Turn};
use crate::error::words_of;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::{ClaimedRun, InboxItem, RUN_TEXT_BYTES_MAX, RunState, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// A decoded definition of any kind.
pub(super) type Definition = Arc<dyn Any + Send + Sync>;

/// A [`RunKind`] without its types.
pub(super) trait AnyKind: Send + Sync {
    fn decode(&self, definition: &[u8]) -> Result<Definition>;
    fn begin(&self, run: &ClaimedRun, definition: Definition, input: &[u8]) -> Result<Box<dyn AnyState>>;
    fn replays_parts(&self) -> bool;
    fn is_ready(&self) -> bool;
}

/// The state of a run of any kind, with its kind.
pub(super) trait AnyState: Send {
    fn replay(&mut self, entries: &[Bytes]) -> Result<()>;
    fn decide<'d>(&'d mut self, turn: &'d mut Turn) -> BoxFuture<'d, Result<Vec<RunStep>>>;
    fn clean_up<'d>(&'d mut self, turn: &'d mut Turn) -> BoxFuture<'d, Result<Vec<RunStep>>>;
    fn summarize(&self) -> String;
    fn accepts(&self, inbox: &[InboxItem]) -> bool;
    fn size(&self) -> usize;
}

/// Calls a kind. A panic is an error, so that the run is stuck and the engine goes on.
fn caught<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::corrupt(format!("the code of its kind panicked: {}", words_of(panic)))
}

struct Untyped<K>(Arc<K>);

impl<K: RunKind> AnyKind for Untyped<K> {
    fn decode(&self, definition: &[u8]) -> Result<Definition> {
        Ok(Arc::new(caught(|| self.0.decode(definition))?))
    }

    fn replays_parts(&self) -> bool {
        K::REPLAYS_PARTS
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn begin(&self, run: &ClaimedRun, definition: Definition, input: &[u8]) -> Result<Box<dyn AnyState>> {
        let definition = definition.downcast().map_err(|_| Error::corrupt("its definition is of another kind"))?;
        let state = caught(|| self.0.begin(run, &definition, input))?;
        Ok(Box::new(UntypedState { kind: Arc::clone(&self.0), state }))
    }
}

struct UntypedState<K: RunKind> {
    kind: Arc<K>,
    state: K::State,
}

impl<K: RunKind> AnyState for UntypedState<K> {
    fn replay(&mut self, entries: &[Bytes]) -> Result<()> {
        caught(|| self.kind.replay(&mut self.state, entries))
    }

    fn decide<'d>(&'d mut self, turn: &'d mut Turn) -> BoxFuture<'d, Result<Vec<RunStep>>> {
        Box::pin(self.kind.decide(&mut self.state, turn))
    }

    fn clean_up<'d>(&'d mut self, turn: &'d mut Turn) -> BoxFuture<'d, Result<Vec<RunStep>>> {
        Box::pin(self.kind.clean_up(&mut self.state, turn))
    }

    fn summarize(&self) -> String {
        self.kind.summarize(&self.state)
    }

    fn accepts(&self, inbox: &[InboxItem]) -> bool {
        // A state that cannot answer is rebuilt.
        caught(|| Ok(self.kind.accepts(&self.state, inbox))).unwrap_or(false)
    }

    fn size(&self) -> usize {
        self.kind.size(&self.state)
    }
}

/// The kinds that an engine serves.
#[derive(Default)]
pub(super) struct Kinds {
    by_name: HashMap<Kind, Arc<dyn AnyKind>>,
    names: Vec<Kind>,
}

impl Kinds {
    /// Adds a kind. It replaces one of the same name.
    pub(super) fn add(&mut self, kind: impl RunKind) -> Result<()> {
        let name = kind.kind()?;
        if self.by_name.insert(name.clone(), Arc::new(Untyped(Arc::new(kind)))).is_none() {
            self.names.push(name);
        }
        Ok(())
    }

    /// The names for a claim, with another one in front each time: a claim fills up with runs of the first kind. Kinds that cannot
    /// decide now are left out.
    pub(super) fn names(&mut self) -> Vec<Kind> {
        self.names.rotate_left(1);
        let is_ready = |name: &&Kind| self.by_name.get(*name).is_none_or(|kind| kind.is_ready());
        self.names.iter().filter(is_ready).cloned().collect()
    }

    /// Whether states of this kind can replay what another engine has added.
    pub(super) fn replay_parts(&self, kind: &Kind) -> bool {
        self.by_name.get(kind).is_some_and(|kind| kind.replays_parts())
    }

    pub(super) fn get(&self, kind: &Kind) -> Result<Arc<dyn AnyKind>> {
        let found = self.by_name.get(kind).cloned();
        found.ok_or_else(|| Error::corrupt(format!("this engine does not serve the kind `{kind}`")))
    }
}

/// A run in memory: its state, and the part of the history that the state contains.
pub(super) struct LoadedRun {
    pub(super) run: RunId,
    /// The number of the run in its store and the time of its creation: another run may have had its id before.
    created: (u64, Timestamp),
    /// The number of the first entry of the segment that the state was made of.
    segment_from: u64,
    pub(super) history_len: u64,
    /// About how much memory the state took after the last decision, in bytes.
    pub(super) size: usize,
    state: Box<dyn AnyState>,
}

impl LoadedRun {
    /// The claimed run before the first entry of its segment.
    pub(super) fn new(claimed: &ClaimedRun, state: Box<dyn AnyState>) -> Self {
        let (created, segment_from) = ((claimed.number, claimed.created_at), claimed.segment_from);
        Self { run: claimed.lease.run, created, segment_from, history_len: segment_from, size: 0, state }
    }

    /// Applies history entries in order.
    pub(super) fn replay(&mut self, entries: &[Bytes]) -> Result<()> {
        self.state.replay(entries)?;
        self.history_len += entries.len() as u64;
        Ok(())
    }

    /// Whether the history of the claimed run begins with what this state was made of.
    pub(super) fn precedes(&self, claimed: &ClaimedRun) -> bool {
        self.created == (claimed.number, claimed.created_at)
            && self.segment_from == claimed.segment_from
            && self.history_len <= claimed.history_len
    }

    /// Whether this is the state of the claimed run.
    pub(super) fn is_current(&self, claimed: &ClaimedRun) -> bool {
        self.history_len == claimed.history_len && self.state.accepts(&claimed.inbox)
    }

    /// Decides. A panic is an error; the state must not be used after an error.
    pub(super) async fn decide(&mut self, turn: &mut Turn) -> Result<Vec<RunStep>> {
        if self.history_len != turn.claimed().history_len {
            return Err(Error::corrupt("its history is shorter than it should be"));
        }
        let decision = AssertUnwindSafe(self.decide_and_summarize(turn)).catch_unwind();
        let steps = decision.await.unwrap_or_else(|panic| Err(panicked(panic.as_ref())))?;
        self.history_len = turn.history_len() + steps.iter().map(|step| step.history.len() as u64).sum::<u64>();
        Ok(steps)
    }

    /// Gives every step the summary of the state that follows from all of them.
    async fn decide_and_summarize(&mut self, turn: &mut Turn) -> Result<Vec<RunStep>> {
        let is_terminated = turn.claimed().state == RunState::Terminated;
        let mut steps = if is_terminated { self.state.clean_up(turn).await? } else { self.state.decide(turn).await? };
        if steps.is_empty() && turn.released().is_none() {
            return Err(Error::corrupt("its kind decided on no step"));
        }
        let mut summary = self.state.summarize();
        summary.truncate(summary.floor_char_boundary(RUN_TEXT_BYTES_MAX));
        steps.iter_mut().for_each(|step| step.summary.clone_from(&summary));
        self.size = self.state.size();
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim fills up with runs of the first kind, so no kind may always be the first.
    #[test]
    fn every_kind_is_the_first_of_a_claim_in_turn() {
        let names = ["a", "b", "c"].map(|name| Kind::new(name).unwrap());
        let mut kinds = Kinds { names: names.to_vec(), ..Kinds::default() };
        let mut first: Vec<Kind> = (0..3).map(|_| kinds.names().remove(0)).collect();
        first.sort();
        assert_eq!(first, names);
    }
}
