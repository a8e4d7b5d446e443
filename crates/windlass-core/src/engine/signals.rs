//! Wake-ups within a process. They only shorten a wait: whoever waits looks again by itself.

use super::Effects;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::name::QueueName;
use crate::store::{FeedCursor, WorkMark};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Tells waiters what the steps of this process did.
#[derive(Debug, Default)]
pub struct Signals {
    inner: Mutex<Inner>,
    feed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Rises with every ring.
    clock: u64,
    /// The last ring of each queue.
    queues: HashMap<QueueName, u64>,
    /// Rings that count for every queue.
    everywhere: u64,
    work: Arc<Notify>,
    jobs: HashMap<JobId, Arc<Notify>>,
    closed: bool,
}

impl Inner {
    fn rang_since(&self, queues: &[QueueName], mark: WorkMark) -> bool {
        let last = queues.iter().filter_map(|queue| self.queues.get(queue)).max().copied().unwrap_or(0);
        self.closed || last.max(self.everywhere) > mark.0
    }
}

impl Signals {
    /// What a claim that begins now will have seen.
    pub fn mark(&self) -> WorkMark {
        WorkMark(self.inner.lock().clock)
    }

    /// Tells everybody who waits for what a step did.
    pub fn announce(&self, effects: &Effects) {
        let mut inner = self.inner.lock();
        if !effects.work.is_empty() {
            inner.clock += 1;
            let clock = inner.clock;
            for queue in &effects.work {
                match inner.queues.get_mut(queue) {
                    Some(last) => *last = clock,
                    None => drop(inner.queues.insert(queue.clone(), clock)),
                }
            }
            inner.work.notify_waiters();
        }
        if !inner.jobs.is_empty() {
            for id in &effects.ended {
                if let Some(waiters) = inner.jobs.remove(id) {
                    waiters.notify_waiters();
                }
            }
        }
        drop(inner);
        if let Some(FeedCursor(end)) = effects.feed {
            self.feed.send_if_modified(|last| std::mem::replace(last, end.max(*last)) < end);
        }
    }

    /// Something changed that this process did not do: everybody looks.
    pub fn announce_all(&self, feed_end: u64) {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        inner.everywhere = inner.clock;
        inner.work.notify_waiters();
        inner.jobs.drain().for_each(|(_, waiters)| waiters.notify_waiters());
        drop(inner);
        self.feed.send_if_modified(|last| std::mem::replace(last, feed_end.max(*last)) < feed_end);
    }

    /// Nothing will happen any more: everybody returns.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.announce_all(u64::MAX);
    }

    /// `Unavailable` once the store was closed.
    pub fn check_open(&self) -> Result<()> {
        let closed = self.inner.lock().closed;
        if closed { Err(Error::Unavailable { reason: "the store was closed".to_owned() }) } else { Ok(()) }
    }

    /// Returns when one of the queues rang after `mark`.
    pub async fn work(&self, queues: &[QueueName], mark: WorkMark) {
        loop {
            let bell = {
                let inner = self.inner.lock();
                if inner.rang_since(queues, mark) {
                    return;
                }
                Arc::clone(&inner.work)
            };
            let mut ring = std::pin::pin!(bell.notified());
            // Registers before the second look, so that no ring falls in between.
            ring.as_mut().enable();
            if self.inner.lock().rang_since(queues, mark) {
                return;
            }
            ring.await;
        }
    }

    /// A promise that is kept when the job ends or goes after this call.
    pub fn job(&self, id: JobId) -> Arc<Notify> {
        Arc::clone(self.inner.lock().jobs.entry(id).or_default())
    }

    /// Lets go of a waiter's entry, so that a job nobody waits for any more costs nothing.
    pub fn forget_job(&self, id: JobId) {
        let mut inner = self.inner.lock();
        // One count is the map's, one the caller's.
        if inner.jobs.get(&id).is_some_and(|waiters| Arc::strong_count(waiters) <= 2) {
            inner.jobs.remove(&id);
        }
    }

    /// Returns when the feed has an entry after `cursor`.
    pub async fn feed(&self, cursor: FeedCursor) {
        let mut end = self.feed.subscribe();
        // The sender lives in `self`, so this cannot fail while somebody waits.
        let _ = end.wait_for(|end| *end > cursor.0).await;
    }
}
