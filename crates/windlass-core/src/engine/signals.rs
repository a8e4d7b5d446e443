//! Wake-ups within a process. They only shorten a wait: whoever waits looks again by itself.

use super::{Effects, Ended};
use crate::error::{Error, Result};
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
    /// The last ring for runs.
    runs: u64,
    /// Rings that count for every queue.
    everywhere: u64,
    work: Arc<Notify>,
    ends: HashMap<Ended, Arc<Notify>>,
    closed: bool,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
enum Rings<'q> {
    Work(&'q [QueueName]),
    Runs,
}

impl Inner {
    fn rang_since(&self, what: Rings<'_>, mark: WorkMark) -> bool {
        let last = match what {
            Rings::Runs => self.runs,
            Rings::Work(queues) => queues.iter().filter_map(|queue| self.queues.get(queue)).max().copied().unwrap_or(0),
        };
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
        if effects.runs || !effects.work.is_empty() {
            inner.clock += 1;
            let clock = inner.clock;
            if effects.runs {
                inner.runs = clock;
            }
            for queue in &effects.work {
                match inner.queues.get_mut(queue) {
                    Some(last) => *last = clock,
                    None => drop(inner.queues.insert(queue.clone(), clock)),
                }
            }
            inner.work.notify_waiters();
        }
        if !inner.ends.is_empty() {
            for id in &effects.ended {
                if let Some(waiters) = inner.ends.remove(id) {
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
        inner.ends.drain().for_each(|(_, waiters)| waiters.notify_waiters());
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
        if closed { Err(Error::store_closed()) } else { Ok(()) }
    }

    /// Returns when one of the queues rang after `mark`.
    pub async fn work(&self, queues: &[QueueName], mark: WorkMark) {
        self.rang(Rings::Work(queues), mark).await;
    }

    /// Returns when a run got something to do after `mark`.
    pub async fn runs(&self, mark: WorkMark) {
        self.rang(Rings::Runs, mark).await;
    }

    async fn rang(&self, what: Rings<'_>, mark: WorkMark) {
        loop {
            let bell = {
                let inner = self.inner.lock();
                if inner.rang_since(what, mark) {
                    return;
                }
                Arc::clone(&inner.work)
            };
            let mut ring = std::pin::pin!(bell.notified());
            // Registers before the second look, so that no ring falls in between.
            ring.as_mut().enable();
            if self.inner.lock().rang_since(what, mark) {
                return;
            }
            ring.await;
        }
    }

    /// Returns when the job or run has ended or is removed. `is_open` looks whether it still has to end; it is polled after the wait has
    /// begun, so that an end in between is not missed.
    pub async fn end(&self, id: Ended, is_open: impl Future<Output = Result<bool>>) -> Result<()> {
        let wait = EndWait { signals: self, id, bell: self.bell_of(id) };
        let mut ring = std::pin::pin!(wait.bell.notified());
        ring.as_mut().enable();
        if is_open.await? {
            ring.await;
        }
        Ok(())
    }

    /// Notified when the job or run ends or goes after this call.
    fn bell_of(&self, id: Ended) -> Arc<Notify> {
        Arc::clone(self.inner.lock().ends.entry(id).or_default())
    }

    /// Lets go of a bell, so that what nobody waits for any more costs nothing.
    fn forget_end(&self, id: Ended, bell: Arc<Notify>) {
        let mut inner = self.inner.lock();
        // Once it has rung, the entry is that of others who came since.
        let mine = inner.ends.get(&id).is_some_and(|waiters| Arc::ptr_eq(waiters, &bell));
        // One count is the map's, one the caller's.
        if mine && Arc::strong_count(&bell) <= 2 {
            inner.ends.remove(&id);
        }
        // Under the lock, or two who leave at once would take each other for one that stays.
        drop(bell);
    }

    /// Returns when the feed has an entry after `cursor`.
    pub async fn feed(&self, cursor: FeedCursor) {
        let mut end = self.feed.subscribe();
        // The sender lives in `self`, so this cannot fail while somebody waits.
        let _ = end.wait_for(|end| *end > cursor.0).await;
    }
}

/// Lets go of its bell, also when the wait is given up.
struct EndWait<'s> {
    signals: &'s Signals,
    id: Ended,
    bell: Arc<Notify>,
}

impl Drop for EndWait<'_> {
    fn drop(&mut self) {
        self.signals.forget_end(self.id, std::mem::take(&mut self.bell));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Host, Step};
    use crate::id::JobId;
    use crate::memory::MemoryTables;
    use crate::store::{Store, StoreInfo, WaitFor};
    use crate::time::Timestamp;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const ID: JobId = JobId::from_parts(0, 7);

    /// A host whose reads take for ever.
    #[derive(Default)]
    struct Stuck(Signals);

    impl Host for Stuck {
        type Tables = MemoryTables;
        type Watch<'a> = ();

        async fn write<R, F>(&self, _: F) -> Result<R>
        where
            F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
        {
            std::future::pending().await
        }

        async fn read<R, F>(&self, _: F) -> Result<R>
        where
            F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
        {
            std::future::pending().await
        }

        async fn describe(&self) -> Result<StoreInfo> {
            std::future::pending().await
        }

        fn time(&self) -> Timestamp {
            Timestamp::from_ms(0)
        }

        fn watch(&self) {}

        fn signals(&self) -> &Signals {
            &self.0
        }

        async fn shut_down(&self) -> Result<()> {
            Ok(())
        }
    }

    fn poll(future: std::pin::Pin<&mut impl Future>) -> bool {
        matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
    }

    #[test]
    fn a_wait_that_is_given_up_during_its_first_look_leaves_nothing_behind() {
        let host = Stuck::default();
        let mut waits: Vec<_> = (0..3).map(|_| host.wait(WaitFor::Job(ID))).collect();
        assert!(waits.iter_mut().all(|wait| !poll(pin!(wait))));
        waits.truncate(1);
        assert_eq!(host.0.inner.lock().ends.len(), 1, "one still waits");
        waits.clear();
        assert_eq!(host.0.inner.lock().ends.len(), 0);
    }

    #[test]
    fn whoever_leaves_late_lets_those_wait_who_came_since() {
        let host = Stuck::default();
        let mut early = host.wait(WaitFor::Job(ID));
        assert!(!poll(pin!(&mut early)));
        host.0.announce_all(1);
        let late = host.0.bell_of(Ended::Job(ID));
        let mut ring = pin!(late.notified());
        assert!(!poll(ring.as_mut()));
        drop(early);
        host.0.announce(&Effects { ended: vec![Ended::Job(ID)], ..Effects::default() });
        assert!(poll(ring.as_mut()), "the end of the job is heard");
    }
}
