//! A store that counts: how many calls a worker makes, and when the last of its jobs has succeeded.
//!
//! It counts what the store has answered, not what a handler has said. A few additions a call: batches make them
//! nothing.

use crate::time::Stopwatch;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use windlass_core::Result;
use windlass_core::job::State;
use windlass_core::store::{ClaimRequest, Claimed, ReportRequest, Reported, ReportedAndClaimed, Store, Wrap};

/// A store that counts what passes through it.
pub struct Counting {
    inner: Arc<dyn Store>,
    target: u64,
    watch: Stopwatch,
    calls: AtomicU64,
    in_store_ns: AtomicU64,
    succeeded: AtomicU64,
    done_at: OnceLock<Duration>,
    done: Notify,
}

/// What it has counted.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ended {
    /// From the start to the answer that made the last job succeed.
    pub seconds: f64,
    /// Calls of claim, report, and both in one.
    pub calls: u64,
    /// The part of the time during which one of them was under way; the rest is the worker's.
    pub store_share: f64,
}

impl Counting {
    /// Counts from now on, until `target` jobs have succeeded.
    pub fn new(inner: Arc<dyn Store>, target: u64) -> Self {
        let (calls, in_store_ns, succeeded) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (watch, done_at, done) = (Stopwatch::start(), OnceLock::new(), Notify::new());
        Self { inner, target, watch, calls, in_store_ns, succeeded, done_at, done }
    }

    /// Jobs that have succeeded.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// What was counted, once all jobs have succeeded.
    pub fn ended(&self) -> Option<Ended> {
        let seconds = self.done_at.get()?.as_secs_f64().max(1e-9);
        let in_store = Duration::from_nanos(self.in_store_ns.load(Ordering::Relaxed)).as_secs_f64();
        Some(Ended { seconds, calls: self.calls.load(Ordering::Relaxed), store_share: in_store / seconds })
    }

    /// Waits for all jobs to succeed, for at most `time`.
    pub async fn wait(&self, time: Duration) -> Option<Ended> {
        // A wake-up that came before is kept for whoever waits next.
        let _in_time = tokio::time::timeout(time, self.done.notified()).await;
        self.ended()
    }

    /// A worker makes one such call at a time, so the times of several workers would add up to more than all.
    async fn timed<T>(&self, call: impl Future<Output = T>) -> T {
        let watch = Stopwatch::start();
        let answer = call.await;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let spent = u64::try_from(watch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.in_store_ns.fetch_add(spent, Ordering::Relaxed);
        answer
    }

    fn note(&self, reported: &[Result<Reported>]) {
        let well = |answer: &&Result<Reported>| matches!(answer, Ok(Reported { state: State::Succeeded, .. }));
        let n = reported.iter().filter(well).count() as u64;
        let before = self.succeeded.fetch_add(n, Ordering::Relaxed);
        if before < self.target && before + n >= self.target {
            // Only one call crosses the line.
            let _first = self.done_at.set(self.watch.elapsed());
            self.done.notify_one();
        }
    }
}

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counting")
            .field("succeeded", &self.succeeded)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Wrap for Counting {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed> {
        self.timed(self.inner.claim(request)).await
    }

    async fn report(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        let reported = self.timed(self.inner.report(request)).await?;
        self.note(&reported);
        Ok(reported)
    }

    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        let both = self.timed(self.inner.report_and_claim(report, claim)).await?;
        self.note(&both.reported);
        Ok(both)
    }
}
