//! Sagas: compensations for what was done before an error.

use super::Wf;
use crate::error::CallError;
use crate::exec::{Undo, lock};
use std::fmt;
use std::future::Future;
use std::panic::Location;
use windlass_core::typed::Job;

/// Compensations that run when the workflow ends with an error or is cancelled, the newest first, shielded from cancellation.
///
/// Dropping the saga changes nothing: an error that `?` returns through it is compensated all the same. [`commit`](Self::commit)
/// gives the compensations up.
pub struct Saga {
    wf: Wf,
    index: usize,
}

impl Wf {
    /// Starts a saga. Later sagas are compensated before earlier ones.
    #[track_caller]
    pub fn saga(&self) -> Saga {
        self.shared.check("saga");
        let mut state = lock(&self.shared.state);
        state.undo.push(Vec::new());
        Saga { wf: self.clone(), index: state.undo.len() - 1 }
    }

    /// Runs the compensations of all sagas. Returns the first error; the others run all the same.
    pub(crate) async fn compensate_all(&self) -> Result<(), CallError> {
        let sagas = lock(&self.shared.state).undo.len();
        let mut first = Ok(());
        for index in (0..sagas).rev() {
            let done = Saga { wf: self.clone(), index }.run_all().await;
            first = first.and(done);
        }
        first
    }
}

impl Saga {
    /// Adds a job as compensation.
    #[track_caller]
    pub fn undo<J: Job>(&mut self, job: J) {
        let place = Location::caller();
        self.undo_with(move |wf| async move { wf.call_at(&job, place).await.map(drop) });
    }

    /// Adds any code as compensation.
    pub fn undo_with<F, Fut>(&mut self, undo: F)
    where
        F: FnOnce(Wf) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), CallError>> + Send + 'static,
    {
        let undo: Undo = Box::new(move |wf| Box::pin(undo(wf)));
        if let Some(undos) = lock(&self.wf.shared.state).undo.get_mut(self.index) {
            undos.push(undo);
        }
    }

    /// Runs the compensations now, the newest first. Returns the first error; the others run all the same.
    pub async fn compensate(self) -> Result<(), CallError> {
        self.run_all().await
    }

    /// Gives the compensations up.
    pub fn commit(self) {
        let undos = lock(&self.wf.shared.state).undo.get_mut(self.index).map(std::mem::take);
        drop(undos);
    }

    async fn run_all(&self) -> Result<(), CallError> {
        let mut first = Ok(());
        while let Some(undo) = self.pop() {
            let done = self.wf.shield(undo(self.wf.clone())).await;
            first = first.and(done);
        }
        first
    }

    fn pop(&self) -> Option<Undo> {
        lock(&self.wf.shared.state).undo.get_mut(self.index)?.pop()
    }
}

impl fmt::Debug for Saga {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Saga({})", self.index)
    }
}
