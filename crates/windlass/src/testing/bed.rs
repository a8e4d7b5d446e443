//! What a test works with: a store, a client, a clock.

use super::clock::PausedClock;
use super::faults::Faults;
use super::store::TestStore;
use crate::client::Client;
use crate::maintenance::Maintenance;
use crate::worker::{Bench, WorkerBuilder};
use futures::FutureExt;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::id::Ids;
use windlass_core::memory::MemoryStore;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{CallStore, JobQueue, Store, Sweep, SweepKind};
use windlass_core::time::{Clock, Timestamp};

/// When tests begin, unless they say otherwise: 2026-01-01, midnight UTC.
pub(super) const BEGIN: Timestamp = Timestamp::from_ms(1_767_225_600_000);
/// How long a test may go on by its clock.
const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How many attempts a run may take.
const ATTEMPTS_MAX: u64 = 10_000;
/// The memory store never fails to wake a worker, so there is no need for it to look by itself.
const POLL: Duration = Duration::from_secs(600);
/// How often a keeper looks after jobs that run. Less often than outside of tests, because a day has 86,400 seconds.
const LOOK: Duration = Duration::from_secs(5);
/// Items of one sweep.
const STEP_MAX: u32 = 1_000;

/// A memory store on a virtual clock, and all that a test wants to ask of it. See the [module](super).
#[derive(Clone)]
pub struct TestBed {
    pub(super) store: Arc<CallStore<TestStore>>,
    pub(super) clock: Arc<PausedClock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) client: Client,
    pub(super) time_max: Duration,
    pub(super) attempts_max: u64,
}

impl TestBed {
    /// With an empty store, at midnight (UTC) of 2026-01-01.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and in one with several threads: its time cannot be paused. `#[tokio::test]` is right.
    #[expect(clippy::new_without_default, reason = "it needs a runtime around it and pauses its time")]
    pub fn new() -> Self {
        Self::starting_at(BEGIN)
    }

    /// The same at another time, for what depends on the calendar.
    ///
    /// # Panics
    ///
    /// Like [`new`](Self::new).
    pub fn starting_at(time: Timestamp) -> Self {
        Self::with(time, 1)
    }

    /// The same with other randomness: tokens, ids and jitter follow from the seed.
    ///
    /// # Panics
    ///
    /// Like [`new`](Self::new).
    pub fn seeded(seed: u64) -> Self {
        Self::with(BEGIN, seed)
    }

    fn with(time: Timestamp, seed: u64) -> Self {
        let clock = Arc::new(PausedClock::starting_at(time));
        let random: Arc<dyn Random> = Arc::new(StrongRandom::seeded(seed));
        let inner = MemoryStore::with(Arc::clone(&clock) as Arc<dyn Clock>, Arc::clone(&random));
        let store = Arc::new(CallStore(TestStore::new(inner)));
        let ids = Ids::new(Arc::clone(&clock) as Arc<dyn Clock>, Arc::clone(&random));
        let client = Client::with(Arc::clone(&store) as Arc<dyn Store>, ids);
        Self { store, clock, random, client, time_max: TIME_MAX, attempts_max: ATTEMPTS_MAX }
    }

    /// How long a run may go on by the virtual clock before the test fails. 30 days when not said.
    #[must_use]
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.time_max = time;
        self
    }

    /// How many attempts a run may take before the test fails. 10,000 when not said.
    #[must_use]
    pub fn attempts_limit(mut self, attempts: u64) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// The store, for workers and for whatever else the test wants to ask of it.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    /// A client of the store.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// From now on this goes wrong, and nothing else; `Faults::new()` ends it.
    pub fn inject(&self, faults: Faults) {
        self.store.faults.set(faults);
    }

    /// Lets time pass without a worker: leases run out, jobs come due, schedules tick.
    pub async fn advance(&self, time: Duration) {
        let maintenance = self.maintenance();
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = maintenance.run() => {}
        }
        self.sweep().await;
    }

    /// What time has brought, to the last bit.
    pub(super) async fn sweep(&self) {
        for kind in [SweepKind::Reap, SweepKind::Promote] {
            while self.store.inner.sweep(Sweep { kind, max: STEP_MAX }).await.is_ok_and(|swept| swept.more) {}
        }
        // A schedule that cannot be handled was logged by the loop that found it first.
        let _ = windlass_core::schedule::tick(self.store.as_ref(), STEP_MAX).await;
    }

    fn maintenance(&self) -> Maintenance {
        Maintenance::new(self.store()).with_random(Arc::clone(&self.random)).follow_the_feed()
    }

    /// A worker on this bed.
    pub(super) fn prepare(&self, builder: WorkerBuilder) -> WorkerBuilder {
        let faults = Arc::clone(&self.store.faults);
        builder.on(Bench {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            random: Arc::clone(&self.random),
            poll: POLL,
            look: LOOK,
            around: Box::new(move |route| Arc::clone(&faults).around(route)),
        })
    }

    /// What the store answers at once, because it is in memory.
    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    pub(super) fn ask<T>(&self, call: impl Future<Output = windlass_core::Result<T>>) -> T {
        match call.now_or_never() {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => panic!("the test's store: {error}"),
            None => panic!("the test's store did not answer at once"),
        }
    }
}

impl fmt::Debug for TestBed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBed").field("now", &self.now()).finish_non_exhaustive()
    }
}
