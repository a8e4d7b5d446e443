//! The jobs that a worker holds leases on.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;
use windlass_core::id::JobId;
use windlass_core::job::{Lease, Progress};

/// Why a handler should stop, if it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stop {
    /// It should not.
    No = 0,
    /// The job was cancelled.
    Cancelled = 1,
    /// The worker goes.
    Leaving = 2,
    /// The lease is lost: somebody else may have the job by now.
    Lost = 3,
}

impl Stop {
    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::No,
            1 => Self::Cancelled,
            2 => Self::Leaving,
            _ => Self::Lost,
        }
    }
}

/// One of them: what its handler says, and what it is told.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) lease: Lease,
    stop: AtomicU8,
    stopped: Notify,
    notes: Mutex<Notes>,
}

/// What a handler has said and nobody has passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) progress: Option<Progress>,
    pub(crate) lines: Vec<String>,
    /// Lines passed on before these.
    pub(crate) lines_sent: u64,
    pub(crate) outputs: BTreeMap<String, String>,
}

impl Active {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, stop: AtomicU8::new(0), stopped: Notify::new(), notes: Mutex::default() }
    }

    /// Tells the handler to stop; a graver reason takes the place of a lighter one.
    pub(crate) fn tell(&self, stop: Stop) {
        let before = self.stop.fetch_max(stop as u8, Ordering::SeqCst);
        if before < stop as u8 {
            self.stopped.notify_waiters();
        }
    }

    pub(crate) fn stop(&self) -> Stop {
        Stop::from_code(self.stop.load(Ordering::SeqCst))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop() != Stop::No
    }

    /// Returns when the handler is told to stop.
    pub(crate) async fn stopped(&self) {
        self.stopped_for(Stop::Cancelled).await;
    }

    /// Returns when it is told so for this reason or a graver one.
    pub(crate) async fn stopped_for(&self, least: Stop) {
        loop {
            let told = self.stopped.notified();
            tokio::pin!(told);
            // From here on no call is missed.
            told.as_mut().enable();
            if self.stop() >= least {
                return;
            }
            told.await;
        }
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        self.notes.lock().progress = Some(progress);
    }

    pub(crate) fn push_log(&self, line: String) {
        self.notes.lock().lines.push(line);
    }

    pub(crate) fn set_output(&self, name: String, value: String) {
        self.notes.lock().outputs.insert(name, value);
    }

    pub(crate) fn notes(&self) -> parking_lot::MutexGuard<'_, Notes> {
        self.notes.lock()
    }
}

/// All of them, by id.
#[derive(Debug, Default)]
pub(crate) struct Actives(Mutex<HashMap<JobId, Arc<Active>>>);

impl Actives {
    pub(crate) fn add(&self, leases: impl Iterator<Item = Lease>) {
        let mut all = self.0.lock();
        all.extend(leases.map(|lease| (lease.job, Arc::new(Active::new(lease)))));
    }

    pub(crate) fn get(&self, id: JobId) -> Option<Arc<Active>> {
        self.0.lock().get(&id).cloned()
    }

    /// Removes those that were reported. One that was leased again in the meantime stays.
    pub(crate) fn remove(&self, leases: impl Iterator<Item = Lease>) {
        let mut all = self.0.lock();
        for lease in leases {
            if all.get(&lease.job).is_some_and(|active| active.lease == lease) {
                all.remove(&lease.job);
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Active>> {
        self.0.lock().values().cloned().collect()
    }
}
