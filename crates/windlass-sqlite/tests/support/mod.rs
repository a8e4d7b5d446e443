//! What the tests of this crate share: short ways to say common things, and second processes.

#![allow(dead_code, unused_macros, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::Result;
use windlass_core::id::{Ids, JobId};
use windlass_core::job::{Job, JobSpec, Lease, NewJob};
use windlass_core::name::{Labels, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    ClaimRequest, ClaimedJob, EnqueueRequest, Enqueued, JobQueue, Kinds, Outcome, OutcomeKind, QueueCounts,
    ReportRequest, Reported, Sweep, SweepKind,
};
use windlass_core::time::{HANG_GUARD, SystemClock, Timestamp, VirtualClock};
use windlass_sqlite::{Options, SqliteStore, Synchronous, rusqlite};

#[allow(unused_imports, reason = "each test file uses a part of it")]
pub(crate) use process::{Other, main, tests};

/// A lease that no test outlives by accident.
pub(crate) const LEASE_MS: u64 = 60_000;

/// Runs a future to its end.
pub(crate) fn block<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Options that do not wait for the disk: these tests are about behaviour.
pub(crate) fn quick(path: &Path) -> Options {
    Options { synchronous: Synchronous::Normal, ..Options::new(path) }
}

/// A store on the machine's clock.
pub(crate) fn open(path: &Path) -> SqliteStore {
    try_open(quick(path)).unwrap()
}

pub(crate) fn try_open(options: Options) -> Result<SqliteStore> {
    SqliteStore::open_with(options, Arc::new(SystemClock), Arc::new(StrongRandom::from_system()))
}

/// A store on a clock of the test's own.
pub(crate) fn open_at(path: &Path, clock: &Arc<VirtualClock>) -> SqliteStore {
    SqliteStore::open_with(quick(path), clock.clone(), Arc::new(StrongRandom::seeded(3))).unwrap()
}

pub(crate) fn virtual_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)))
}

/// A connection past the store.
pub(crate) fn raw(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(HANG_GUARD).unwrap();
    conn
}

pub(crate) fn new_id() -> JobId {
    Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system())).next()
}

/// A plain job on the queue `q`.
pub(crate) fn job() -> NewJob {
    job_with(|_| {})
}

/// A job on the queue `q`, changed by `edit`.
pub(crate) fn job_with(edit: impl FnOnce(&mut JobSpec)) -> NewJob {
    let payload = Payload::json("input").unwrap();
    let mut spec = JobSpec::new("q".try_into().unwrap(), "work".try_into().unwrap(), payload);
    edit(&mut spec);
    NewJob::new(new_id(), spec)
}

pub(crate) async fn enqueue(store: &SqliteStore, jobs: Vec<NewJob>) -> Vec<JobId> {
    let answers = store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
    answers.into_iter().map(|answer| answer.unwrap().id()).collect()
}

pub(crate) async fn enqueue_one(store: &SqliteStore, job: NewJob) -> Result<Enqueued> {
    store.enqueue(EnqueueRequest::new(vec![job])).await?.remove(0)
}

pub(crate) fn claim_request(worker: &str, max: u32) -> ClaimRequest {
    static REQUESTS: AtomicU64 = AtomicU64::new(1);
    ClaimRequest {
        worker: WorkerId::new(worker).unwrap(),
        request_id: REQUESTS.fetch_add(1, Ordering::SeqCst),
        queues: vec!["q".try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max,
        lease_ms: LEASE_MS,
    }
}

pub(crate) async fn claim(store: &SqliteStore, worker: &str, max: u32) -> Vec<ClaimedJob> {
    store.claim(claim_request(worker, max)).await.unwrap().jobs
}

pub(crate) fn complete() -> OutcomeKind {
    OutcomeKind::Complete { result: None, outputs: BTreeMap::new() }
}

pub(crate) async fn report(store: &SqliteStore, worker: &str, lease: Lease) -> Result<Reported> {
    let outcomes = vec![Outcome { lease, kind: complete() }];
    store.report(ReportRequest { worker: WorkerId::new(worker).unwrap(), outcomes }).await?.remove(0)
}

pub(crate) async fn get(store: &SqliteStore, id: JobId) -> Job {
    store.get(vec![id]).await.unwrap().remove(0).expect("the job is there")
}

pub(crate) async fn sweep(store: &SqliteStore, kind: SweepKind) -> u64 {
    store.sweep(Sweep { kind, max: 1_000 }).await.unwrap().handled
}

pub(crate) async fn counts(store: &SqliteStore) -> QueueCounts {
    store.queues().await.unwrap().into_iter().find(|q| q.name.as_str() == "q").map(|q| q.counts).unwrap_or_default()
}

/// The counters of the queue `q`, counted.
pub(crate) fn recount(path: &Path) -> QueueCounts {
    let conn = raw(path);
    let sql = "SELECT 0, count(*) FROM windlass_scheduled UNION ALL SELECT 1, count(*) FROM windlass_ready \
               UNION ALL SELECT 2, count(*) FROM windlass_active \
               UNION ALL SELECT state, count(*) FROM windlass_ended GROUP BY state";
    let mut ask = conn.prepare(sql).unwrap();
    let mut counts = [0; 6];
    let rows = ask.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))).unwrap();
    for row in rows {
        let (state, count) = row.unwrap();
        counts[state as usize] = u64::from(count);
    }
    QueueCounts::from_array(counts)
}
