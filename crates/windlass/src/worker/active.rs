//! The jobs that a worker holds leases on.

use super::health::now;
use super::lease_clock::LeaseEnd;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::Instant;
use windlass_core::id::JobId;
use windlass_core::job::{Lease, Progress};
use windlass_core::store::{LogLine, LogStream};

/// The most lines of a job that wait to be stored. Only a handler that neither awaits nor runs on a thread of its own reaches
/// this bound; its further lines are counted and left out.
const LINES_WAITING_MAX: usize = 10_000;
/// The same in bytes.
const LINE_BYTES_WAITING_MAX: usize = 16 << 20;
/// From here on a handler waits until the store has taken lines. Twice as many are still not too many: lines of a failed
/// call come back.
pub(super) const LINES_FULL: usize = 4_096;
/// The same in bytes.
pub(super) const LINE_BYTES_FULL: usize = 4 << 20;
/// The longest time in which a blocking handler that waits for room does not notice that it is to stop.
const ROOM_LOOK: Duration = Duration::from_millis(100);

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
    /// The worker leaves, whatever else the handler was told.
    leaving: AtomicBool,
    stopped: Notify,
    /// Its handler has ended and its outcome is known.
    ended: AtomicBool,
    notes: Mutex<Notes>,
    /// When its handler began, or last reported a heartbeat or progress; `None` if nobody watches that.
    beat: Mutex<Option<Instant>>,
    /// Many lines wait to be stored: the handler is to wait.
    full: AtomicBool,
    /// Notified when lines were taken.
    room: Condvar,
    /// The number that its next log line will have, once it is known.
    log_place: tokio::sync::Mutex<Option<u64>>,
}

/// What a handler has said and nobody has passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) progress: Option<Progress>,
    lines: Lines,
    pub(crate) outputs: BTreeMap<String, String>,
}

/// Log lines of a job that wait to be stored.
#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<LogLine>,
    bytes: usize,
    /// Lines left out since the last one that waits.
    left_out: u64,
}

/// A number of log lines and of their bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    pub(super) lines: usize,
    pub(super) bytes: usize,
}

impl Lines {
    fn is_full(&self) -> bool {
        self.waiting.len() >= LINES_FULL || self.bytes >= LINE_BYTES_FULL
    }

    fn has_room_for(&self, line: &LogLine) -> bool {
        self.waiting.len() < LINES_WAITING_MAX && self.bytes + line.text.len() <= LINE_BYTES_WAITING_MAX
    }

    fn push(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.waiting.push_back(line);
    }

    /// Adds lines as long as there is room. A line of ours stands in place of those that were left out.
    fn push_bounded(&mut self, lines: Vec<LogLine>) {
        for line in lines {
            if !self.has_room_for(&line) {
                self.left_out += 1;
                continue;
            }
            self.note_left_out(&line);
            self.push(line);
        }
    }

    fn note_left_out(&mut self, near: &LogLine) {
        if self.left_out > 0 {
            let text =
                format!("({} lines were left out: the store did not take them as fast as they came)", self.left_out);
            self.left_out = 0;
            self.push(LogLine { at: near.at, stream: LogStream::Log, text: text.into() });
        }
    }

    /// Takes the oldest; one that is too long by itself only if `one_in_any_case`.
    fn take(&mut self, most: Portion, one_in_any_case: bool) -> Vec<LogLine> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(line) = self.waiting.pop_front() {
            let must = one_in_any_case && taken.is_empty();
            if !must && (taken.len() >= most.lines || bytes + line.text.len() > most.bytes) {
                self.waiting.push_front(line);
                break;
            }
            bytes += line.text.len();
            taken.push(line);
        }
        self.bytes -= bytes;
        if let Some(last) = taken.last().filter(|_| self.waiting.is_empty()) {
            self.note_left_out(last);
        }
        taken
    }

    /// Puts lines back before all others; the newest are left out when there are too many.
    fn put_back(&mut self, lines: Vec<LogLine>) {
        for line in lines.into_iter().rev() {
            self.bytes += line.text.len();
            self.waiting.push_front(line);
        }
        while self.waiting.len() > LINES_WAITING_MAX
            && let Some(line) = self.waiting.pop_back()
        {
            self.bytes -= line.text.len();
            self.left_out += 1;
        }
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
            leaving: AtomicBool::new(false),
            stopped: Notify::new(),
            ended: AtomicBool::new(false),
            notes: Mutex::default(),
            beat: Mutex::default(),
            full: AtomicBool::new(false),
            room: Condvar::new(),
            log_place: tokio::sync::Mutex::default(),
        }
    }

    /// Tells the handler to stop; a graver reason takes the place of a lighter one.
    pub(crate) fn tell(&self, stop: Stop) {
        if stop == Stop::Leaving && !self.leaving.swap(true, Ordering::SeqCst) {
            self.stopped.notify_waiters();
        }
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

    /// Returns when the worker leaves, also for a job that was told to stop for a graver reason.
    pub(crate) async fn worker_leaves(&self) {
        self.told(|| self.leaving.load(Ordering::SeqCst)).await;
    }

    /// Returns when it is told so for this reason or a graver one.
    pub(crate) async fn stopped_for(&self, least: Stop) {
        self.told(|| self.stop() >= least).await;
    }

    /// Returns when it is told something, and `is_enough` is true then.
    async fn told(&self, is_enough: impl Fn() -> bool) {
        loop {
            let told = self.stopped.notified();
            tokio::pin!(told);
            // From here on no call is missed.
            told.as_mut().enable();
            if is_enough() {
                return;
            }
            told.await;
        }
    }

    /// The handler is alive.
    pub(crate) fn beat(&self) {
        *self.beat.lock() = Some(now());
    }

    pub(super) fn last_beat(&self) -> Option<Instant> {
        *self.beat.lock()
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        self.beat();
        self.notes.lock().progress = Some(progress);
    }

    /// Adds lines of a handler that cannot wait; those for which there is no room are left out.
    pub(crate) fn push_log(&self, lines: Vec<LogLine>) {
        self.change_lines(|waiting| {
            let before = waiting.left_out;
            waiting.push_bounded(lines);
            if before == 0 && waiting.left_out > 0 {
                tracing::warn!(job = %self.lease.job, "it logs faster than its lines are stored; lines are left out");
            }
        });
    }

    /// Adds lines of a handler that waits while there are too many.
    pub(super) fn add_lines(&self, lines: Vec<LogLine>) {
        self.change_lines(|waiting| lines.into_iter().for_each(|line| waiting.push(line)));
    }

    /// Takes the oldest lines that fit; the first one, if there is any, also when it does not if `one_in_any_case`.
    pub(super) fn take_lines(&self, most: Portion, one_in_any_case: bool) -> Vec<LogLine> {
        let taken = self.change_lines(|waiting| waiting.take(most, one_in_any_case));
        self.room.notify_all();
        taken
    }

    /// Puts lines back that could not be stored.
    pub(super) fn put_back_lines(&self, lines: Vec<LogLine>) {
        if !lines.is_empty() {
            self.change_lines(|waiting| waiting.put_back(lines));
        }
    }

    fn change_lines<T>(&self, change: impl FnOnce(&mut Lines) -> T) -> T {
        let mut notes = self.notes.lock();
        let changed = change(&mut notes.lines);
        self.full.store(notes.lines.is_full(), Ordering::Relaxed);
        changed
    }

    /// How many lines are to be stored; the one that counts those that were left out is among them.
    pub(super) fn lines_waiting(&self) -> usize {
        let lines = &self.notes.lock().lines;
        lines.waiting.len() + usize::from(lines.left_out > 0)
    }

    pub(super) fn has_lines(&self) -> bool {
        !self.notes.lock().lines.waiting.is_empty()
    }

    /// True when so many lines wait to be stored that the handler is to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Blocks the thread until lines were taken, or `is_over`.
    pub(crate) fn wait_for_room(&self, is_over: impl Fn() -> bool) {
        let mut notes = self.notes.lock();
        while notes.lines.is_full() && !is_over() {
            self.room.wait_for(&mut notes, ROOM_LOOK);
        }
    }

    #[cfg(test)]
    pub(super) fn waiting_lines(&self) -> Portion {
        let notes = self.notes.lock();
        Portion { lines: notes.lines.waiting.len(), bytes: notes.lines.bytes }
    }

    pub(crate) async fn log_place(&self) -> MutexGuard<'_, Option<u64>> {
        self.log_place.lock().await
    }

    /// `None` while somebody else passes on its lines.
    pub(crate) fn free_log_place(&self) -> Option<MutexGuard<'_, Option<u64>>> {
        self.log_place.try_lock().ok()
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

#[cfg(test)]
mod tests {
    use super::super::logging::line;
    use super::*;
    use std::sync::atomic::AtomicU32;
    use windlass_core::id::Token;
    use windlass_core::time::HANG_GUARD;

    #[test]
    fn a_blocking_handler_that_waits_for_room_goes_on_when_it_is_to_stop() {
        let lease = Lease { job: JobId::from_parts(0, 1), attempt: 1, token: Token::from_bits(1) };
        let active = Arc::new(Active::new(lease, now()));
        active.push_log(vec![line("x"); LINES_FULL]);
        assert!(active.is_full());
        let (asked, (done, is_done)) = (AtomicU32::new(0), std::sync::mpsc::channel());
        let wait = move || {
            // It is to stop while it waits.
            active.wait_for_room(|| asked.fetch_add(1, Ordering::SeqCst) > 0);
            done.send(asked.load(Ordering::SeqCst))
        };
        let waiting = std::thread::Builder::new().name("blocking handler".to_owned()).spawn(wait).unwrap();
        assert_eq!(is_done.recv_timeout(HANG_GUARD), Ok(2));
        waiting.join().unwrap().unwrap();
    }
}
