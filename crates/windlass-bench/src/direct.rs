//! A backlog through the store's own calls, without a worker around it: what a runtime could reach at best.

use crate::server::own_name;
use crate::time::Stopwatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;
use windlass_core::name::{Labels, QueueName, WorkerId};
use windlass_core::store::{ClaimRequest, Claimed, Outcome, ReportRequest, Store};
use windlass_core::{Error, Result};

/// Claims in a row that may bring nothing while jobs are left.
const DRY_MAX: u32 = 100;

/// Tasks that report what they had and claim the next in one call.
#[derive(Clone)]
pub struct Direct {
    /// The store.
    pub store: Arc<dyn Store>,
    /// From where.
    pub queue: QueueName,
    /// What the tasks offer.
    pub labels: Labels,
    /// Jobs of one call.
    pub batch: u32,
    /// Tasks, each with one call under way.
    pub tasks: u32,
}

impl Direct {
    /// Two tasks, like the floor on Redis.
    pub fn new(store: Arc<dyn Store>, queue: QueueName, batch: u32) -> Self {
        Self { store, queue, labels: Labels::default(), batch, tasks: 2 }
    }

    /// Claims and completes `jobs` jobs; answers the seconds.
    pub async fn work_off(&self, jobs: u32) -> Result<f64> {
        let left = Arc::new(AtomicU32::new(jobs));
        let watch = Stopwatch::start();
        let mut running = JoinSet::new();
        for _ in 0..self.tasks {
            let worker = WorkerId::new(own_name("windlass-bench"))?;
            running.spawn(Task { direct: self.clone(), worker, request_id: 0, left: Arc::clone(&left) }.run());
        }
        while let Some(ended) = running.join_next().await {
            ended.map_err(|error| Error::Unavailable { reason: format!("a task broke off: {error}") })??;
        }
        Ok(watch.seconds())
    }
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Direct");
        shown.field("queue", &self.queue).field("batch", &self.batch).field("tasks", &self.tasks);
        shown.finish_non_exhaustive()
    }
}

struct Task {
    direct: Direct,
    worker: WorkerId,
    request_id: u64,
    /// Jobs that no task has asked for yet.
    left: Arc<AtomicU32>,
}

impl Task {
    async fn run(mut self) -> Result<()> {
        let (mut held, mut dry) = (Vec::new(), 0);
        loop {
            let max = self.take();
            let outcomes: Vec<Outcome> = std::mem::take(&mut held);
            let claimed = match (max, outcomes.is_empty()) {
                (0, true) => return Ok(()),
                (0, false) => {
                    let request = ReportRequest { worker: self.worker.clone(), outcomes };
                    all_well(self.direct.store.report(request).await?)?;
                    continue;
                }
                (_, true) => {
                    let request = self.claim(max);
                    self.direct.store.claim(request).await?
                }
                (_, false) => {
                    let request = ReportRequest { worker: self.worker.clone(), outcomes };
                    let claim = self.claim(max);
                    let both = self.direct.store.report_and_claim(request, claim).await?;
                    all_well(both.reported)?;
                    both.claimed
                }
            };
            dry = if claimed.jobs.is_empty() { dry + 1 } else { 0 };
            if dry == DRY_MAX {
                return Err(Error::Unavailable { reason: "the backlog ran dry".to_owned() });
            }
            held = self.hold(claimed, max);
        }
    }

    /// How many the next claim asks for.
    fn take(&self) -> u32 {
        let batch = self.direct.batch;
        let less = |left: u32| Some(left - left.min(batch));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_or(0, |left| left.min(batch))
    }

    fn claim(&mut self, max: u32) -> ClaimRequest {
        self.request_id += 1;
        let request = ClaimRequest::new(self.worker.clone(), self.request_id, self.direct.queue.clone());
        ClaimRequest { max, labels: self.direct.labels.clone(), ..request }
    }

    /// What was asked for and did not come is left to be asked for again.
    fn hold(&self, claimed: Claimed, asked: u32) -> Vec<Outcome> {
        let came = u32::try_from(claimed.jobs.len()).unwrap_or(u32::MAX);
        self.left.fetch_add(asked.saturating_sub(came), Ordering::Relaxed);
        claimed.jobs.into_iter().map(|job| Outcome::complete(job.lease)).collect()
    }
}

fn all_well<T>(answers: Vec<Result<T>>) -> Result<()> {
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::id::Ids;
    use windlass_core::job::{JobSpec, NewJob};
    use windlass_core::memory::MemoryStore;
    use windlass_core::random::StrongRandom;
    use windlass_core::store::EnqueueRequest;
    use windlass_core::time::SystemClock;

    async fn store_of(jobs: usize) -> (Arc<dyn Store>, QueueName) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(1)));
        let spec = JobSpec::new("bench".try_into().unwrap(), "noop".try_into().unwrap(), Default::default());
        let jobs = (0..jobs).map(|_| NewJob::new(ids.next(), spec.clone())).collect();
        store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
        (store, spec.queue)
    }

    #[tokio::test]
    async fn it_works_off_what_it_is_told_and_no_more() {
        let (store, queue) = store_of(150).await;
        let direct = Direct::new(Arc::clone(&store), queue, 64);
        assert!(direct.work_off(131).await.unwrap() > 0.0);
        let counts = store.queues().await.unwrap()[0].counts;
        assert_eq!((counts.ready, counts.active, counts.succeeded), (19, 0, 131));
    }

    #[tokio::test]
    async fn a_backlog_that_is_too_small_is_an_error_and_not_a_hang() {
        let (store, queue) = store_of(10).await;
        let error = Direct::new(store, queue, 64).work_off(11).await.unwrap_err();
        assert!(error.to_string().contains("ran dry"), "{error}");
    }
}
