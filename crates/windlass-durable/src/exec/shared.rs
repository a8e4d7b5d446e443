//! Checks that a run is used only where it is polled.

use super::context::{Ctx, current, is_in_step, is_polled_here};
use super::wakers::WakeQueue;
use super::{CodePlace, Host, Limits, State, lock};
use crate::record::{OpKind, SourceLine};
use crate::stuck::Stuck;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use windlass_core::id::RunId;

/// The part of a run that its futures hold.
pub(crate) struct Shared {
    pub(crate) id: RunId,
    pub(crate) queue: Arc<WakeQueue>,
    pub(crate) state: Mutex<State>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) limits: Limits,
}

impl Shared {
    /// True when the run was dropped or has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.queue.is_dead()
    }

    /// Checks that this run is polled on this thread, outside of local steps. `None` when the run is dead or the thread
    /// unwinds: then nothing counts any more.
    #[track_caller]
    pub(crate) fn check(self: &Arc<Self>, what: &str) -> Option<Ctx> {
        self.check_at(what, Location::caller())
    }

    /// See [`check`](Self::check).
    #[expect(clippy::panic, reason = "documented: a `Wf` that is used outside of its run makes the run stuck")]
    pub(crate) fn check_at(self: &Arc<Self>, what: &str, place: CodePlace) -> Option<Ctx> {
        if self.is_dead() || std::thread::panicking() {
            return None;
        }
        if is_polled_here(&self.queue) && !is_in_step() {
            // The lock is never held while workflow code runs, so another thread can read the place at any time.
            lock(&self.state).last_place = Some(place);
            return current();
        }
        let at = SourceLine::from(place);
        let other_run = current().map(|ctx| ctx.shared.id).filter(|_| !is_polled_here(&self.queue));
        let reason = match other_run {
            Some(other) => format!("`wf.{what}` of run {} at {at} was used while run {other} was polled", self.id),
            None if is_polled_here(&self.queue) => format!(
                "`wf.{what}` at {at} was used inside of a local step; return a value from the step and act on it in the workflow"
            ),
            None => format!(
                "`wf.{what}` of run {} at {at} was used outside of its run, on the thread `{}`",
                self.id,
                std::thread::current().name().unwrap_or("(no name)")
            ),
        };
        if other_run.is_none() {
            lock(&self.state).set_fault(Stuck::Misuse(reason.clone()));
        }
        panic!("{reason}");
    }

    /// The same for destructors, which never panic. True when the drop counts.
    pub(crate) fn check_drop(self: &Arc<Self>, kind: OpKind, place: CodePlace) -> bool {
        if self.is_dead() {
            return false;
        }
        if is_polled_here(&self.queue) {
            return true;
        }
        let at = SourceLine::from(place);
        let reason = format!("the future of `wf.{}` at {at} was dropped outside of its run", kind.name());
        lock(&self.state).set_fault(Stuck::Misuse(reason));
        false
    }

    /// The last place at which the code used its `Wf`.
    pub(crate) fn last_place(&self) -> String {
        let place = lock(&self.state).last_place;
        place.map_or_else(|| "its start".to_owned(), |place| SourceLine::from(place).to_string())
    }
}
