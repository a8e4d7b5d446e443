//! The engine that a worker runs beside its jobs.

use super::Shared;
use super::stop::{Haste, LAST_WORDS, StopWatch};
use crate::runs::Engine;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_core::Result;
use windlass_durable::AnyWorkflow;

/// Poll interval: fleets are large, wake-ups are seldom lost, and runs whose engine vanished are found by the sweep of leases.
/// After a failed call the engine waits 50 ms to 2 s instead.
const POLL: Duration = Duration::from_secs(60);

/// The longest lease of a run. A worker whose jobs have a shorter lease gives it to runs, too.
const LEASE_MAX: Duration = Duration::from_secs(10);

/// The workflows that a worker executes.
pub(super) struct Code {
    pub(super) workflows: Vec<Arc<dyn AnyWorkflow>>,
    pub(super) build: Option<String>,
    pub(super) history_cap: Option<u64>,
}

/// The engine at work; it ends with its handle.
pub(super) struct RunningEngine {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
    drain: Duration,
}

impl RunningEngine {
    /// `stop` says when it has to end at once.
    pub(super) fn start(shared: &Shared, code: Code, mut stop: StopWatch) -> Result<Self> {
        let lease = Duration::from_millis(shared.config.lease_ms).min(LEASE_MAX);
        let engine = Engine::new(Arc::clone(&shared.store))?.poll(POLL).lease(lease);
        let engine = match code.history_cap {
            Some(cap) => engine.history_cap(cap),
            None => engine,
        };
        let engine = engine.workflows_on(code.workflows, code.build, &shared.runtime)?;
        let (sender, stopped) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let run = async move {
            // The worker ends it, or is gone.
            let stopped = async move { stopped.await.unwrap_or_default() };
            let (at_once, hurries) = oneshot::channel::<()>();
            // The drain time counts from the request to drain.
            let watch = async move {
                while stop.changed().await < Haste::AtOnce {}
                let _ = at_once.send(());
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = engine.run_and_drain(stopped, async { hurries.await.unwrap_or_default() }) => {}
                () = watch => {}
            }
            let _ = done.send(());
        };
        drop(shared.runtime.spawn(run));
        Ok(Self { stop: sender, ended, drain: shared.config.drain })
    }

    /// Lets it finish the step that it is at, and local steps of workflows within the drain time of the worker.
    pub(super) async fn end(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(self.drain + LAST_WORDS, self.ended).await;
    }
}
