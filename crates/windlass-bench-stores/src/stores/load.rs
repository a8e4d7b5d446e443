//! A store under load, through its traits.

use super::seconds;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;
use windlass_bench::{Direct, Ground};
use windlass_core::id::Ids;
use windlass_core::job::{JobSpec, NewJob};
use windlass_core::memory::MemoryStore;
use windlass_core::name::{GroupName, Kind, Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{ClaimRequest, EnqueueRequest, Outcome, ReportRequest, Store};
use windlass_core::time::SystemClock;
use windlass_sqlite::{Options, SqliteStore, Synchronous};

/// How jobs differ from one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Not at all.
    Plain,
    /// By group, of which there are so many.
    Groups(usize),
    /// By required labels, of which there are so many sets.
    LabelSets(usize),
}

/// A store, and what one caller needs to drive it.
pub(crate) struct Load {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ids: Ids,
    pub(crate) runtime: Runtime,
    request_id: u64,
    made: usize,
    pub(crate) template: JobSpec,
    /// Taken apart for its group commit figures.
    pub(crate) sqlite: Option<Arc<SqliteStore>>,
    /// With the floor and the figures of a server.
    pub(crate) ground: Option<Arc<Ground>>,
}

impl Load {
    pub(crate) fn memory() -> Self {
        Self::new(Arc::new(MemoryStore::new()), None)
    }

    pub(crate) fn sqlite(dir: &Path, synchronous: Synchronous) -> Self {
        let path = dir.join("windlass.db");
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
        }
        let options = Options { synchronous, ..Options::new(path) };
        let random = Arc::new(StrongRandom::from_system());
        let store = Arc::new(SqliteStore::open_with(options, Arc::new(SystemClock), random).unwrap());
        Self::new(store.clone(), Some(store))
    }

    /// Under a prefix of its own, which goes with it.
    pub(crate) fn redis(url: &str) -> Self {
        let runtime = runtime();
        let ground = runtime.block_on(Ground::open(url)).unwrap();
        // On the runtime that it was opened on: its connections live there.
        let load = Self::new(Arc::clone(&ground.store), None);
        Self { runtime, ground: Some(Arc::new(ground)), ..load }
    }

    fn new(store: Arc<dyn Store>, sqlite: Option<Arc<SqliteStore>>) -> Self {
        let runtime = runtime();
        let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
        let payload = Payload::new("application/octet-stream", vec![b'x'; 100]);
        let template = JobSpec::new(QueueName::new("bench").unwrap(), Kind::new("noop").unwrap(), payload);
        Self { store, ids, runtime, request_id: 0, made: 0, template, sqlite, ground: None }
    }

    /// The next job of a shape.
    pub(crate) fn job(&mut self, shape: Shape) -> NewJob {
        let mut spec = self.template.clone();
        match shape {
            Shape::Plain => {}
            Shape::Groups(n) => spec.group = Some(GroupName::new(format!("g{}", self.made % n)).unwrap()),
            Shape::LabelSets(n) => {
                let set = self.made % n;
                let chosen = (0..10).filter(|bit| set >> bit & 1 == 1).map(|bit| format!("label-{bit}"));
                spec.labels = Labels::parse(chosen).unwrap();
            }
        }
        self.made += 1;
        NewJob::new(self.ids.next(), spec)
    }

    /// Enqueues `n` jobs, `batch` at a time; answers the seconds that the store took.
    pub(crate) fn enqueue(&mut self, n: usize, batch: usize, shape: Shape) -> f64 {
        let mut spent = 0.0;
        for from in (0..n).step_by(batch) {
            let jobs = (0..batch.min(n - from)).map(|_| self.job(shape)).collect();
            let (store, runtime) = (Arc::clone(&self.store), &self.runtime);
            spent += seconds(|| {
                let answers = runtime.block_on(store.enqueue(EnqueueRequest::new(jobs))).unwrap();
                assert!(answers.iter().all(Result::is_ok));
            });
        }
        spent
    }

    /// Claims and completes `n` jobs in two tasks, each with one call under way; answers the seconds.
    pub(crate) fn drain_in_two(&self, n: usize, batch: u32) -> f64 {
        let direct = Direct::new(Arc::clone(&self.store), self.template.queue.clone(), batch);
        self.runtime.block_on(direct.work_off(u32::try_from(n).unwrap())).unwrap()
    }

    /// Claims and completes `n` jobs, `batch` at a time; answers the seconds of both.
    pub(crate) fn drain(&mut self, n: usize, batch: u32) -> (f64, f64) {
        let (mut claiming, mut completing, mut done) = (0.0, 0.0, 0);
        let worker = WorkerId::new("bench").unwrap();
        let labels = Labels::parse((0..10).map(|bit| format!("label-{bit}"))).unwrap();
        while done < n {
            self.request_id += 1;
            let request = ClaimRequest::new(worker.clone(), self.request_id, self.template.queue.clone());
            let request = ClaimRequest { labels: labels.clone(), max: batch, ..request };
            let mut jobs = Vec::new();
            let (store, runtime) = (Arc::clone(&self.store), &self.runtime);
            claiming += seconds(|| jobs = runtime.block_on(store.claim(request)).unwrap().jobs);
            assert!(!jobs.is_empty(), "the backlog ran dry at {done} of {n}");
            done += jobs.len();
            let outcomes = jobs.iter().map(|job| Outcome::complete(job.lease)).collect();
            let request = ReportRequest { worker: worker.clone(), outcomes };
            completing += seconds(|| {
                let answers = runtime.block_on(store.report(request)).unwrap();
                assert!(answers.iter().all(Result::is_ok));
            });
        }
        (claiming, completing)
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
