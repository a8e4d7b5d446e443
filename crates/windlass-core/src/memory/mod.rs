//! The memory store: the engine over maps, behind a mutex. It is the model that every other store is checked against, and
//! the store for tests. Nothing of it survives its process.

mod ids;
mod jobs;
mod paged;
mod rest;
mod runs;
mod tables;

use crate::engine::{Effects, Host, Signals, Step};
use crate::error::{Error, Result};
use crate::random::{Random, StrongRandom};
use crate::store::{Durability, StoreInfo};
use crate::time::{Clock, SystemClock, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;

pub use tables::MemoryTables;

/// The memory store: runs steps one after the other.
pub struct MemoryStore {
    /// `None` once closed.
    tables: Mutex<Option<MemoryTables>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    signals: Signals,
}

impl MemoryStore {
    /// On the machine's clock.
    pub fn new() -> Self {
        Self::with(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()))
    }

    /// On a clock and randomness of the caller's: for tests that can be repeated.
    pub fn with(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { tables: Mutex::new(Some(MemoryTables::default())), clock, random, signals: Signals::default() }
    }

    fn step<R>(&self, work: impl FnOnce(&mut Step<'_, MemoryTables>) -> Result<R>) -> Result<(R, Effects)> {
        let mut guard = self.tables.lock();
        let tables = guard.as_mut().ok_or_else(Error::store_closed)?;
        let mut step = Step::new(tables, self.random.as_ref(), self.clock.now());
        let outcome = work(&mut step)?;
        Ok((outcome, step.finish()?))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for MemoryStore {
    type Tables = MemoryTables;
    type Watch<'a> = ();

    async fn write<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
    {
        let (outcome, effects) = self.step(work)?;
        self.signals.announce(&effects);
        Ok(outcome)
    }

    async fn read<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
    {
        self.step(work).map(|(outcome, _)| outcome)
    }

    async fn describe(&self) -> Result<StoreInfo> {
        Ok(StoreInfo { store: "memory".to_owned(), layout: 1, durability: Durability::None, details: Vec::new() })
    }

    fn time(&self) -> Timestamp {
        self.clock.now()
    }

    fn watch(&self) {}

    fn signals(&self) -> &Signals {
        &self.signals
    }

    async fn shut_down(&self) -> Result<()> {
        self.tables.lock().take();
        Ok(())
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
