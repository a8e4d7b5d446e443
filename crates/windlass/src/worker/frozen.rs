//! Workers that stand still beyond their leases: no handler starts on a lease that has ended.

use super::active::Actives;
use super::{Handled, LeaseClock, Stop, Worker, WorkerBuilder};
use crate::context::{Ctx, State};
use crate::error::JobError;
use crate::handler::Route;
use crate::job::Job;
use crate::{Client, Item, Options};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use windlass_core::id::{Ids, JobId, Token};
use windlass_core::job::{Lease, State as JobState};
use windlass_core::memory::MemoryStore;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    ClaimRequest, Claimed, JobQueue as _, OutcomeKind, RenewRequest, Renewed, ReportRequest, Reported,
    ReportedAndClaimed, Store, Wrap, Wrapped,
};
use windlass_core::time::{Clock as _, Timestamp, VirtualClock};
use windlass_core::{Error, Result};

const LEASE_MS: u64 = 30_000;
/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    n: u32,
}

impl Job for Task {
    const KIND: &'static str = "task";
    type Output = ();
}

/// Time for store and worker. A process that stands still finds both later.
struct Time {
    store: Arc<VirtualClock>,
    lease_ms: AtomicU64,
}

impl Time {
    fn pass_ms(&self, ms: u64) {
        self.store.advance_ms(ms);
        self.lease_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl LeaseClock for Time {
    fn now(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::SeqCst))
    }
}

/// A store in front of a process that stands still at moments of the test's choosing.
struct Seen {
    inner: MemoryStore,
    time: Arc<Time>,
    /// What happens to the answers of the next claims that bring jobs.
    pauses: Mutex<VecDeque<Pause>>,
    starts: Mutex<Vec<Start>>,
    /// Jobs that came back without having been started.
    given_back: AtomicU64,
    renewals: AtomicU64,
    /// Renewals do not reach the store.
    cut_off: AtomicBool,
    /// How much later the answer to the next renewal comes; none reaches the store after it.
    renewal_pause_ms: AtomicU64,
}

/// An answer comes later by so much; or it is lost, so that the claim is repeated.
struct Pause {
    ms: u64,
    lost: bool,
}

/// A handler was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    n: u32,
    /// After the end of the lease that was claimed.
    late: bool,
}

impl Seen {
    fn answered(&self, claimed: &Claimed) -> Result<()> {
        if claimed.jobs.is_empty() {
            return Ok(());
        }
        let Some(Pause { ms, lost }) = self.pauses.lock().pop_front() else { return Ok(()) };
        self.time.pass_ms(ms);
        if lost {
            return Err(Error::Unknown { reason: "lost by plan".to_owned() });
        }
        Ok(())
    }

    fn note_reported(&self, report: &ReportRequest) {
        let unstarted = |kind: &OutcomeKind| matches!(kind, OutcomeKind::Release { started: false });
        let count = report.outcomes.iter().filter(|outcome| unstarted(&outcome.kind)).count();
        self.given_back.fetch_add(count as u64, Ordering::SeqCst);
        let failed = |kind: &OutcomeKind| matches!(kind, OutcomeKind::Fail { .. });
        assert!(!report.outcomes.iter().any(|outcome| failed(&outcome.kind)), "{report:?}");
    }

    fn note_start(&self, job: &Task, ctx: &Ctx) {
        let late = self.time.store.now() >= ctx.job.expires_at;
        self.starts.lock().push(Start { n: job.n, late });
    }
}

#[async_trait]
impl Wrap for Seen {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed> {
        let claimed = self.inner.claim(request).await?;
        self.answered(&claimed).map(|()| claimed)
    }

    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        self.note_reported(&report);
        let both = self.inner.report_and_claim(report, claim).await?;
        self.answered(&both.claimed).map(|()| both)
    }

    async fn report(&self, report: ReportRequest) -> Result<Vec<Result<Reported>>> {
        self.note_reported(&report);
        self.inner.report(report).await
    }

    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        if self.cut_off.load(Ordering::SeqCst) {
            return Err(Error::Unavailable { reason: "away by plan".to_owned() });
        }
        let renewed = self.inner.renew(request).await?;
        let pause_ms = self.renewal_pause_ms.swap(0, Ordering::SeqCst);
        if pause_ms > 0 {
            self.time.pass_ms(pause_ms);
            self.cut_off.store(true, Ordering::SeqCst);
        }
        self.renewals.fetch_add(renewed.iter().filter(|answer| answer.is_ok()).count() as u64, Ordering::SeqCst);
        Ok(renewed)
    }
}

type Shared = Arc<Wrapped<Seen>>;

fn store() -> Shared {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
    let inner = MemoryStore::with(Arc::clone(&clock) as _, Arc::new(StrongRandom::seeded(1)));
    Arc::new(Wrapped(Seen {
        inner,
        time: Arc::new(Time { store: clock, lease_ms: AtomicU64::new(0) }),
        pauses: Mutex::default(),
        starts: Mutex::default(),
        given_back: AtomicU64::new(0),
        renewals: AtomicU64::new(0),
        cut_off: AtomicBool::new(true),
        renewal_pause_ms: AtomicU64::new(0),
    }))
}

fn worker(store: &Shared, slots: usize) -> WorkerBuilder {
    let mut builder = Worker::builder(Arc::clone(store) as Arc<dyn Store>).slots(slots).state(Arc::clone(store));
    builder.lease_clock = Arc::clone(&store.time) as Arc<dyn LeaseClock>;
    builder.lease(Duration::from_millis(LEASE_MS)).without_runs()
}

async fn enqueue(store: &Shared, jobs: u32) -> Vec<JobId> {
    let clock = Arc::clone(&store.time.store);
    let client = Client::with(Arc::clone(store) as _, Ids::new(clock, Arc::new(StrongRandom::seeded(2))));
    let mut ids = Vec::new();
    for n in 0..jobs {
        ids.push(client.enqueue_with(Task { n }, Options::new()).await.unwrap().id());
    }
    ids
}

/// Runs a worker until all these jobs have succeeded.
async fn run(store: &Shared, builder: WorkerBuilder, ids: &[JobId]) {
    let worker = builder.build().unwrap();
    let stopper = worker.stopper();
    let done = async {
        loop {
            let jobs = store.inner.get(ids.to_vec()).await.unwrap();
            if jobs.iter().flatten().all(|job| job.state == JobState::Succeeded) {
                return stopper.drain();
            }
            // sleeps because: the worker's own tasks and threads work in real time
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let all = async { tokio::join!(worker.run_until_stopped(), done) };
    tokio::time::timeout(LONG, all).await.expect("all jobs succeed").0.unwrap();
}

async fn note(job: Task, ctx: Ctx, store: State<Shared>) -> Result<(), JobError> {
    store.note_start(&job, &ctx);
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "handlers are given what they ask for")]
fn note_blocking(job: Task, ctx: Ctx, store: State<Shared>) -> Result<(), JobError> {
    store.note_start(&job, &ctx);
    Ok(())
}

async fn note_batch(jobs: Vec<Item<Task>>, store: State<Shared>) -> Result<(), JobError> {
    jobs.iter().for_each(|item| store.note_start(&item.job, &item.ctx));
    Ok(())
}

fn late(store: &Shared) -> Vec<Start> {
    store.starts.lock().iter().copied().filter(|start| start.late).collect()
}

#[tokio::test]
async fn no_handler_starts_when_its_claim_is_answered_after_the_lease() {
    type Handled = fn(WorkerBuilder) -> WorkerBuilder;
    let handlers: [(&str, Handled); 3] = [
        ("async", |builder| builder.handle(note)),
        ("blocking", |builder| builder.handle_blocking(note_blocking)),
        ("batch", |builder| builder.handle_batch(4, note_batch)),
    ];
    for (name, handle) in handlers {
        let store = store();
        let ids = enqueue(&store, 4).await;
        store.pauses.lock().push_back(Pause { ms: LEASE_MS, lost: false });
        run(&store, handle(worker(&store, 4)), &ids).await;
        assert_eq!(late(&store), [], "{name}");
        assert_eq!(store.starts.lock().len(), 4, "{name}: each starts once, on a lease that stands");
        assert_eq!(store.given_back.load(Ordering::SeqCst), 4, "{name}: others may have them at once");
    }
}

#[tokio::test]
async fn no_handler_starts_when_the_lease_has_passed_since_the_first_of_two_claims() {
    let store = store();
    let ids = enqueue(&store, 4).await;
    // The leases run since the first claim; since the second only half of them has passed.
    store.pauses.lock().extend([Pause { ms: LEASE_MS * 2 / 3, lost: true }, Pause { ms: LEASE_MS / 2, lost: false }]);
    run(&store, worker(&store, 4).handle(note), &ids).await;
    assert_eq!(late(&store), []);
    assert_eq!(store.starts.lock().len(), 4);
}

/// Jobs that wait in the worker while the process stands still.
#[tokio::test]
async fn no_handler_starts_on_jobs_that_waited_beyond_their_lease() {
    async fn freezes(job: Task, ctx: Ctx, store: State<Shared>) -> Result<(), JobError> {
        store.note_start(&job, &ctx);
        if job.n == 0 {
            store.time.pass_ms(LEASE_MS);
        }
        Ok(())
    }
    let store = store();
    let ids = enqueue(&store, 8).await;
    // One thread: while the first handler runs, the other seven have a slot and wait for it.
    run(&store, worker(&store, 8).handle(freezes), &ids).await;
    assert_eq!(late(&store), []);
    assert!(store.given_back.load(Ordering::SeqCst) >= 7, "{}", store.given_back.load(Ordering::SeqCst));
}

/// Time passes behind the check that every handler has, and before a blocking one has its thread.
#[tokio::test]
async fn no_blocking_handler_starts_when_its_lease_ended_while_it_waited_for_a_thread() {
    let store = store();
    let ids = enqueue(&store, 1).await;
    let mut builder = worker(&store, 1).handle_blocking(note_blocking);
    let (time, first) = (Arc::clone(&store.time), AtomicBool::new(true));
    let Some((_, Handled { route: Route::One(route), .. }, _)) = builder.handlers.last_mut() else {
        panic!("the handler is of one job")
    };
    let inner = Arc::clone(route);
    *route = Arc::new(move |ctx| {
        if first.swap(false, Ordering::SeqCst) {
            time.pass_ms(LEASE_MS);
        }
        inner(ctx)
    });
    run(&store, builder, &ids).await;
    assert_eq!(*store.starts.lock(), [Start { n: 0, late: false }]);
    let job = store.inner.get(ids).await.unwrap().remove(0).unwrap();
    assert_eq!(job.stall_count, 1, "its first lease ran out, and it did not fail");
}

#[tokio::test]
async fn a_renewal_extends_the_time_in_which_a_handler_may_start() {
    async fn waits_for_a_renewal(job: Task, ctx: Ctx, store: State<Shared>) -> Result<(), JobError> {
        store.note_start(&job, &ctx);
        if job.n == 0 {
            store.time.pass_ms(LEASE_MS / 2);
            // The keeper has a thread of its own, and this one blocks the only thread of the handlers.
            while store.renewals.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            store.time.pass_ms(LEASE_MS - 1);
        }
        Ok(())
    }
    let store = store();
    let ids = enqueue(&store, 2).await;
    store.cut_off.store(false, Ordering::SeqCst);
    run(&store, worker(&store, 2).handle(waits_for_a_renewal), &ids).await;
    let starts = store.starts.lock().clone();
    assert_eq!(starts, [Start { n: 0, late: false }, Start { n: 1, late: true }], "the second by its renewed lease");
    assert_eq!(store.given_back.load(Ordering::SeqCst), 0);
}

/// A lease that was renewed ends its length after the renewal was sent, however late the answer comes.
#[tokio::test]
async fn no_handler_starts_when_its_renewal_is_answered_after_the_renewed_lease() {
    async fn waits_for_a_late_renewal(job: Task, ctx: Ctx, store: State<Shared>) -> Result<(), JobError> {
        store.note_start(&job, &ctx);
        if store.starts.lock().len() == 1 {
            store.renewal_pause_ms.store(LEASE_MS, Ordering::SeqCst);
            store.cut_off.store(false, Ordering::SeqCst);
            store.time.pass_ms(LEASE_MS / 2);
            // The keeper has a thread of its own, and this one blocks the only thread of the handlers.
            while store.renewals.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
    let store = store();
    let ids = enqueue(&store, 2).await;
    run(&store, worker(&store, 2).handle(waits_for_a_late_renewal), &ids).await;
    assert_eq!(late(&store), []);
    assert!(store.given_back.load(Ordering::SeqCst) >= 1, "the second is given back");
}

#[test]
fn a_lease_that_was_taken_anew_is_not_mistaken_for_the_old_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let lease = |token| Lease { job: JobId::from_parts(0, 7), attempt: 1, token: Token::from_bits(token) };
    let actives = Actives::default();
    actives.add(std::iter::once(lease(1)), Duration::ZERO, LEASE_MS);
    actives.add(std::iter::once(lease(2)), Duration::from_secs(40), LEASE_MS);
    let (old, new) = (actives.get_or_add(lease(1)), actives.get_or_add(lease(2)));
    assert_eq!((old.lease, old.stop()), (lease(1), Stop::Lost));
    assert_eq!((new.lease, new.stop()), (lease(2), Stop::No));
    assert!(old.note_ended() && new.note_ended(), "the end of one is not that of the other");
}
