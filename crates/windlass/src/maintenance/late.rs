//! How late maintenance is, and who does it, on a virtual clock.

use super::Maintenance;
use crate::worker::now;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::Result;
use windlass_core::id::Ids;
use windlass_core::job::{JobSpec, NewJob, State};
use windlass_core::memory::MemoryStore;
use windlass_core::name::{Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    ClaimRequest, EnqueueRequest, JobQueue as _, Kinds, MaintenanceClaim, Store, Sweep, SweepKind, Swept, Wrap, Wrapped,
};
use windlass_core::time::{Clock, Timestamp};

/// The bar: how late a lease may be reaped.
const LATE_MS_MAX: u64 = 2_000;

/// Tokio's paused time.
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        let ms = u64::try_from(now().duration_since(self.0).as_millis()).unwrap();
        Timestamp::from_ms(1_700_000_000_000).plus_ms(ms)
    }
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::with(Arc::new(Paused(now())), Arc::new(StrongRandom::seeded(1))))
}

async fn pass(time: Duration) {
    // sleeps because: on a paused clock this is how time passes
    tokio::time::sleep(time).await;
}

/// Claims a job, never renews its lease, and returns how many ms after the end of the lease the job is ready again.
async fn reaped_late_ms(store: &MemoryStore, lease_ms: u64, request_id: u64) -> u64 {
    // Of its own, so that no other job is claimed.
    let queue = QueueName::new(format!("q{request_id}")).unwrap();
    let clock = Arc::new(Paused(now()));
    let ids = Ids::new(clock, Arc::new(StrongRandom::seeded(request_id)));
    let spec = JobSpec::new(queue.clone(), "k".try_into().unwrap(), Payload::json(&1).unwrap());
    let id = ids.next();
    store.enqueue(EnqueueRequest::new(vec![NewJob::new(id, spec)])).await.unwrap().remove(0).unwrap();
    let claim = ClaimRequest {
        worker: WorkerId::new("dead").unwrap(),
        request_id,
        queues: vec![queue],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max: 1,
        lease_ms,
    };
    let job = store.claim(claim).await.unwrap().jobs.remove(0);
    assert_eq!(job.lease.job, id);
    let ends_at = job.expires_at;
    loop {
        pass(Duration::from_millis(10)).await;
        let job = store.get(vec![id]).await.unwrap().remove(0).unwrap();
        let late_ms = store.now().await.unwrap().ms_since(ends_at);
        // An expired lease whose stalls are used up ends as failed; either way it was reaped.
        if job.state != State::Active {
            return late_ms;
        }
        assert!(late_ms < 60_000, "it is never reaped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_reaped_soon_after_its_end_however_short_it_is_and_whenever_it_was_taken() {
    let store = store();
    let maintenance =
        Maintenance::new(Arc::clone(&store) as Arc<dyn Store>).with_random(Arc::new(StrongRandom::seeded(7)));
    let leases = async {
        let mut worst_ms = 0;
        for (at, lease_ms) in (0..60).zip([100, 1_000, 1_700, 5_000].into_iter().cycle()) {
            // The sweeps find nothing for a while, and rest for longer.
            pass(Duration::from_millis(8_000 + at * 130)).await;
            worst_ms = worst_ms.max(reaped_late_ms(&store, lease_ms, at + 1).await);
        }
        worst_ms
    };
    let worst_ms = tokio::select! {
        worst_ms = leases => worst_ms,
        () = maintenance.run() => unreachable!("it does not end"),
    };
    println!("reaped up to {worst_ms} ms late");
    assert!(worst_ms <= LATE_MS_MAX, "{worst_ms} ms late");
}

/// A store that gives the hint as it is told, and writes down when it was asked and when it was swept for leases.
struct Told {
    inner: MemoryStore,
    begun: Instant,
    answers: Mutex<Vec<MaintenanceClaim>>,
    log: Mutex<Vec<(u64, String)>>,
}

impl Told {
    fn note(&self, what: String) {
        let at = u64::try_from(now().duration_since(self.begun).as_millis()).unwrap();
        self.log.lock().push((at, what));
    }

    fn at(&self, what: &str) -> Vec<u64> {
        self.log.lock().iter().filter(|(_, noted)| noted == what).map(|(at, _)| *at).collect()
    }
}

#[async_trait]
impl Wrap for Told {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn claim_maintenance(&self, _: WorkerId, ttl_ms: u64) -> Result<MaintenanceClaim> {
        if ttl_ms == 0 {
            self.note("given up".to_owned());
            return Ok(MaintenanceClaim::HeldByOther { retry_after_ms: 1 });
        }
        self.note("asked".to_owned());
        let mut answers = self.answers.lock();
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0] })
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        if sweep.kind == SweepKind::Reap {
            self.note("reap".to_owned());
        }
        self.inner.sweep(sweep).await
    }
}

async fn told(answers: Vec<MaintenanceClaim>, run_for: Duration) -> Arc<Wrapped<Told>> {
    let inner = MemoryStore::with(Arc::new(Paused(now())), Arc::new(StrongRandom::seeded(1)));
    let log = Mutex::default();
    let store = Arc::new(Wrapped(Told { inner, begun: now(), answers: Mutex::new(answers), log }));
    let maintenance = Maintenance::new(Arc::clone(&store) as Arc<dyn Store>);
    maintenance.run_until(pass(run_for)).await;
    store
}

#[tokio::test(start_paused = true)]
async fn a_process_that_waits_asks_when_it_was_told_to_and_sweeps_as_soon_as_it_keeps_time() {
    let waits = |retry_after_ms| MaintenanceClaim::HeldByOther { retry_after_ms };
    let keeps = MaintenanceClaim::Granted;
    // It waits twice, keeps time for one renewal, waits again, and takes over a second time.
    let store = told(vec![waits(700), waits(40), keeps, waits(100), keeps], Duration::from_secs(3)).await;
    let asked = store.at("asked");
    assert_eq!(asked[..3], [0, 700, 740], "{asked:?}");
    let reaps = store.at("reap");
    assert_eq!(reaps[0], 740, "it sweeps at once: {reaps:?}");
    assert!(asked[3] <= 740 + 1_000, "the hint is renewed well before it ends: {asked:?}");
    let again = asked[4];
    assert_eq!(again, asked[3] + 100, "{asked:?}");
    assert!(reaps.contains(&again), "and again when it takes over a second time: {reaps:?}");
    assert!(!reaps.iter().any(|at| (asked[3] + 1..again).contains(at)), "and not in between: {reaps:?} {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_gives_the_hint_up() {
    let store = told(vec![MaintenanceClaim::Granted], Duration::from_secs(2)).await;
    assert_eq!(store.at("given up").len(), 1);
    assert!(store.at("asked").len() > 1, "it renews the hint");
}
