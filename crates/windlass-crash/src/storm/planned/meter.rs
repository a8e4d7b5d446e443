//! What is measured of the load while it runs.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::id::JobId;
use windlass_core::time::{Clock, SystemClock, Timestamp};

/// Acknowledged jobs that are not completed, above which callers slow down.
const OPEN_MAX: u64 = 8_000;
/// Jobs that are acknowledged at full speed; then callers slow down, so that the servers need not hold millions.
const BURST: u64 = 12_000;

/// Shared by all callers and workers of one load.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The number of acknowledged jobs up to which callers do not pause between their calls.
    full_speed_until: AtomicU64,
    in_flight: AtomicU64,
    acknowledged: Mutex<Acknowledged>,
    completed: Mutex<Completed>,
}

#[derive(Debug, Default)]
struct Acknowledged {
    jobs: u64,
    last: Option<Timestamp>,
    gap_ms_max: u64,
}

/// Jobs in the order in which their completions were acknowledged.
#[derive(Debug, Default)]
struct Completed {
    count: u64,
    place: HashMap<JobId, u64>,
}

impl Meter {
    pub(super) fn set_full_speed(&self, on: bool) {
        let until = if on { self.acknowledged() + BURST } else { 0 };
        self.full_speed_until.store(until, Ordering::Relaxed);
    }

    /// Whether a caller pauses before its next call.
    pub(super) fn is_paced(&self) -> bool {
        let acknowledged = self.acknowledged();
        acknowledged >= self.full_speed_until.load(Ordering::Relaxed)
            || acknowledged.saturating_sub(self.completed()) > OPEN_MAX
    }

    /// Counts a call for as long as it is under way.
    pub(super) async fn in_flight<T>(&self, call: impl Future<Output = T>) -> T {
        let _counted = Counted::new(&self.in_flight);
        call.await
    }

    /// Calls that are under way.
    pub(super) fn calls(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn acknowledge(&self, jobs: u64) {
        let mut acknowledged = self.acknowledged.lock();
        // Inside of the lock, so that the times are in order.
        acknowledged.note(SystemClock.now());
        acknowledged.jobs += jobs;
    }

    /// Jobs whose enqueue was acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.lock().jobs
    }

    /// The longest time without an acknowledgement, up to now. Called when the callers have stopped.
    pub(super) fn gap_ms(&self) -> u64 {
        let mut acknowledged = self.acknowledged.lock();
        acknowledged.note(SystemClock.now());
        acknowledged.gap_ms_max
    }

    pub(super) fn complete(&self, job: JobId) {
        let mut completed = self.completed.lock();
        completed.count += 1;
        let place = completed.count;
        completed.place.insert(job, place);
    }

    /// The number of acknowledged completions, to be passed to [`Meter::was_complete`].
    pub(super) fn completed(&self) -> u64 {
        self.completed.lock().count
    }

    /// Whether the completion of `job` is one of the first `count`.
    pub(super) fn was_complete(&self, job: JobId, count: u64) -> bool {
        self.completed.lock().place.get(&job).is_some_and(|place| *place <= count)
    }
}

impl Acknowledged {
    fn note(&mut self, now: Timestamp) {
        if let Some(last) = self.last {
            self.gap_ms_max = self.gap_ms_max.max(now.ms_since(last));
        }
        self.last = Some(now);
    }
}

/// One call under way; also one that is given up is not counted any more.
struct Counted<'m>(&'m AtomicU64);

impl<'m> Counted<'m> {
    fn new(count: &'m AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
