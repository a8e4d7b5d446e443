//! All that can be seen of a store, to show that something changed nothing.

use crate::ctx::Ctx;
use windlass_core::job::Job;
use windlass_core::store::{FeedCursor, FeedRequest, LIST_MAX, ListRequest, QueueStatus, WorkerStatus};

/// What a store shows at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    queues: Vec<QueueStatus>,
    jobs: Vec<Job>,
    workers: Vec<WorkerStatus>,
    /// A call that changes nothing adds nothing to the feed either.
    feed: FeedCursor,
}

/// Looks at everything.
pub(super) async fn snapshot(ctx: &Ctx) -> Snapshot {
    let mut jobs = Vec::new();
    let mut cursor = None;
    loop {
        let request = ListRequest { limit: LIST_MAX, cursor, ..ListRequest::default() };
        let page = ctx.store.list(request).await.unwrap();
        let ids = page.jobs.iter().map(|job| job.id).collect();
        jobs.extend(ctx.store.get(ids).await.unwrap().into_iter().flatten());
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    jobs.sort_by_key(|job| job.id);
    let queues = ctx.store.queues().await.unwrap();
    let workers = ctx.store.workers().await.unwrap();
    let feed = ctx.store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next;
    Snapshot { queues, jobs, workers, feed }
}
