//! The work that time brings: leases that run out, jobs that come due, schedules, and what nobody needs any more.
//!
//! Any number of processes may do it at once: the store lets each item be handled once. Steps are bounded; a loop that
//! finds more to do goes on at once, and otherwise at its own pace.

use std::sync::Arc;
use std::time::Duration;
use windlass_core::Result;
use windlass_core::store::{Store, Sweep, SweepKind};

/// Items of one step.
const STEP_MAX: u32 = 1_000;

/// Runs all of it until it is dropped.
#[derive(Clone)]
pub struct Maintenance {
    store: Arc<dyn Store>,
}

impl Maintenance {
    /// Over a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Never returns; drop it to end it.
    pub async fn run(&self) {
        tokio::join!(
            self.every(Duration::from_secs(1), SweepKind::Reap),
            self.every(Duration::from_secs(1), SweepKind::Promote),
            self.every(Duration::from_secs(30), SweepKind::Prune),
            self.tick(),
        );
    }

    async fn every(&self, pace: Duration, kind: SweepKind) {
        loop {
            match self.store.sweep(Sweep { kind, max: STEP_MAX }).await {
                Ok(swept) if swept.more => continue,
                Ok(_) => {}
                Err(error) => tracing::warn!(?kind, %error, "a sweep failed"),
            }
            tokio::time::sleep(pace).await;
        }
    }

    async fn tick(&self) {
        loop {
            if let Err(error) = self.tick_once().await {
                tracing::warn!(%error, "schedules could not be looked at");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn tick_once(&self) -> Result<()> {
        let ticked = windlass_core::schedule::tick(self.store.as_ref(), STEP_MAX).await?;
        for (schedule, error) in ticked.failed {
            tracing::error!(%schedule, %error, "a tick could not be handled");
        }
        Ok(())
    }
}

impl std::fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Maintenance")
    }
}
