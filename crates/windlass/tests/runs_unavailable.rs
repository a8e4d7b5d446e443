//! A store that is away for a moment delays runs for a moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{LONG, Running, memory};
use windlass::core::store::{RunClaim, RunState, RunsClaimed, Store, Wrap, Wrapped};
use windlass::graph::GraphBuilder;
use windlass::runs::{NewGraphRun, Runs};
use windlass::{Error, Job, Worker};

#[derive(Debug, Serialize, Deserialize)]
struct Say {}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

async fn say(_: Say) {}

/// Claims of runs that fail, as during a failover.
const FAILURES: u32 = 3;

/// Fails the first claims of runs.
struct Away(Arc<dyn Store>, AtomicU32);

#[async_trait::async_trait]
impl Wrap for Away {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn claim_runs(&self, claim: RunClaim) -> windlass::Result<RunsClaimed> {
        if self.1.fetch_add(1, Ordering::Relaxed) < FAILURES {
            return Err(Error::Unavailable { reason: "the primary is being replaced".to_owned() });
        }
        self.inner().claim_runs(claim).await
    }
}

#[tokio::test]
async fn slow_the_engine_of_a_worker_goes_on_soon_after_the_store_was_away() {
    let (store, _) = memory();
    let away: Arc<dyn Store> = Arc::new(Wrapped(Away(Arc::clone(&store), AtomicU32::new(0))));
    let running = Running::start(Worker::builder(away).handle(say));
    let mut graph = GraphBuilder::new("two");
    let first = graph.job("first", &Say {}).node();
    graph.job("second", &Say {}).after(&first);
    let runs = Runs::new(store);
    let run = runs.start(NewGraphRun::new(graph.finish().unwrap())).await.unwrap();
    // The poll interval of a worker's engine is a minute.
    let status = runs.wait(run, LONG).await.unwrap().expect("the run ends long before the engine's next poll");
    assert_eq!(status.run.state, RunState::Succeeded);
    running.drain().await;
}
