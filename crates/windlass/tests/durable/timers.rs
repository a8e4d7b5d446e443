//! When timers of code runs fire, on the virtual clock.

use super::support;
use std::time::Duration;
use windlass::Worker;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Wf, workflow};
use windlass::testing::TestBed;

#[workflow]
async fn ticks(wf: Wf, ticks: u32) -> Result<(), Error> {
    for _ in 0..ticks {
        // Too long for the run to stay in memory.
        wf.sleep("7s").await?;
    }
    Ok(())
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the virtual clock is tokio's")]
async fn a_timer_that_a_decision_starts_fires_at_its_time() {
    let test = TestBed::new();
    let running = support::Running::start(Worker::builder(test.store()).without_maintenance().workflow(ticks));
    let run = test.client().start(ticks, 5).await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(()));
    let late = begun.elapsed().saturating_sub(Duration::from_secs(35));
    assert!(late < Duration::from_millis(500), "all in all {late:?} late");
    running.drain().await;
}
