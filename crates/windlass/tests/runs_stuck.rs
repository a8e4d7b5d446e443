//! Runs that their engine could not advance: they rest, say why, and are resumed, cancelled or removed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{LONG, Running, memory};
use windlass::core::graph::Outcome;
use windlass::core::id::RunId;
use windlass::core::job::Due;
use windlass::core::store::{
    NewRun, RunCommit, RunCommitted, RunRead, RunState, RunStep, RunView, Store, Wrap, Wrapped,
};
use windlass::graph::yaml;
use windlass::runs::{Engine, NewGraphRun, Rerun, Runs};
use windlass::{Ctx, Error, Job, State, Worker, WorkerBuilder};

#[derive(Debug, Serialize, Deserialize)]
struct Say {}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

#[derive(Debug, Default)]
struct Said(AtomicU32);

async fn say(_: Say, _: Ctx, State(said): State<Arc<Said>>) {
    said.0.fetch_add(1, Ordering::Relaxed);
}

fn worker(store: &Arc<dyn Store>, said: &Arc<Said>) -> WorkerBuilder {
    Worker::builder(Arc::clone(store)).state(Arc::clone(said)).slots(8).handle(say)
}

const DIAMOND: &str = "
timeout: 1h
jobs:
  top: { kind: say }
  left: { needs: top, kind: say }
  right: { needs: top, kind: say }
  end: { needs: [left, right], kind: say }
";

/// Refuses every step that starts a job, but so many.
struct NoRoom(Arc<dyn Store>, AtomicU32);

const NO_ROOM: &str = "lanes is 2, at most 1 is allowed";

#[async_trait::async_trait]
impl Wrap for NoRoom {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> windlass::Result<Vec<windlass::Result<RunCommitted>>> {
        let starts = commits.iter().any(|commit| !commit.step.jobs.is_empty());
        let room = |left: u32| left.checked_sub(1);
        if starts && self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            let refused = |_| Err(Error::limit("lanes", 1, 2));
            return Ok(commits.iter().map(refused).collect());
        }
        self.0.commit_runs(commits).await
    }
}

fn strict(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    strict_after(store, 0)
}

fn strict_after(store: &Arc<dyn Store>, steps: u32) -> Arc<dyn Store> {
    Arc::new(Wrapped(NoRoom(Arc::clone(store), AtomicU32::new(steps))))
}

/// Advances what can be advanced, without room for new jobs.
async fn settle_without_room(store: &Arc<dyn Store>) {
    Engine::new(strict(store)).unwrap().settle().await.unwrap();
}

/// A run whose first node is done, and of which nothing more could be started.
async fn stuck(store: &Arc<dyn Store>, said: &Arc<Said>) -> RunId {
    let run = begun(store, said, DIAMOND).await;
    settle_without_room(store).await;
    run
}

/// A run whose first node is done, which nobody has taken in.
async fn begun(store: &Arc<dyn Store>, said: &Arc<Said>, text: &str) -> RunId {
    let runs = Runs::new(Arc::clone(store));
    let working = Running::start(worker(store, said).without_runs());
    let graph = yaml::read("test.yml", text).unwrap_or_else(|problems| panic!("{problems}")).graph;
    let run = runs.start(NewGraphRun::new(graph)).await.unwrap();
    while runs.status(run).await.unwrap().unwrap().run.inbox_len == 0 {
        tokio::task::yield_now().await;
    }
    working.drain().await;
    run
}

/// A run that no engine can read.
async fn unreadable(store: &Arc<dyn Store>) -> RunId {
    let step = RunStep { wake: Some(Due::Now), ..RunStep::nothing() };
    let run = NewRun {
        name: "unreadable".to_owned(),
        definition: "{\"version\":1,".into(),
        input: "{\"inputs\":{}}".into(),
        step,
        ..NewRun::new(RunId::named("unreadable"), "graph".try_into().unwrap())
    };
    let id = run.id;
    store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    id
}

async fn word(store: &Arc<dyn Store>, run: RunId) -> Option<String> {
    store.read_runs(vec![RunRead::brief(run)]).await.unwrap().remove(0).unwrap().run.stuck
}

fn refusal<T: std::fmt::Debug>(answer: windlass::Result<T>) -> String {
    match answer {
        Err(Error::RunRefused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_run_whose_step_is_refused_rests_and_says_why() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let run = stuck(&store, &said).await;
    let status = runs.status(run).await.unwrap().unwrap();
    assert_eq!(status.run.stuck.as_deref(), Some(NO_ROOM));
    assert_eq!((status.run.inbox_len, status.run.history_len), (1, 2), "nothing was forgotten, and nothing was made");
    let why = refusal(runs.rerun(run, Rerun::All).await);
    assert!(why.contains(NO_ROOM) && why.contains("resume"), "{why}");
}

#[tokio::test]
async fn a_resumed_run_is_stuck_again_or_goes_on_from_where_it_was() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let run = stuck(&store, &said).await;
    runs.resume(run).await.unwrap();
    assert_eq!(word(&store, run).await, None);
    settle_without_room(&store).await;
    assert_eq!(word(&store, run).await.as_deref(), Some(NO_ROOM), "the cause is still there");
    runs.resume(run).await.unwrap();
    Engine::new(Arc::clone(&store)).unwrap().settle().await.unwrap();
    let status = runs.status(run).await.unwrap().unwrap();
    assert_eq!((status.run.inbox_len, status.run.summary.as_str()), (0, "1 of 4 done"));
    assert!(status.run.wake_at.is_some(), "its timeout counts again");
    let working = Running::start(worker(&store, &said));
    let status = runs.wait(run, LONG).await.unwrap().expect("the run ends");
    assert_eq!(status.run.state, RunState::Succeeded);
    assert_eq!(said.0.load(Ordering::Relaxed), 4, "every node ran once");
    working.drain().await;
}

#[tokio::test]
async fn only_a_stuck_run_is_resumed() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let missing = runs.resume(RunId::named("nobody")).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    let run = stuck(&store, &said).await;
    runs.resume(run).await.unwrap();
    let why = refusal(runs.resume(run).await);
    assert!(why.contains("not stuck"), "{why}");
    runs.cancel(run, "enough").await.unwrap();
    let why = refusal(runs.resume(run).await);
    assert!(why.contains("has ended: cancelled") && why.contains("rerun"), "{why}");
    assert_eq!(runs.status(run).await.unwrap().unwrap().run.state, RunState::Cancelled, "it was left as it is");
}

/// Returns every run as stuck: what a caller has read that is late.
struct Late(Arc<dyn Store>);

#[async_trait::async_trait]
impl Wrap for Late {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> windlass::Result<Vec<Option<RunView>>> {
        let mut views = self.0.read_runs(reads).await?;
        for view in views.iter_mut().flatten() {
            (view.run.state, view.run.stuck) = (RunState::Running, Some("no room".to_owned()));
        }
        Ok(views)
    }
}

#[tokio::test]
async fn a_run_that_has_ended_since_it_was_read_as_stuck_is_not_opened() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let run = stuck(&store, &said).await;
    runs.cancel(run, "enough").await.unwrap();
    let late = Runs::new(Arc::new(Wrapped(Late(Arc::clone(&store)))));
    assert!(refusal(late.resume(run).await).contains("not stuck"));
    assert_eq!(runs.status(run).await.unwrap().unwrap().run.state, RunState::Cancelled);
}

#[tokio::test]
async fn a_stuck_run_is_cancelled_also_when_nothing_of_it_can_be_started() {
    let (store, _) = memory();
    let said = Arc::new(Said::default());
    let run = stuck(&store, &said).await;
    let runs = Runs::new(strict(&store));
    let cancelled = tokio::time::timeout(LONG, runs.cancel(run, "enough")).await.expect("it does not hang");
    assert_eq!(cancelled.unwrap(), RunState::Cancelled);
    let status = runs.status(run).await.unwrap().unwrap();
    assert_eq!((status.run.stuck.clone(), status.progress.cancelled.as_deref()), (None, Some("enough")));
    let outcomes: Vec<_> = status.progress.nodes.iter().map(|node| node.outcome).collect();
    let (done, not_run) = (Some(Outcome::Succeeded), Some(Outcome::Cancelled));
    assert_eq!(outcomes, [done, not_run, not_run, not_run], "what was done is not undone");
    assert_eq!(store.queues().await.unwrap()[0].counts.ready, 0);
    assert_eq!(runs.cancel(run, "again").await.unwrap(), RunState::Cancelled, "an ended one is left as it is");
}

#[tokio::test]
async fn a_run_that_got_stuck_half_way_through_a_thought_is_cancelled() {
    let (store, _) = memory();
    let said = Arc::new(Said::default());
    let mut text = "jobs:\n  top: { kind: say }\n".to_owned();
    for n in 0..600 {
        text.push_str(&format!("  n{n}: {{ needs: top, kind: say }}\n"));
    }
    let run = begun(&store, &said, &text).await;
    Engine::new(strict_after(&store, 1)).unwrap().settle().await.unwrap();
    assert_eq!(word(&store, run).await.as_deref(), Some(NO_ROOM));
    let started = store.queues().await.unwrap()[0].counts.ready;
    assert!((1..600).contains(&started), "{started} were started");
    let runs = Runs::new(strict(&store));
    let cancelled = tokio::time::timeout(LONG, runs.cancel(run, "enough")).await.expect("it does not hang");
    assert_eq!(cancelled.unwrap(), RunState::Cancelled);
    assert_eq!(store.queues().await.unwrap()[0].counts.ready, 0);
}

#[tokio::test]
async fn a_run_that_nobody_can_read_says_so_when_it_is_cancelled_and_can_be_removed() {
    let (store, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let run = unreadable(&store).await;
    // First as one that nobody has looked at, then as one that is known to be stuck.
    for _ in 0..2 {
        let cancelled = tokio::time::timeout(LONG, runs.cancel(run, "enough")).await.expect("it does not hang");
        let why = refusal(cancelled);
        for part in ["stuck", "its definition", &format!("`windlass runs remove {run}`")] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(word(&store, run).await.unwrap().contains("its definition"), "it rests again");
    }
    runs.resume(run).await.unwrap();
    Engine::new(Arc::clone(&store)).unwrap().settle().await.unwrap();
    assert!(word(&store, run).await.unwrap().contains("its definition"));
    store.remove_runs(vec![run]).await.unwrap().remove(0).unwrap();
    assert!(matches!(runs.resume(run).await, Err(Error::NotFound { .. })));
}
