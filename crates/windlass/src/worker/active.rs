//! The jobs that a worker holds leases on.

use super::health::now;
use super::lease_clock::LeaseEnd;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::Instant;
use windlass_core::id::JobId;
use windlass_core::job::{Lease, Progress};
use windlass_core::store::LogLine;

/// The most lines that wait to be passed on; a handler that says more in the meantime is not heard.
const LINES_WAITING_MAX: usize = 10_000;
/// From here on whoever can wait passes its lines on before it says more. Twice as many are still not too many: those on
/// their way may come back.
pub(super) const LINES_FULL: usize = 4_096;
/// The same in bytes.
pub(super) const LINE_BYTES_FULL: usize = 4 << 20;

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
    /// Since when it is held, as far as we know.
    pub(crate) since: Instant,
    /// When the claim was sent, by the worker's [`LeaseClock`](super::LeaseClock).
    pub(super) sent_at: Duration,
    pub(super) lease_end: LeaseEnd,
    stop: AtomicU8,
    stopped: Notify,
    /// Its handler has ended and its outcome is known.
    ended: AtomicBool,
    notes: Mutex<Notes>,
    /// The number that its next log line will have, once it is known.
    log_place: tokio::sync::Mutex<Option<u64>>,
}

/// What a handler has said and nobody has passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) progress: Option<Progress>,
    pub(crate) lines: Vec<LogLine>,
    /// The bytes of these lines.
    line_bytes: usize,
    pub(crate) outputs: BTreeMap<String, String>,
}

impl Notes {
    pub(super) fn take_lines(&mut self) -> Vec<LogLine> {
        self.line_bytes = 0;
        std::mem::take(&mut self.lines)
    }

    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= LINES_FULL || self.line_bytes >= LINE_BYTES_FULL
    }
}

impl Active {
    /// A job of whose lease nothing more is known.
    pub(crate) fn new(lease: Lease, since: Instant) -> Self {
        Self::ending(lease, since, Duration::ZERO, LeaseEnd::never())
    }

    fn ending(lease: Lease, since: Instant, sent_at: Duration, lease_end: LeaseEnd) -> Self {
        Self {
            lease,
            since,
            sent_at,
            lease_end,
            stop: AtomicU8::new(0),
            stopped: Notify::new(),
            ended: AtomicBool::new(false),
            notes: Mutex::default(),
            log_place: tokio::sync::Mutex::default(),
        }
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

    /// True when the lease may have ended at this time of the worker's [`LeaseClock`](super::LeaseClock).
    pub(crate) fn lease_is_over(&self, now: Duration) -> bool {
        self.lease_end.is_over(now)
    }

    /// Returns when the handler is told to stop.
    pub(crate) async fn stopped(&self) {
        self.stopped_for(Stop::Cancelled).await;
    }

    /// Returns when it is told that the worker leaves, and for no other reason.
    pub(crate) async fn left(&self) {
        self.stopped_for(Stop::Leaving).await;
        if self.stop() == Stop::Lost {
            std::future::pending::<()>().await;
        }
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

    pub(crate) fn push_log(&self, lines: Vec<LogLine>) {
        let mut notes = self.notes.lock();
        let room = LINES_WAITING_MAX.saturating_sub(notes.lines.len());
        if lines.len() > room {
            tracing::warn!(job = %self.lease.job, lost = lines.len() - room, "it logs faster than its lines are stored");
        }
        for line in lines.into_iter().take(room) {
            notes.line_bytes += line.text.len();
            notes.lines.push(line);
        }
    }

    /// Adds lines of somebody who waits while there are too many; true when there are.
    pub(super) fn add_lines(&self, mut lines: Vec<LogLine>) -> bool {
        let mut notes = self.notes.lock();
        notes.line_bytes += lines.iter().map(|line| line.text.len()).sum::<usize>();
        notes.lines.append(&mut lines);
        notes.is_full()
    }

    pub(crate) async fn log_place(&self) -> MutexGuard<'_, Option<u64>> {
        self.log_place.lock().await
    }

    /// `None` while somebody else passes on its lines.
    pub(crate) fn free_log_place(&self) -> Option<MutexGuard<'_, Option<u64>>> {
        self.log_place.try_lock().ok()
    }

    /// Puts lines back that could not be passed on; the newest are lost when there are too many.
    pub(crate) fn put_back_lines(&self, mut lines: Vec<LogLine>) {
        if lines.is_empty() {
            return;
        }
        let mut notes = self.notes.lock();
        lines.append(&mut notes.lines);
        lines.truncate(LINES_WAITING_MAX);
        notes.line_bytes = lines.iter().map(|line| line.text.len()).sum();
        notes.lines = lines;
    }

    /// True when nobody had noted it before.
    pub(crate) fn note_ended(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
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
pub(crate) struct Actives {
    all: Mutex<HashMap<JobId, Arc<Active>>>,
    /// Rings when some come.
    come: Notify,
}

impl Actives {
    /// Adds jobs of a claim that was sent at `sent_at`.
    pub(super) fn add(&self, leases: impl Iterator<Item = Lease>, sent_at: Duration, lease_ms: u64) {
        let since = now();
        let mut all = self.all.lock();
        for lease in leases {
            let active = Active::ending(lease, since, sent_at, LeaseEnd::of(sent_at, lease_ms));
            let before = all.insert(lease.job, Arc::new(active));
            // Its lease ran out and it came back to us: whoever still works on it is too late.
            if let Some(before) = before.filter(|before| before.lease != lease) {
                before.tell(Stop::Lost);
            }
        }
        let some = !all.is_empty();
        drop(all);
        if some {
            self.come.notify_one();
        }
    }

    /// Returns when some have come since this was last asked. One at a time may wait.
    pub(crate) async fn come(&self) {
        self.come.notified().await;
    }

    /// The one with this lease. When its job was leased again in the meantime, the lease is lost, and the one with the
    /// new lease is left alone.
    pub(crate) fn get_or_add(&self, lease: Lease) -> Arc<Active> {
        let mut all = self.all.lock();
        let active = all.entry(lease.job).or_insert_with(|| Arc::new(Active::new(lease, now())));
        if active.lease == lease {
            return Arc::clone(active);
        }
        let lost = Active::new(lease, now());
        lost.tell(Stop::Lost);
        Arc::new(lost)
    }

    pub(crate) fn get(&self, id: JobId) -> Option<Arc<Active>> {
        self.all.lock().get(&id).cloned()
    }

    /// Removes those that were reported. One that was leased again in the meantime stays.
    pub(crate) fn remove(&self, leases: impl Iterator<Item = Lease>) {
        let mut all = self.all.lock();
        for lease in leases {
            if all.get(&lease.job).is_some_and(|active| active.lease == lease) {
                all.remove(&lease.job);
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Active>> {
        self.all.lock().values().cloned().collect()
    }
}
