//! Runs whose inbox has an item that cannot be read: what it was about is found out in another way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{Running, memory};
use windlass::core::graph::{Graph, Outcome};
use windlass::core::id::{JobId, RunId};
use windlass::core::job::Job as StoredJob;
use windlass::core::store::{RunClaim, RunItem, RunState, RunsClaimed, Store, Wrap, Wrapped};
use windlass::graph::yaml;
use windlass::runs::{Engine, NewGraphRun, RunStatus, Runs};
use windlass::{Job, Worker, WorkerBuilder};

#[derive(Debug, Serialize, Deserialize)]
struct Say {}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

async fn say(_: Say) {}

#[derive(Debug, Serialize, Deserialize)]
struct Later {}

impl Job for Later {
    const KIND: &'static str = "later";
    type Output = ();
}

async fn later(_: Later) {}

fn graph(text: &str) -> Graph {
    yaml::read("test.yml", text).unwrap_or_else(|problems| panic!("{problems}")).graph
}

async fn status(store: &Arc<dyn Store>, run: RunId) -> RunStatus {
    Runs::new(Arc::clone(store)).status(run).await.unwrap().unwrap()
}

async fn start(store: &Arc<dyn Store>, text: &str) -> RunId {
    Runs::new(Arc::clone(store)).start(NewGraphRun::new(graph(text))).await.unwrap()
}

/// Works on jobs of the kind `say` until the inbox of the run has this many items. No engine reads them.
async fn work_until(store: &Arc<dyn Store>, run: RunId, items: u64) {
    work_with(Worker::builder(Arc::clone(store)).handle(say), store, run, items).await;
}

async fn work_with(worker: WorkerBuilder, store: &Arc<dyn Store>, run: RunId, items: u64) {
    let working = Running::start(worker.without_runs());
    while status(store, run).await.run.inbox_len < items {
        tokio::task::yield_now().await;
    }
    working.drain().await;
}

/// A store in which the last item of an inbox cannot be read while the flag is set.
struct Unreadable {
    store: Arc<dyn Store>,
    on: AtomicBool,
    /// When jobs of this run are looked up, its job of the kind `later` ends. Then the engine stops.
    ends_meanwhile: Option<RunId>,
}

impl Unreadable {
    fn new(store: &Arc<dyn Store>) -> Arc<Wrapped<Self>> {
        Arc::new(Wrapped(Self { store: Arc::clone(store), on: AtomicBool::new(true), ends_meanwhile: None }))
    }
}

#[async_trait::async_trait]
impl Wrap for Unreadable {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    async fn claim_runs(&self, request: RunClaim) -> windlass::Result<RunsClaimed> {
        if self.ends_meanwhile.is_some() && !self.on.load(Ordering::Relaxed) {
            return Ok(RunsClaimed::default());
        }
        let mut claimed = self.store.claim_runs(request).await?;
        if self.on.load(Ordering::Relaxed) {
            for run in &mut claimed.runs {
                let ended = run.inbox.iter().rposition(|found| matches!(found.item, RunItem::JobEnded(_)));
                ended.map(|at| run.inbox.remove(at));
            }
        }
        Ok(claimed)
    }

    async fn get(&self, ids: Vec<JobId>) -> windlass::Result<Vec<Option<StoredJob>>> {
        if let Some(run) = self.ends_meanwhile
            && self.on.swap(false, Ordering::Relaxed)
        {
            let items = status(&self.store, run).await.run.inbox_len;
            work_with(Worker::builder(Arc::clone(&self.store)).handle(later), &self.store, run, items + 1).await;
        }
        self.store.get(ids).await
    }
}

const TWO: &str = "jobs:\n  a: { kind: say }\n  b: { kind: say }\n";
const LINE: &str = "jobs:\n  a: { kind: say }\n  b: { needs: a, kind: say }\n";

#[tokio::test]
async fn a_job_whose_end_cannot_be_read_is_looked_up() {
    let (store, _) = memory();
    let run = start(&store, "jobs:\n  a: { kind: say }\n").await;
    work_until(&store, run, 1).await;
    Engine::new(Unreadable::new(&store)).unwrap().settle().await.unwrap();
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.nodes[0].outcome), (RunState::Succeeded, Some(Outcome::Succeeded)));
}

#[tokio::test]
async fn an_end_that_can_be_read_hides_no_other_that_cannot() {
    let (store, _) = memory();
    let run = start(&store, TWO).await;
    work_until(&store, run, 2).await;
    Engine::new(Unreadable::new(&store)).unwrap().settle().await.unwrap();
    assert_eq!(status(&store, run).await.run.summary, "2 of 2 done");
}

#[tokio::test]
async fn an_engine_that_remembers_a_run_looks_up_a_job_whose_end_cannot_be_read() {
    let (store, _) = memory();
    let run = start(&store, LINE).await;
    let damaged = Unreadable::new(&store);
    damaged.on.store(false, Ordering::Relaxed);
    let mut engine = Engine::new(Arc::<Wrapped<Unreadable>>::clone(&damaged)).unwrap();
    work_until(&store, run, 1).await;
    engine.settle().await.unwrap();
    damaged.on.store(true, Ordering::Relaxed);
    work_until(&store, run, 1).await;
    engine.settle().await.unwrap();
    assert_eq!(status(&store, run).await.run.summary, "2 of 2 done");
}

/// The jobs cannot be judged while the inbox has items that were not handed out. Any engine does it with the next claim.
#[tokio::test]
async fn a_job_whose_end_cannot_be_read_is_looked_up_later_when_another_ends_meanwhile() {
    let (store, _) = memory();
    let run = start(&store, &format!("{TWO}  c: {{ kind: later }}\n")).await;
    work_until(&store, run, 2).await;
    let on = AtomicBool::new(true);
    let damaged = Unreadable { store: Arc::clone(&store), on, ends_meanwhile: Some(run) };
    Engine::new(Arc::new(Wrapped(damaged))).unwrap().settle().await.unwrap();
    assert_eq!(status(&store, run).await.run.summary, "1 of 3 done");
    Engine::new(Arc::clone(&store)).unwrap().settle().await.unwrap();
    assert_eq!(status(&store, run).await.run.summary, "3 of 3 done");
}

#[tokio::test]
async fn a_run_of_which_an_end_cannot_be_read_is_cancelled() {
    let (store, _) = memory();
    let run = start(&store, LINE).await;
    work_until(&store, run, 1).await;
    let cancelled = Runs::new(Unreadable::new(&store)).cancel(run, "enough").await.unwrap();
    assert_eq!(cancelled, RunState::Cancelled);
}
