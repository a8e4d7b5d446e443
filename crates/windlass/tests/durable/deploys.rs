//! Deploys as users make them, with many runs in flight.

use super::Charge;
use super::stores::{Opened, on_every_store};
use serde::{Deserialize, Serialize};
use windlass::core::store::{Run, RunList, RunState};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Signal, Wf, workflow};

on_every_store!(slow_a_bad_deploy_loses_none_of_many_runs_in_flight);

const IN_FLIGHT: u64 = 1_000;

#[derive(Serialize, Deserialize, Signal)]
struct Deliver {
    to: String,
}

#[workflow(name = "shipment")]
async fn good(wf: Wf, id: u64) -> Result<String, Error> {
    let paid = wf.call(Charge { order: id }).await?;
    let to = wf.recv::<Deliver>().await?.to;
    Ok(format!("{to} for {paid}"))
}

/// The same version with another order of calls.
#[workflow(name = "shipment")]
async fn bad(wf: Wf, id: u64) -> Result<String, Error> {
    wf.sleep("1h").await?;
    let paid = wf.call(Charge { order: id }).await?;
    let to = wf.recv::<Deliver>().await?.to;
    Ok(format!("{to} for {paid}"))
}

/// What the bad one should have been.
#[workflow(name = "shipment")]
async fn fixed(wf: Wf, id: u64) -> Result<String, Error> {
    if wf.patched("wait an hour") {
        wf.sleep("1h").await?;
    }
    let paid = wf.call(Charge { order: id }).await?;
    let to = wf.recv::<Deliver>().await?.to;
    Ok(format!("{to} for {paid}"))
}

async fn slow_a_bad_deploy_loses_none_of_many_runs_in_flight(on: Opened) {
    let worker = on.start(on.worker("good").workflow(good));
    let mut runs = Vec::new();
    for id in 0..IN_FLIGHT {
        runs.push(on.client.start(good, id).await.unwrap());
    }
    on.all("all wait for their signal", |run| run.summary.contains("recv")).await;
    worker.drain().await;

    let worker = on.start(on.worker("bad").workflow(bad));
    for run in &runs {
        run.signal(Deliver { to: "ann".into() }).await.unwrap();
    }
    let is_stuck = |run: &Run| run.stuck.as_ref().is_some_and(|why| why.contains("the code does not match"));
    on.all("all are stuck, and none has failed", |run| is_stuck(run) && run.state == RunState::Running).await;
    // They can be seen.
    let stuck = RunList { stuck: Some(true), kind: Some("shipment".into()), ..RunList::new(1_000) };
    assert_eq!(on.store.list_runs(stuck).await.unwrap().runs.len(), runs.len());
    worker.drain().await;

    let worker = on.start(on.worker("fixed").workflow(fixed));
    for (id, run) in (0_u64..).zip(&runs) {
        let result = run.result(HANG_GUARD).await.unwrap().expect("it ends");
        assert_eq!(result, Ok(format!("ann for {}", id * 10)));
    }
    worker.drain().await;
}
