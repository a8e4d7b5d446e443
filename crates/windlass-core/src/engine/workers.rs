//! The worker registry.

use super::Step;
use super::rows::Worker;
use super::tables::Tables;
use crate::error::Result;
use crate::name::WorkerId;
use crate::store::{Beat, BeatAnswer, WorkerStatus};

impl<T: Tables> Step<'_, T> {
    /// See [`WorkerRegistry::heartbeat`](crate::store::WorkerRegistry::heartbeat).
    ///
    /// A beat that says nothing new is written down only when a third of the worker's time has passed, so that an idle
    /// worker does not keep a disk awake.
    pub fn heartbeat(&mut self, beat: Beat) -> Result<BeatAnswer> {
        beat.check()?;
        let known = self.tables.worker(&beat.worker)?;
        let since = known.as_ref().map_or(self.now, |worker| worker.since);
        let news = known.is_none_or(|known| known.beat != beat || self.now.ms_since(known.seen_at) >= beat.ttl_ms / 3);
        let cancelled = self.tables.cancelling(&beat.worker)?;
        if news {
            self.tables.put_worker(Worker { beat, since, seen_at: self.now })?;
        }
        Ok(BeatAnswer { cancelled })
    }

    /// See [`WorkerRegistry::deregister`](crate::store::WorkerRegistry::deregister).
    pub fn deregister(&mut self, worker: &WorkerId) -> Result<()> {
        self.tables.remove_worker(worker)
    }

    /// See [`WorkerRegistry::workers`](crate::store::WorkerRegistry::workers).
    pub fn worker_statuses(&mut self) -> Result<Vec<WorkerStatus>> {
        let now = self.now;
        let status = |worker: Worker| WorkerStatus {
            live: worker.is_live(now),
            beat: worker.beat,
            since: worker.since,
            seen_at: worker.seen_at,
        };
        Ok(self.tables.workers()?.into_iter().map(status).collect())
    }
}
