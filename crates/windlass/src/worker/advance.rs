//! The engine that a worker runs beside its jobs.

use super::stop::LAST_WORDS;
use crate::runs::Engine;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_core::Result;
use windlass_core::store::Store;

/// Poll interval: fleets are large, wake-ups are seldom lost, and runs whose engine vanished are found by the sweep of leases.
/// After a failed call the engine waits 50 ms to 2 s instead.
const POLL: Duration = Duration::from_secs(60);

/// The engine at work; it ends with its handle.
pub(super) struct RunningEngine {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl RunningEngine {
    pub(super) fn start(store: Arc<dyn Store>, runtime: &tokio::runtime::Handle) -> Result<Self> {
        let engine = Engine::new(store)?.poll(POLL);
        let (stop, stopped) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let run = async move {
            // Told to, or nobody is left who could.
            let stopped = async move { stopped.await.unwrap_or_default() };
            engine.run(stopped).await;
            let _ = done.send(());
        };
        drop(runtime.spawn(run));
        Ok(Self { stop, ended })
    }

    /// Lets it finish the step that it is at.
    pub(super) async fn end(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(LAST_WORDS, self.ended).await;
    }
}
