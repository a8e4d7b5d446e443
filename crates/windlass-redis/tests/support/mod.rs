//! What the tests of this crate share: stores on a server, and short ways to say common things.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

pub(crate) mod hooked;
pub(crate) mod raw;
pub(crate) mod suite;

use std::collections::BTreeMap;
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
    ReportRequest, Reported,
};
use windlass_core::time::{SystemClock, Timestamp, VirtualClock};
use windlass_redis::link::Script;
use windlass_redis::{Options, RedisStore};

/// A lease that no test outlives by accident.
pub(crate) const LEASE_MS: u64 = 60_000;

/// Runs a future to its end.
pub(crate) fn block<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// The URL of a store of its own on a server.
pub(crate) fn fresh_url(server: &str) -> String {
    static STORES: AtomicU64 = AtomicU64::new(0);
    format!("{server}?prefix=t-{}", STORES.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn virtual_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)))
}

/// A store on a clock of the test's own.
pub(crate) fn open_at(url: &str, clock: &Arc<VirtualClock>) -> RedisStore {
    open_with_scripts(url, clock, windlass_redis::scripts::all())
}

/// The same with other scripts.
pub(crate) fn open_with_scripts(url: &str, clock: &Arc<VirtualClock>, scripts: &'static [Script]) -> RedisStore {
    let random = Arc::new(StrongRandom::from_system());
    RedisStore::open_with_scripts(Options::from_url(url).unwrap(), clock.clone(), random, scripts).unwrap()
}

/// Scripts for the rest of the process.
pub(crate) fn keep(scripts: Vec<Script>) -> &'static [Script] {
    Box::leak(scripts.into_boxed_slice())
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

pub(crate) async fn enqueue_one(store: &impl JobQueue, job: NewJob) -> Result<Enqueued> {
    store.enqueue(EnqueueRequest::new(vec![job])).await.unwrap().remove(0)
}

/// Enqueues jobs; each must be taken.
pub(crate) async fn enqueue(store: &impl JobQueue, jobs: Vec<NewJob>) -> Vec<JobId> {
    let answers = store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
    answers.into_iter().map(|answer| answer.unwrap().id()).collect()
}

/// A claim of anything on `q`. Request ids rise over the whole process.
pub(crate) fn claim_request(worker: &str, max: u32) -> ClaimRequest {
    static REQUESTS: AtomicU64 = AtomicU64::new(1);
    ClaimRequest {
        worker: WorkerId::new(worker).unwrap(),
        request_id: REQUESTS.fetch_add(1, Ordering::Relaxed),
        queues: vec!["q".try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max,
        lease_ms: LEASE_MS,
    }
}

pub(crate) async fn claim(store: &impl JobQueue, worker: &str, max: u32) -> Vec<ClaimedJob> {
    store.claim(claim_request(worker, max)).await.unwrap().jobs
}

pub(crate) fn complete() -> OutcomeKind {
    OutcomeKind::Complete { result: None, outputs: BTreeMap::new() }
}

pub(crate) async fn report(store: &impl JobQueue, worker: &str, lease: Lease) -> Result<Reported> {
    report_as(store, worker, lease, complete()).await
}

pub(crate) async fn report_as(
    store: &impl JobQueue,
    worker: &str,
    lease: Lease,
    kind: OutcomeKind,
) -> Result<Reported> {
    let request = ReportRequest { worker: WorkerId::new(worker).unwrap(), outcomes: vec![Outcome { lease, kind }] };
    store.report(request).await.unwrap().remove(0)
}

pub(crate) async fn get(store: &impl JobQueue, id: JobId) -> Option<Job> {
    store.get(vec![id]).await.unwrap().remove(0)
}

/// The counters of `q`.
pub(crate) async fn counts(store: &impl JobQueue) -> QueueCounts {
    let all = store.queues().await.unwrap();
    all.into_iter().find(|queue| queue.name.as_str() == "q").map(|queue| queue.counts).unwrap_or_default()
}
