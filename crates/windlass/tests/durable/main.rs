//! Durable workflows on real stores, with real engines and workers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod bad_input;
mod behaviour;
mod blocked;
mod call_timeouts;
mod cleanup;
mod deploys;
mod discard;
mod edges;
mod failover;
mod guards;
mod kills;
mod large_values;
mod length;
mod recursion;
mod replay;
mod resume;
mod schedules;
mod starts;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod timers;
mod traps;
mod unwinding;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::core::store::Store;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Wf, workflow};
use windlass::{Client, Job, JobError, Worker, WorkerBuilder};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = u64)]
struct Charge {
    order: u64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = String)]
struct Ship {
    order: u64,
}

async fn charge(job: Charge) -> Result<u64, JobError> {
    Ok(job.order * 10)
}

async fn ship(job: Ship) -> Result<String, JobError> {
    Ok(format!("parcel {}", job.order))
}

#[workflow]
async fn order(wf: Wf, id: u64) -> Result<String, Error> {
    let paid = wf.call(Charge { order: id }).await?;
    wf.sleep("50ms").await?;
    let parcel = wf.call(Ship { order: id }).await?;
    Ok(format!("{parcel} for {paid}"))
}

fn worker(store: &Arc<dyn Store>) -> WorkerBuilder {
    Worker::builder(Arc::clone(store)).queue("shop").handle(charge).handle(ship)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_of_two_calls_and_a_sleep_returns_its_result() {
    let store = windlass::open("memory://").unwrap();
    let worker = support::Running::start(worker(&store).workflow(order));
    let client = Client::new(Arc::clone(&store));
    let run = client.start(order, 7).id("order-7").await.unwrap();
    let result = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!(result, "parcel 7 for 70");
    worker.drain().await;
}
