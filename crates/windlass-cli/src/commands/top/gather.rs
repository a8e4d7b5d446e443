//! Looking at the store: what it costs is bounded, however many jobs there are. Counters, a few pages of the feed, and the
//! last failed jobs of a few queues.

use super::meter::Meter;
use super::snapshot::{QueueLine, Snapshot, WorkerLine, group};
use super::state::Event;
use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use windlass::Result;
use windlass::core::job::{JobSummary, State};
use windlass::core::store::{
    FeedCursor, FeedRequest, Filter, ListOrder, ListRequest, QueueStatus, Store, StoreInfo, WaitFor,
};
use windlass_operate::store_url::masked;

/// No more often than this, however much happens.
const PAUSE: Duration = Duration::from_millis(250);
/// And no less often.
const TICK: Duration = Duration::from_millis(750);
/// Entries of the feed in one page, and pages in one look; what is further behind is skipped.
const FEED_PAGE: u32 = 500;
const FEED_PAGES: u32 = 8;
/// Entries of the past that the first look begins with.
const FEED_PAST: u64 = 2_000;
/// Queues with failures that are looked at, and jobs of each.
const FAILED_QUEUES: usize = 5;
const FAILED_JOBS: u32 = 20;

pub(super) struct Gatherer {
    store: Arc<dyn Store>,
    url: String,
    info: StoreInfo,
    cursor: FeedCursor,
    meter: Meter,
}

impl Gatherer {
    pub(super) async fn start(store: Arc<dyn Store>, url: String) -> std::result::Result<Self, Failure> {
        let info = store.info().await?;
        let FeedCursor(end) = store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        let cursor = FeedCursor(end.saturating_sub(FEED_PAST));
        Ok(Self { store, url, info, cursor, meter: Meter::default() })
    }

    /// Sends snapshots until nobody wants them any more.
    pub(super) async fn run(mut self, events: Sender<Event>, again: Arc<Notify>) {
        loop {
            let event = match self.look().await {
                Ok(snapshot) => Event::Looked(Box::new(snapshot)),
                Err(error) => Event::Trouble(error.to_string()),
            };
            if events.send(event).await.is_err() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                // Whatever comes of the wait, the next look tells.
                _ = tokio::time::timeout(TICK, self.store.wait(WaitFor::Feed(self.cursor))) => {}
                () = again.notified() => {}
            }
        }
    }

    pub(super) async fn look(&mut self) -> Result<Snapshot> {
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
            durability: words(&self.info),
            rates: self.meter.rates(now),
            ended: self.meter.ended(now),
            queues: queues.into_iter().map(line).collect(),
            workers: workers.iter().map(|worker| WorkerLine::new(worker, now)).collect(),
            failures: group(&failed, now),
            failures_seen: failed.len() as u64,
        })
    }

    async fn read_feed(&mut self) -> Result<()> {
        for _ in 0..FEED_PAGES {
            let page = self.store.read_feed(FeedRequest { after: Some(self.cursor), max: FEED_PAGE }).await?;
            page.entries.iter().for_each(|entry| self.meter.note(entry));
            self.cursor = page.next;
            if page.gap || page.entries.is_empty() {
                return Ok(());
            }
        }
        // Too much has happened to read it all: the rates of this moment are too low, and the next ones right again.
        self.cursor = self.store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        Ok(())
    }

    /// The last failed jobs of the queues that have most of them.
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

fn words(info: &StoreInfo) -> String {
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

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
