//! The worker registry.

use super::Step;
use super::rows::Worker;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::name::{WORKER_LABELS_MAX, WorkerId};
use crate::store::{BATCH_MAX, Beat, BeatAnswer, Kinds, WorkerStatus};

/// The longest time without a beat that a worker may ask for: one day.
const TTL_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// The longest text about a worker, in bytes.
const ABOUT_BYTES_MAX: usize = 4_096;

impl<T: Tables> Step<'_, T> {
    /// See [`WorkerRegistry::heartbeat`](crate::store::WorkerRegistry::heartbeat).
    ///
    /// A beat that says nothing new is written down only when a third of the worker's time has passed, so that an idle
    /// worker does not keep a disk awake.
    pub fn heartbeat(&mut self, beat: Beat) -> Result<BeatAnswer> {
        check_beat(&beat)?;
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

fn check_beat(beat: &Beat) -> Result<()> {
    if beat.labels.len() > WORKER_LABELS_MAX {
        return Err(Error::limit("labels", WORKER_LABELS_MAX as u64, beat.labels.len() as u64));
    }
    if beat.about.len() > ABOUT_BYTES_MAX {
        return Err(Error::limit("about, in bytes,", ABOUT_BYTES_MAX as u64, beat.about.len() as u64));
    }
    let kinds = if let Kinds::Only(kinds) = &beat.kinds { kinds.len() } else { 0 };
    if kinds.max(beat.queues.len()) > BATCH_MAX {
        return Err(Error::limit("kinds or queues", BATCH_MAX as u64, kinds.max(beat.queues.len()) as u64));
    }
    match beat.ttl_ms {
        0 => Err(Error::invalid("ttl_ms", "is 0; say after how long of silence the worker counts as dead")),
        1..=TTL_MS_MAX => Ok(()),
        ms => Err(Error::limit("ttl_ms", TTL_MS_MAX, ms)),
    }
}
