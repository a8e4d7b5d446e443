//! Enqueueing at a steady rate.

use super::board::News;
use super::jobs::{Email, Invoice, Kind, Thumbnail, Webhook};
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use windlass::core::store::Enqueued;
use windlass::core::time::{Clock, SystemClock};
use windlass::{Client, Options, Result};

const TICK: Duration = Duration::from_millis(25);
/// Jobs enqueued at once; what the store cannot take in time is not made up for.
const BATCH_MAX: u64 = 500;
const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];

pub(super) struct Producer {
    pub(super) client: Client,
    pub(super) news: Sender<News>,
    pub(super) rate: u32,
    /// Of thumbnails.
    pub(super) timeout: Duration,
    /// Tells this run's bills from those of others on the same store.
    pub(super) run: String,
    pub(super) valve: Arc<Valve>,
}

/// What the producer is told while it runs.
#[derive(Debug, Default)]
pub(super) struct Valve {
    /// No more jobs.
    pub(super) closed: AtomicBool,
    /// Jobs that wait.
    pub(super) backlog: AtomicU64,
    /// More than so many are not piled up, or a demo of slow workers would never end.
    pub(super) backlog_max: u64,
}

impl Producer {
    /// Runs until the valve is closed; whatever was acknowledged is told before it ends.
    pub(super) async fn run(self) {
        let started = SystemClock.now();
        let (mut number, mut forgiven) = (0, 0);
        while !self.valve.closed.load(Ordering::Relaxed) {
            tokio::time::sleep(TICK).await;
            let owed = SystemClock.now().ms_since(started) * u64::from(self.rate) / 1_000;
            let room = self.valve.backlog_max.saturating_sub(self.valve.backlog.load(Ordering::Relaxed));
            let due = owed.saturating_sub(number + forgiven);
            let now = due.min(room).min(BATCH_MAX);
            forgiven += due - now;
            let answers = join_all((number..number + now).map(|number| self.one(number))).await;
            number += now;
            for news in answers {
                if self.news.send(news).await.is_err() {
                    return;
                }
            }
        }
        // Nobody may be left to hear it.
        let _ = self.news.send(News::NoMore).await;
    }

    async fn one(&self, number: u64) -> News {
        let kind = Kind::of(number);
        match self.enqueue(kind, number).await {
            Ok(Enqueued::Deduplicated { .. }) => News::Deduplicated,
            Ok(enqueued) => News::Acknowledged { id: enqueued.id(), kind },
            Err(error) => News::NotEnqueued(error.to_string()),
        }
    }

    async fn enqueue(&self, kind: Kind, number: u64) -> Result<Enqueued> {
        let turn = usize::try_from(number / 10).unwrap_or(0) % TENANTS.len();
        let tenant = TENANTS.get(turn).copied().unwrap_or("acme").to_owned();
        let client = &self.client;
        Ok(match kind {
            Kind::Email => {
                let to = format!("user{number}@{tenant}.example");
                client.enqueue(Email { number, tenant, to }).await?.enqueued()
            }
            Kind::Webhook => {
                let url = format!("https://{tenant}.example/hooks/{number}");
                client.enqueue(Webhook { number, tenant, url }).await?.enqueued()
            }
            Kind::Thumbnail => {
                let options = Options::new().timeout(self.timeout);
                let image = format!("{tenant}/{number}.jpg");
                client.enqueue_with(Thumbnail { number, tenant, image }, options).await?.enqueued()
            }
            Kind::Invoice => {
                // Two jobs for each bill: the second is turned away while the first has not ended.
                let bill = format!("{}-{}", self.run, number / 10);
                client.enqueue(Invoice { number, tenant, bill }).await?.enqueued()
            }
        })
    }
}
