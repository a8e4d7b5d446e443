//! Many runs of one graph through the real worker and its engine.

use super::super::haul::while_running;
use super::super::noop::{Noop, QUEUE};
use super::super::stand::Stand;
use super::shape::{NAME, Shape};
use crate::failure::Failure;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use windlass::core::Result as StoreResult;
use windlass::core::graph::Graph;
use windlass::core::id::RunId;
use windlass::core::store::{
    BATCH_MAX, LIST_MAX, RunCommit, RunCommitted, RunList, RunRead, RunState, Store, Wrap, Wrapped,
};
use windlass::runs::{Engine, NewGraphRun, Runs};
use windlass::{State, Worker};
use windlass_bench::Stopwatch;

/// Runs of one call that starts them.
const START: u32 = 250;
/// How often the bar moves.
const LOOK: Duration = Duration::from_millis(100);
/// Looks without anything that happened, after which something is wrong.
const PATIENCE: u32 = 600;

/// So many runs of one graph.
#[derive(Clone, Debug)]
pub(super) struct Lot {
    graph: Arc<Graph>,
    runs: u32,
    slots: u32,
}

impl Lot {
    /// As many graphs of so many nodes as come to about `jobs`; at least one.
    pub(super) fn new(shape: Shape, nodes: u32, jobs: u32) -> Result<Self, Failure> {
        let nodes = nodes.min(jobs.max(3));
        Ok(Self { graph: shape.graph(nodes)?, runs: (jobs / nodes).max(1), slots: 1_000 })
    }

    pub(super) fn slots(self, slots: u32) -> Self {
        Self { slots, ..self }
    }

    pub(super) fn runs(self, runs: u32) -> Self {
        Self { runs, ..self }
    }

    pub(super) fn count(&self) -> u32 {
        self.runs
    }

    pub(super) fn nodes(&self) -> u32 {
        u32::try_from(self.graph.nodes.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn jobs(&self) -> u32 {
        self.runs * self.nodes()
    }

    /// From the first start until the store has said that the last run has ended, in seconds. The queue and the runs are
    /// gone afterwards, and nothing may have gone wrong.
    pub(super) async fn work_off(&self, stand: &Stand) -> Result<f64, Failure> {
        stand.fresh_queue().await?;
        let ends = Arc::new(Wrapped(Ends::new(stand.ground.store.clone(), self.runs)));
        let seen: Arc<Seen> = Arc::new((0..self.nodes()).map(|_| AtomicU32::new(0)).collect());
        let worker = Worker::builder(ends.clone()).queue(QUEUE).slots(self.slots as usize);
        let worker = worker.state(Arc::clone(&seen)).handle(count).build()?;
        let work = async {
            let watch = Stopwatch::start();
            let ids = self.start(stand).await?;
            self.watch(stand, &ends).await?;
            Ok((watch.seconds(), ids))
        };
        let (seconds, ids) = while_running(worker, work).await?;
        self.check(stand, &ids, &seen).await?;
        remove(stand, &ids).await?;
        stand.clear().await?;
        Ok(seconds)
    }

    async fn start(&self, stand: &Stand) -> Result<Vec<RunId>, Failure> {
        let runs = Runs::new(stand.ground.store.clone());
        let mut ids = Vec::with_capacity(self.runs as usize);
        while ids.len() < self.runs as usize {
            let some = (START as usize).min(self.runs as usize - ids.len());
            let news = (0..some).map(|_| NewGraphRun::new(Arc::clone(&self.graph))).collect();
            for answer in runs.start_all(news).await? {
                ids.push(answer?.0);
            }
        }
        Ok(ids)
    }

    async fn watch(&self, stand: &Stand, ends: &Ends) -> Result<(), Failure> {
        let bar = stand.ui.bar(self.runs.into(), "runs");
        let (mut quiet, mut last) = (0, 0);
        while quiet < PATIENCE {
            // A wake-up that came before is kept for whoever waits next.
            let _in_time = tokio::time::timeout(LOOK, ends.done.notified()).await;
            if ends.ended.load(Ordering::Relaxed) >= self.runs {
                bar.finish_and_clear();
                return Ok(());
            }
            let now = ends.commits.load(Ordering::Relaxed);
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            bar.set_position(ends.ended.load(Ordering::Relaxed).into());
        }
        bar.finish_and_clear();
        let ended = ends.ended.load(Ordering::Relaxed);
        Err(Failure::failed(format!("no run went on for a minute, after {ended} of {} have ended", self.runs)))
    }

    /// Refuses a measurement after which a run has not succeeded, or a node was not run exactly once in each.
    async fn check(&self, stand: &Stand, ids: &[RunId], seen: &Seen) -> Result<(), Failure> {
        for ids in ids.chunks(BATCH_MAX) {
            let reads = ids.iter().map(|id| RunRead::brief(*id)).collect();
            for (id, view) in ids.iter().zip(stand.ground.store.read_runs(reads).await?) {
                let state = view.map(|view| view.run.state);
                if state != Some(RunState::Succeeded) {
                    return Err(Failure::failed(format!("the run {id} has not succeeded: {state:?}")));
                }
            }
        }
        for (node, count) in seen.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count != self.runs {
                let runs = self.runs;
                return Err(Failure::failed(format!("node {node} was run {count} times in {runs} runs")));
            }
        }
        stand.check_succeeded(self.jobs()).await
    }
}

/// How often each node was run, in all runs.
type Seen = Vec<AtomicU32>;

async fn count(job: Noop, State(seen): State<Arc<Seen>>) {
    if let Some(count) = seen.get(job.n as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store that counts the ends of runs.
struct Ends {
    inner: Arc<dyn Store>,
    target: u32,
    commits: AtomicU32,
    ended: AtomicU32,
    done: Notify,
}

impl Ends {
    fn new(inner: Arc<dyn Store>, target: u32) -> Self {
        Self { inner, target, commits: AtomicU32::new(0), ended: AtomicU32::new(0), done: Notify::new() }
    }
}

#[async_trait]
impl Wrap for Ends {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> StoreResult<Vec<StoreResult<RunCommitted>>> {
        let ends: Vec<bool> = commits.iter().map(|commit| commit.step.state.is_terminal()).collect();
        let answers = self.inner.commit_runs(commits).await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        let made =
            |(end, answer): &(bool, &StoreResult<RunCommitted>)| *end && matches!(answer, Ok(made) if !made.repeated);
        let ended = u32::try_from(ends.into_iter().zip(&answers).filter(made).count()).unwrap_or(u32::MAX);
        let before = self.ended.fetch_add(ended, Ordering::Relaxed);
        if before < self.target && before + ended >= self.target {
            self.done.notify_one();
        }
        Ok(answers)
    }
}

/// Removes the runs of benches, whether or not they have ended, and their jobs.
pub(super) async fn clear(stand: &Stand) -> Result<(), Failure> {
    let store = &stand.ground.store;
    stand.clear().await?;
    if ours(stand).await?.is_empty() {
        return Ok(());
    }
    // Runs whose jobs are gone end by themselves, many at a time; those that are still held have to be told.
    Engine::new(store.clone())?.settle().await?;
    let (runs, all) = (Runs::new(store.clone()), ours(stand).await?);
    for (run, state) in &all {
        if *state == RunState::Running {
            runs.cancel(*run, "the bench was broken off").await?;
        }
    }
    stand.clear().await?;
    remove(stand, &all.into_iter().map(|(run, _)| run).collect::<Vec<_>>()).await
}

async fn remove(stand: &Stand, runs: &[RunId]) -> Result<(), Failure> {
    for runs in runs.chunks(BATCH_MAX) {
        for removed in stand.ground.store.remove_runs(runs.to_vec()).await? {
            removed?;
        }
    }
    Ok(())
}

/// The runs of benches.
async fn ours(stand: &Stand) -> Result<Vec<(RunId, RunState)>, Failure> {
    let (mut ours, mut cursor) = (Vec::new(), None);
    loop {
        let list = RunList { cursor, ..RunList::new(LIST_MAX) };
        let page = stand.ground.store.list_runs(list).await?;
        ours.extend(page.runs.into_iter().filter(|run| run.name == NAME).map(|run| (run.id, run.state)));
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(ours);
        }
    }
}
