//! A backlog through the real worker runtime.

use super::noop::QUEUE;
use super::stand::Stand;
use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::core::store::Wrapped;
use windlass::{Worker, WorkerBuilder};
use windlass_bench::{Counting, Ended};

/// How often the bar moves.
const LOOK: Duration = Duration::from_millis(100);
/// Looks without any job that succeeded, after which something is wrong.
const PATIENCE: u32 = 600;

/// What is to be worked off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Haul {
    pub(super) jobs: u32,
    pub(super) slots: u32,
}

impl Haul {
    /// From the start of a worker until the store has said that the last job succeeded.
    pub(super) async fn work_off(
        self,
        stand: &Stand,
        handle: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Result<Ended, Failure> {
        let counting = Arc::new(Wrapped(Counting::new(stand.ground.store.clone(), self.jobs.into())));
        let worker = Worker::builder(counting.clone()).queue(QUEUE).slots(self.slots as usize);
        while_running(handle(worker).build()?, self.watch(stand, &counting)).await
    }

    async fn watch(self, stand: &Stand, counting: &Counting) -> Result<Ended, Failure> {
        let bar = stand.ui.bar(self.jobs.into(), "drain");
        let mut quiet = 0;
        let mut last = 0;
        while quiet < PATIENCE {
            if let Some(ended) = counting.wait(LOOK).await {
                bar.finish_and_clear();
                return Ok(ended);
            }
            let now = counting.succeeded();
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            bar.set_position(now);
        }
        bar.finish_and_clear();
        Err(Failure::failed(format!("no job has succeeded for a minute, after {last} of {}", self.jobs)))
    }
}

/// Does `work` while the worker runs, and stops it afterwards.
pub(super) async fn while_running<T>(
    worker: Worker,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let stopper = worker.stopper();
    let mut running = JoinSet::new();
    running.spawn(worker.run_until_stopped());
    let done = work.await;
    stopper.drain();
    while let Some(stopped) = running.join_next().await {
        stopped.map_err(|error| Failure::failed(format!("the worker broke off: {error}")))??;
    }
    done
}

/// How many jobs a call to the store carried.
pub(super) fn batch_mean(jobs: u32, ended: &Ended) -> f64 {
    f64::from(jobs) / (ended.calls.max(1) as f64)
}
