//! What a case works with: a fresh store, its clock, and short ways to say common things.

use async_trait::async_trait;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::id::{Ids, JobId};
use windlass_core::job::{Failure, FailureClass, Job, JobSpec, Lease, NewJob, Retry, State};
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    Change, ChangeOp, Changed, ClaimRequest, ClaimedJob, EnqueueRequest, Enqueued, Kinds, Outcome, OutcomeKind,
    QueueCounts, ReportRequest, Reported, Store, Sweep, SweepKind,
};
use windlass_core::time::{Clock, Timestamp, VirtualClock};

/// Makes fresh stores for the suite.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// A fresh, empty store.
    async fn open(&self) -> Opened;

    /// A second handle on the very same store, such as another process would have, on the same clock: the same file
    /// opened again, a connection of its own. What it needs for that is in [`Opened::keep`]. `None` when the store lives
    /// in one handle only; then the concurrency cases share that one.
    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        let _ = opened;
        None
    }

    /// How many random sequences to try, of those that a plain run tries; fewer where the same code has been tried with all
    /// of them already. A run with fewer does not check that all of the contract was reached.
    fn sequences(&self, plain: u64) -> u64 {
        plain
    }

    /// Cases that this store cannot pass, with the reason.
    fn skips(&self) -> Vec<Skip> {
        Vec::new()
    }
}

/// A case that a store cannot pass.
#[derive(Clone, Copy, Debug)]
pub struct Skip {
    /// Its name.
    pub case: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// A store that was opened for one case.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock it runs on.
    pub clock: TestClock,
    /// Dropped when the case is over: files, servers.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Opened {
    /// A store that leaves nothing behind.
    pub fn new(store: Arc<dyn Store>, clock: TestClock) -> Self {
        Self { store, clock, keep: None }
    }
}

/// The clock of a store under test.
#[derive(Clone, Debug)]
pub enum TestClock {
    /// It moves when it is told to.
    Virtual(Arc<VirtualClock>),
    /// It is a server's: to let time pass is to wait.
    Real,
}

/// One case's store and helpers.
pub struct Ctx {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// Its clock.
    pub clock: TestClock,
    /// Makes ids.
    pub ids: Ids,
    /// Makes further stores.
    pub factory: Arc<dyn Factory>,
    requests: Mutex<HashMap<WorkerId, u64>>,
    opened: Opened,
}

impl std::fmt::Debug for Ctx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// A lease that no case outlives by accident.
pub(crate) const LEASE_MS: u64 = 30_000;

impl Ctx {
    /// Opens a fresh store.
    pub async fn open(factory: Arc<dyn Factory>) -> Self {
        let opened = factory.open().await;
        let (store, clock) = (Arc::clone(&opened.store), opened.clock.clone());
        // Ids need no clock; a fixed one keeps them repeatable.
        let fixed: Arc<dyn Clock> = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let ids = Ids::new(fixed, Arc::new(StrongRandom::seeded(11)));
        Self { store, clock, ids, factory, requests: Mutex::default(), opened }
    }

    /// `n` handles on the store for as many tasks; where the store can be opened twice, every other one is that of
    /// another process.
    pub async fn handles(&self, n: usize) -> Vec<Arc<dyn Store>> {
        let other = self.factory.reopen(&self.opened).await.unwrap_or_else(|| Arc::clone(&self.store));
        (0..n).map(|k| Arc::clone(if k % 2 == 0 { &self.store } else { &other })).collect()
    }

    /// Lets time pass on the store's clock.
    pub async fn advance_ms(&self, ms: u64) {
        match &self.clock {
            TestClock::Virtual(clock) => clock.advance_ms(ms),
            // sleeps because: the clock is a server's and cannot be moved.
            TestClock::Real => tokio::time::sleep(std::time::Duration::from_millis(ms)).await,
        }
    }

    /// The store's time.
    pub async fn now(&self) -> Timestamp {
        self.store.now().await.unwrap()
    }

    /// A plain job of kind `kind` on `queue`.
    pub fn job(&self, queue: &str, kind: &str) -> NewJob {
        let payload = Payload::json(&serde_json::json!({ "kind": kind })).unwrap();
        NewJob::new(self.ids.next(), JobSpec::new(queue_name(queue), Kind::new(kind).unwrap(), payload))
    }

    /// A plain job, changed by `edit`.
    pub fn job_with(&self, queue: &str, edit: impl FnOnce(&mut JobSpec)) -> NewJob {
        let mut job = self.job(queue, "work");
        edit(&mut job.spec);
        job
    }

    /// Enqueues one job; it must be accepted.
    pub async fn enqueue(&self, job: NewJob) -> Enqueued {
        self.try_enqueue(job).await.unwrap()
    }

    /// Enqueues one job.
    pub async fn try_enqueue(&self, job: NewJob) -> Result<Enqueued> {
        self.store.enqueue(EnqueueRequest::new(vec![job])).await.unwrap().remove(0)
    }

    /// Enqueues jobs; all must be created.
    pub async fn enqueue_all(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let answers = self.store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
        let created = |answer: Result<Enqueued>| match answer.unwrap() {
            Enqueued::Created { id } => id,
            other => panic!("not created: {other:?}"),
        };
        answers.into_iter().map(created).collect()
    }

    /// A claim of any kind on one queue, with the worker's next request id.
    pub fn claim_request(&self, worker: &str, queue: &str, max: u32) -> ClaimRequest {
        let worker = worker_id(worker);
        let mut requests = self.requests.lock();
        let request_id = requests.entry(worker.clone()).or_insert(0);
        *request_id += 1;
        ClaimRequest {
            worker,
            request_id: *request_id,
            queues: vec![queue_name(queue)],
            kinds: Kinds::Any,
            labels: Labels::default(),
            max,
            lease_ms: LEASE_MS,
        }
    }

    /// Claims up to `max` jobs.
    pub async fn claim(&self, worker: &str, queue: &str, max: u32) -> Vec<ClaimedJob> {
        self.store.claim(self.claim_request(worker, queue, max)).await.unwrap().jobs
    }

    /// Claims exactly one job.
    pub async fn claim_one(&self, worker: &str, queue: &str) -> ClaimedJob {
        let mut jobs = self.claim(worker, queue, 1).await;
        assert_eq!(jobs.len(), 1, "nothing to claim on {queue}");
        jobs.remove(0)
    }

    /// Reports one outcome.
    pub async fn report(&self, worker: &str, lease: Lease, kind: OutcomeKind) -> Result<Reported> {
        let request = ReportRequest { worker: worker_id(worker), outcomes: vec![Outcome { lease, kind }] };
        self.store.report(request).await.unwrap().remove(0)
    }

    /// Completes one job without a result.
    pub async fn complete(&self, worker: &str, lease: Lease) -> Result<Reported> {
        self.report(worker, lease, complete()).await
    }

    /// Fails one job.
    pub async fn fail(&self, worker: &str, lease: Lease, retry: Retry) -> Result<Reported> {
        self.report(worker, lease, fail("boom", retry)).await
    }

    /// Changes one job.
    pub async fn change(&self, id: JobId, op: ChangeOp) -> Result<Changed> {
        self.store.change(vec![Change { id, op }]).await.unwrap().remove(0)
    }

    /// Looks one job up.
    pub async fn get(&self, id: JobId) -> Option<Job> {
        self.store.get(vec![id]).await.unwrap().remove(0)
    }

    /// The state of a job that exists.
    pub async fn state(&self, id: JobId) -> State {
        self.get(id).await.expect("the job exists").state
    }

    /// Sweeps until nothing is left to do; answers how much was done.
    pub async fn sweep(&self, kind: SweepKind) -> u64 {
        let mut handled = 0;
        for _ in 0..10_000 {
            let swept = self.store.sweep(Sweep { kind, max: 1_000 }).await.unwrap();
            handled += swept.handled;
            if !swept.more {
                return handled;
            }
        }
        panic!("the sweep {kind:?} never ends");
    }

    /// The counters of a queue.
    pub async fn counts(&self, queue: &str) -> QueueCounts {
        let all = self.store.queues().await.unwrap();
        all.into_iter().find(|status| status.name.as_str() == queue).map(|status| status.counts).unwrap_or_default()
    }
}

pub(crate) fn queue_name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn worker_id(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(crate) fn complete() -> OutcomeKind {
    OutcomeKind::Complete { result: None, outputs: BTreeMap::new() }
}

pub(crate) fn fail(message: &str, retry: Retry) -> OutcomeKind {
    OutcomeKind::Fail { failure: Failure::new(FailureClass::Error, message), retry }
}
