//! Gauges of what is in the store, taken at a pace of their own. One process of a system needs to do it.

use super::names;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::Result;
use windlass_core::job::State;
use windlass_core::name::QueueName;
use windlass_core::store::{QueueCounts, QueueStatus, Store};

/// The most queues that are shown; further ones, by name, are left out. A queue for each customer would be a label
/// without bound: groups are made for that.
pub(super) const QUEUES_MAX: usize = 200;

/// Looks at the queues and workers of a store, and sets `windlass_queue_jobs` and `windlass_workers`.
///
/// ```no_run
/// # async fn example() -> windlass::Result<()> {
/// let store = windlass::open("sqlite://jobs.db")?;
/// let sampler = windlass::observe::Sampler::new(store);
/// # let work = async {};
/// tokio::select! {
///     () = sampler.run() => {} // never returns
///     () = work => {}
/// }
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Sampler {
    store: Arc<dyn Store>,
    pace: Duration,
    /// Queues whose gauges were set.
    shown: Mutex<BTreeSet<QueueName>>,
}

impl Sampler {
    /// Over a store, every 15 seconds.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, pace: Duration::from_secs(15), shown: Mutex::default() }
    }

    /// At another pace. Counts are maintained by the store, so that a look is cheap; less than a second is pointless.
    pub fn every(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Never returns; drop it to end it.
    pub async fn run(self) {
        loop {
            if let Err(error) = self.once().await {
                tracing::warn!(target: "windlass::observe", %error, "the store could not be looked at; its gauges are old");
            }
            tokio::time::sleep(self.pace).await;
        }
    }

    /// Looks once. The gauges of queues that an earlier look has shown, and that are gone, are set to 0.
    pub async fn once(&self) -> Result<()> {
        let queues = self.store.queues().await?;
        self.show_all(queues);
        let workers = self.store.workers().await?;
        let live = workers.iter().filter(|worker| worker.live).count();
        set_workers("live", live);
        set_workers("dead", workers.len() - live);
        Ok(())
    }

    fn show_all(&self, queues: Vec<QueueStatus>) {
        let mut shown = self.shown.lock();
        let mut gone = std::mem::take(&mut *shown);
        for queue in queues.into_iter().take(QUEUES_MAX) {
            show(&queue.name, queue.counts);
            gone.remove(&queue.name);
            shown.insert(queue.name);
        }
        for queue in gone {
            show(&queue, QueueCounts::default());
        }
    }
}

fn show(queue: &QueueName, counts: QueueCounts) {
    let QueueCounts { scheduled, ready, active, succeeded, failed, cancelled } = counts;
    let counts = [scheduled, ready, active, succeeded, failed, cancelled];
    for (state, count) in State::ALL.into_iter().zip(counts) {
        metrics::gauge!(names::QUEUE_JOBS, "queue" => String::from(queue.clone()), "state" => state.to_string())
            .set(as_gauge(count));
    }
}

fn set_workers(state: &'static str, count: usize) {
    metrics::gauge!(names::WORKERS, "state" => state).set(as_gauge(count as u64));
}

/// Exact up to four thousand million, which is enough for a gauge.
fn as_gauge(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("pace", &self.pace).finish_non_exhaustive()
    }
}
