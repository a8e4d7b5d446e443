//! What the tests of workers share.

#![allow(dead_code, reason = "each test uses some of it")]

#[cfg(all(unix, feature = "commands"))]
pub(crate) mod commands;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::job::{Job as StoredJob, State};
use windlass::core::retry::RetryPolicy;
use windlass::core::store::{CallStore, Store};
use windlass::{Client, Health, Job, Options, Stopper, WorkerBuilder};
use windlass_conformance::faults::{Fault, FaultPlan, Faulty, Method};

/// How long anything is waited for. A test that is about time uses tokio's paused clock.
pub(crate) const LONG: Duration = windlass::core::time::HANG_GUARD;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) n: u32,
}

impl Job for Task {
    const KIND: &'static str = "task";
    type Output = u32;

    fn options(&self) -> Options {
        Options::new().retry(RetryPolicy::Fixed { delay_ms: 1 })
    }
}

/// A worker that runs in the background.
pub(crate) struct Running {
    pub(crate) stopper: Stopper,
    pub(crate) health: Health,
    done: tokio::task::JoinHandle<windlass::Result<()>>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "the test's own task")]
    pub(crate) fn start(builder: WorkerBuilder) -> Self {
        let worker = builder.build().unwrap();
        let (stopper, health) = (worker.stopper(), worker.health());
        Self { stopper, health, done: tokio::spawn(worker.run_until_stopped()) }
    }

    pub(crate) async fn drain(self) {
        self.stopper.drain();
        self.ended().await;
    }

    pub(crate) async fn ended(self) {
        // Without a limit of its own: on a paused clock it would run out while the keeper's thread says goodbye.
        self.done.await.unwrap().unwrap();
    }
}

pub(crate) fn memory() -> (Arc<dyn Store>, Client) {
    let store = windlass::open("memory://").unwrap();
    (Arc::clone(&store), Client::new(store))
}

/// The store as a worker sees it whose calls go as `choose` says.
pub(crate) fn faulty(
    store: &Arc<dyn Store>,
    choose: impl Fn(Method) -> Fault + Send + Sync + 'static,
) -> Arc<CallStore<Faulty>> {
    Arc::new(Faulty::new(Arc::clone(store), FaultPlan::by(choose)))
}

pub(crate) async fn stored(store: &Arc<dyn Store>, id: JobId) -> StoredJob {
    store.get(vec![id]).await.unwrap().remove(0).unwrap()
}

pub(crate) async fn state(store: &Arc<dyn Store>, id: JobId) -> State {
    stored(store, id).await.state
}
