//! Following the feed, and looking at queues and workers now and then.

use super::board::News;
use super::jobs::QUEUES;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use windlass::Result;
use windlass::core::id::JobId;
use windlass::core::job::{Job, Verb};
use windlass::core::store::{FeedCursor, FeedEvent, FeedPage, FeedRequest, Store, WaitFor};

/// How long a wait goes without a look of its own.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often queues and workers are looked at.
const STATUS: Duration = Duration::from_millis(400);
/// How long to leave a store alone that does not answer.
const PAUSE: Duration = Duration::from_millis(500);
const PAGE_MAX: u32 = 500;
/// Failures that are looked at for their reasons, per page.
const REASONS_MAX: usize = 50;

/// Follows the feed from `cursor`; ends with its reader.
pub(super) async fn feed(store: Arc<dyn Store>, mut cursor: FeedCursor, news: Sender<News>) {
    loop {
        let read = read(&store, cursor).await;
        let told = match read {
            Ok((page, _)) if page.entries.is_empty() && !page.gap => {
                // Whatever comes of the wait, the next look tells.
                let _ = tokio::time::timeout(LOOK_AGAIN, store.wait(WaitFor::Feed(cursor))).await;
                continue;
            }
            Ok((page, failures)) => {
                cursor = page.next;
                news.send(News::Feed { page, failures }).await
            }
            Err(error) => {
                let told = news.send(News::Trouble(error.to_string())).await;
                tokio::time::sleep(PAUSE).await;
                told
            }
        };
        if told.is_err() {
            return;
        }
    }
}

/// One page, and the failures that it speaks of.
pub(super) async fn read(store: &Arc<dyn Store>, cursor: FeedCursor) -> Result<(FeedPage, Vec<Job>)> {
    let page = store.read_feed(FeedRequest { after: Some(cursor), max: PAGE_MAX }).await?;
    let failed: Vec<JobId> = page
        .entries
        .iter()
        .flat_map(|entry| &entry.events)
        .filter_map(|event| match event {
            FeedEvent::Job(job) if job.verb == Verb::Fail && QUEUES.contains(&job.queue.as_str()) => Some(job.job),
            _ => None,
        })
        .take(REASONS_MAX)
        .collect();
    let jobs = if failed.is_empty() { Vec::new() } else { store.get(failed).await? };
    Ok((page, jobs.into_iter().flatten().collect()))
}

/// Looks at queues and workers; ends with its reader.
pub(super) async fn status(store: Arc<dyn Store>, news: Sender<News>) {
    loop {
        let look = async { Ok::<_, windlass::Error>((store.queues().await?, store.workers().await?)) };
        let word = match look.await {
            Ok((queues, workers)) => News::Status { queues, workers },
            Err(error) => News::Trouble(error.to_string()),
        };
        if news.send(word).await.is_err() {
            return;
        }
        tokio::time::sleep(STATUS).await;
    }
}
