//! Live views of a store. The cost of a snapshot is bounded, however many jobs there are: counters, a few pages of the feed,
//! and the last failed jobs of a few queues.

mod rates;
mod snapshot;
#[cfg(test)]
mod tests;

use crate::store_url::masked;
use rates::RateMeter;
use snapshot::group_failures;
pub use snapshot::{FailureLine, QueueLine, Rates, Snapshot, WorkerLine};
use std::sync::Arc;
use std::time::Duration;
use windlass::Result;
use windlass::core::job::{JobSummary, State};
use windlass::core::store::{
    FeedCursor, FeedRequest, Filter, ListOrder, ListRequest, QueueStatus, Store, StoreInfo, WaitFor,
};

/// The longest wait for a change.
const TICK: Duration = Duration::from_millis(750);
/// Entries of the feed in one page, and pages of one snapshot; older entries are skipped.
const FEED_PAGE: u32 = 500;
const FEED_PAGES: u32 = 8;
/// Older entries of the feed that the first snapshot includes.
const FEED_PAST: u64 = 2_000;
/// Queues whose failed jobs are read, and jobs of each.
const FAILED_QUEUES: usize = 5;
const FAILED_JOBS: u32 = 20;

/// Takes snapshots of a store.
pub struct Monitor {
    store: Arc<dyn Store>,
    url: String,
    info: StoreInfo,
    cursor: FeedCursor,
    meter: RateMeter,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Monitor {
    /// Begins a short while before the end of the feed. The URL is shown in the snapshots, without its passwords.
    pub async fn start(store: Arc<dyn Store>, url: String) -> Result<Self> {
        let info = store.info().await?;
        let FeedCursor(end) = store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        let cursor = FeedCursor(end.saturating_sub(FEED_PAST));
        Ok(Self { store, url, info, cursor, meter: RateMeter::default() })
    }

    /// Waits until the store has changed since the last snapshot, at most 750 ms.
    pub async fn changed(&self) {
        let _ = tokio::time::timeout(TICK, self.store.wait(WaitFor::Feed(self.cursor))).await;
    }

    /// Takes a snapshot.
    pub async fn snapshot(&mut self) -> Result<Snapshot> {
        self.read_feed().await?;
        let now = self.store.now().await?;
        let queues = self.store.queues().await?;
        let workers = self.store.workers().await?;
        let failed = self.failed(&queues).await?;
        let line = |queue: QueueStatus| {
            let rates = self.meter.rates_of(&queue.name, now);
            QueueLine::new(queue, rates)
        };
        Ok(Snapshot {
            at: now,
            store: masked(&self.url),
            durability: durability(&self.info),
            rates: self.meter.rates(now),
            ended: self.meter.ended(now),
            queues: queues.into_iter().map(line).collect(),
            workers: workers.iter().map(|worker| WorkerLine::new(worker, now)).collect(),
            failures: group_failures(&failed, now),
            failures_seen: failed.len() as u64,
        })
    }

    async fn read_feed(&mut self) -> Result<()> {
        for _ in 0..FEED_PAGES {
            let page = self.store.read_feed(FeedRequest { after: Some(self.cursor), max: FEED_PAGE }).await?;
            page.entries.iter().for_each(|entry| self.meter.add(entry));
            self.cursor = page.next;
            if page.gap || page.entries.is_empty() {
                return Ok(());
            }
        }
        // Too much has happened to read all of it: the rates of this snapshot are too low, the next ones are right.
        self.cursor = self.store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        Ok(())
    }

    /// The last failed jobs of the queues with most of them.
    async fn failed(&self, queues: &[QueueStatus]) -> Result<Vec<JobSummary>> {
        let mut most: Vec<&QueueStatus> = queues.iter().filter(|queue| queue.counts.failed > 0).collect();
        most.sort_by_key(|queue| std::cmp::Reverse(queue.counts.failed));
        let mut jobs = Vec::new();
        for queue in most.into_iter().take(FAILED_QUEUES) {
            let filter = Filter { queue: Some(queue.name.clone()), state: Some(State::Failed), ..Filter::default() };
            let request = ListRequest { filter, order: ListOrder::Descending, cursor: None, limit: FAILED_JOBS };
            jobs.extend(self.store.list(request).await?.jobs);
        }
        Ok(jobs)
    }
}

fn durability(info: &StoreInfo) -> String {
    let durability = serde_json::to_value(info.durability).unwrap_or_default();
    format!(
        "{}, survives {}",
        info.store,
        match durability.as_str() {
            Some("none") | None => "nothing",
            Some("process") => "a crash",
            Some("power") => "a power cut",
            Some(other) => other,
        }
    )
}
