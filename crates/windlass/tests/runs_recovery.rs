//! Runs that an engine has to recover: decisions of several commits, jobs that are not in the store, ids that are used
//! again, late engines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use support::{Running, faulty, memory};
use windlass::core::graph::{Graph, Outcome};
use windlass::core::id::{JobId, RunId};
use windlass::core::job::Job as StoredJob;
use windlass::core::memory::MemoryStore;
use windlass::core::random::StrongRandom;
use windlass::core::store::{
    Change, ChangeOp, INBOX_ITEMS_MAX, NewRun, RunCommit, RunCommitted, RunCreated, RunMessage, RunState, Store, Wrap,
    Wrapped,
};
use windlass::core::time::{Timestamp, VirtualClock};
use windlass::graph::yaml;
use windlass::runs::{Engine, NewGraphRun, RunStatus, Runs};
use windlass::{Error, Job, JobError, Worker};
use windlass_conformance::faults::{Fault, Method};

#[derive(Debug, Serialize, Deserialize)]
struct Say {
    #[serde(default)]
    text: String,
}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

/// Fails when its text says so.
async fn say(job: Say) -> Result<(), JobError> {
    if job.text == "fail" { Err(JobError::fatal("told to fail")) } else { Ok(()) }
}

fn graph(text: &str) -> Graph {
    yaml::read("test.yml", text).unwrap_or_else(|problems| panic!("{problems}")).graph
}

async fn status(store: &Arc<dyn Store>, run: RunId) -> RunStatus {
    Runs::new(Arc::clone(store)).status(run).await.unwrap().unwrap()
}

async fn settle(store: &Arc<dyn Store>) {
    Engine::new(Arc::clone(store)).unwrap().settle().await.unwrap();
}

/// Works on one job after the other until the inbox of the run has this many items. No engine reads them.
async fn work_until(store: &Arc<dyn Store>, run: RunId, items: u64) {
    let working = Running::start(Worker::builder(Arc::clone(store)).slots(1).without_runs().handle(say));
    while status(store, run).await.run.inbox_len < items {
        tokio::task::yield_now().await;
    }
    working.drain().await;
}

/// A memory store on a virtual clock.
fn on_virtual_clock() -> (Arc<dyn Store>, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(4_102_444_800_000)));
    let random = Arc::new(StrongRandom::seeded(1));
    (Arc::new(MemoryStore::with(Arc::<VirtualClock>::clone(&clock), random)), clock)
}

/// The started instances that have neither ended nor a job in the store: the run would wait for them for ever.
async fn instances_without_a_job(store: &Arc<dyn Store>, run: RunId) -> usize {
    let open: Vec<_> = status(store, run).await.progress.running_jobs().collect();
    store.get(open).await.unwrap().iter().filter(|job| job.is_none()).count()
}

/// A node whose job cannot be made, because its label is empty, and 600 others. All need `needs`, if it is given.
fn wide(needs: &str) -> Graph {
    let mut text = "inputs: { label: {} }\njobs:\n".to_owned();
    if !needs.is_empty() {
        text.push_str(&format!("  {needs}: {{ kind: say }}\n"));
    }
    let needs = if needs.is_empty() { String::new() } else { format!("needs: {needs}, ") };
    text.push_str(&format!("  odd: {{ {needs}kind: say, labels: ['${{{{ inputs.label }}}}'] }}\n"));
    for n in 0..600 {
        text.push_str(&format!("  n{n}: {{ {needs}kind: say }}\n"));
    }
    graph(&text)
}

#[tokio::test]
async fn a_job_that_cannot_be_made_ends_in_the_commit_that_starts_it() {
    let (store, _) = memory();
    let run = NewGraphRun::new(wide("")).inputs(json!({ "label": "" }));
    let run = Runs::new(Arc::clone(&store)).start(run).await.unwrap();
    assert_eq!(instances_without_a_job(&store, run).await, 0, "after the first of two commits");
    settle(&store).await;
    assert_eq!(instances_without_a_job(&store, run).await, 0);
    work_until(&store, run, 600).await;
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.run.summary.as_str()), (RunState::Failed, "601 of 601 done"));
    let error = seen.progress.nodes[0].instances[0].error.clone().unwrap();
    assert!(error.contains("could not be made"), "{error}");
}

#[tokio::test]
async fn an_engine_that_dies_between_two_commits_leaves_no_instance_without_a_job() {
    let (store, clock) = on_virtual_clock();
    let run = NewGraphRun::new(wide("top")).inputs(json!({ "label": "" }));
    let run = Runs::new(Arc::clone(&store)).start(run).await.unwrap();
    work_until(&store, run, 1).await;
    let commits = AtomicU32::new(0);
    let dying = faulty(&store, move |method| match method {
        Method::CommitRuns if commits.fetch_add(1, Ordering::Relaxed) > 0 => Fault::Refused(Error::LeaseLost),
        _ => Fault::Pass,
    });
    Engine::new(dying).unwrap().settle().await.unwrap_err();
    let started = status(&store, run).await.progress.running_jobs().count();
    assert!((1..600).contains(&started), "one of two commits was made, {started} jobs were started");
    assert_eq!(instances_without_a_job(&store, run).await, 0);
    clock.advance_ms(60_000);
    settle(&store).await;
    work_until(&store, run, 600).await;
    settle(&store).await;
    assert_eq!(status(&store, run).await.run.summary, "602 of 602 done");
}

/// A look-up of every open job would cost more than the decision.
#[tokio::test]
async fn an_engine_does_not_look_up_the_jobs_that_it_has_started() {
    let (store, _) = memory();
    let run = NewGraphRun::new(wide("top")).inputs(json!({ "label": "gpu" }));
    let run = Runs::new(Arc::clone(&store)).start(run).await.unwrap();
    work_until(&store, run, 1).await;
    let counted = faulty(&store, |_| Fault::Pass);
    let mut engine = Engine::new(counted.clone()).unwrap();
    engine.settle().await.unwrap();
    store.change(vec![cancel_of_first_open_job(&store, run).await]).await.unwrap().remove(0).unwrap();
    engine.settle().await.unwrap();
    assert_eq!(status(&store, run).await.progress.running_jobs().count(), 600);
    assert_eq!(counted.calls().get(&Method::Get), None);
}

async fn cancel_of_first_open_job(store: &Arc<dyn Store>, run: RunId) -> Change {
    let job = status(store, run).await.progress.running_jobs().next().unwrap();
    Change { id: job, op: ChangeOp::Cancel }
}

/// Creates runs without the job of their first node, as an earlier version did when it could not be made.
struct WithoutFirstJob(Arc<dyn Store>);

#[async_trait::async_trait]
impl Wrap for WithoutFirstJob {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn create_runs(&self, mut runs: Vec<NewRun>) -> windlass::Result<Vec<windlass::Result<RunCreated>>> {
        for run in &mut runs {
            run.step.jobs.remove(0);
        }
        self.0.create_runs(runs).await
    }
}

async fn start_without_first_job(store: &Arc<dyn Store>, graph: Graph) -> RunId {
    let broken: Arc<dyn Store> = Arc::new(Wrapped(WithoutFirstJob(Arc::clone(store))));
    let run = Runs::new(broken).start(NewGraphRun::new(graph).inputs(json!({ "label": "gpu" }))).await.unwrap();
    assert_eq!(instances_without_a_job(store, run).await, 1);
    run
}

const NOT_IN_THE_STORE: &str = "its job is not in the store";

#[tokio::test]
async fn an_engine_ends_an_instance_whose_job_is_not_in_the_store() {
    let (store, _) = memory();
    let run = start_without_first_job(&store, wide("")).await;
    settle(&store).await;
    work_until(&store, run, 600).await;
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.run.summary.as_str()), (RunState::Failed, "601 of 601 done"));
    let first = &seen.progress.nodes[0].instances[0];
    assert_eq!((first.outcome, first.error.as_deref()), (Some(Outcome::Failed), Some(NOT_IN_THE_STORE)));
}

#[tokio::test]
async fn a_run_that_waits_for_a_job_that_is_not_in_the_store_is_cancelled_and_removed() {
    let (store, _) = memory();
    let run = start_without_first_job(&store, graph("jobs:\n  a: { kind: say }\n  b: { needs: a, kind: say }\n")).await;
    let cancelled = Runs::new(Arc::clone(&store)).cancel(run, "enough").await.unwrap();
    assert_eq!(cancelled, RunState::Cancelled);
    store.remove_runs(vec![run]).await.unwrap().remove(0).unwrap();
}

/// Passes everything on, and completes the open job of the run before the engine looks for it.
struct EndsMeanwhile(Arc<dyn Store>, RunId);

#[async_trait::async_trait]
impl Wrap for EndsMeanwhile {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn get(&self, ids: Vec<JobId>) -> windlass::Result<Vec<Option<StoredJob>>> {
        work_until(&self.0, self.1, 2).await;
        // Retention removed it, too.
        for id in &ids {
            self.0.change(vec![Change { id: *id, op: ChangeOp::Remove }]).await?.remove(0)?;
        }
        self.0.get(ids).await
    }
}

#[tokio::test]
async fn a_job_that_ends_and_is_removed_during_the_check_keeps_its_outcome() {
    let (store, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph("jobs:\n  a: { kind: say }\n"))).await.unwrap();
    // A message that no engine understands: nothing but a reason to claim the run.
    let message = RunMessage::new(run, "{}");
    store.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
    let meanwhile: Arc<dyn Store> = Arc::new(Wrapped(EndsMeanwhile(Arc::clone(&store), run)));
    settle(&meanwhile).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.nodes[0].outcome), (RunState::Succeeded, Some(Outcome::Succeeded)));
}

const LINE: &str = "
jobs:
  a: { kind: say }
  b: { needs: a, kind: say }
  c: { needs: b, kind: say }
";

/// Starts a run under an id of which an earlier run is cancelled and removed, if there is one.
async fn start_anew(store: &Arc<dyn Store>, id: RunId) {
    let runs = Runs::new(Arc::clone(store));
    if runs.status(id).await.unwrap().is_some() {
        runs.cancel(id, "once more").await.unwrap();
        store.remove_runs(vec![id]).await.unwrap().remove(0).unwrap();
    }
    runs.start(NewGraphRun::new(graph(LINE)).id(id)).await.unwrap();
}

#[tokio::test]
async fn an_engine_does_not_take_a_new_run_for_an_earlier_one_of_the_same_id() {
    let (store, _) = on_virtual_clock();
    let id = RunId::named("nightly");
    let [mut one, mut other] = [(); 2].map(|()| Engine::new(Arc::clone(&store)).unwrap());
    start_anew(&store, id).await;
    work_until(&store, id, 1).await;
    one.settle().await.unwrap();
    start_anew(&store, id).await;
    work_until(&store, id, 1).await;
    // Now both runs have a history of the same length, and the first engine has cached the earlier one.
    other.settle().await.unwrap();
    work_until(&store, id, 1).await;
    one.settle().await.unwrap();
    let seen = status(&store, id).await;
    assert_eq!(seen.run.summary, "2 of 3 done");
    assert_eq!(seen.progress.nodes[2].running(), 1, "the end of b starts c");
}

#[tokio::test]
async fn a_status_does_not_go_on_with_a_later_run_of_the_same_id() {
    let (store, clock) = on_virtual_clock();
    let id = RunId::named("nightly");
    start_anew(&store, id).await;
    let mut seen = status(&store, id).await;
    assert_eq!(seen.refresh(store.as_ref()).await.unwrap().map(|new| new.len()), Some(0));
    clock.advance_ms(1);
    start_anew(&store, id).await;
    work_until(&store, id, 1).await;
    settle(&store).await;
    assert_eq!(seen.refresh(store.as_ref()).await.unwrap(), None, "the run that was read is gone");
}

#[tokio::test]
async fn a_status_does_not_go_on_with_a_later_run_of_the_same_millisecond() {
    let (store, _) = on_virtual_clock();
    let id = RunId::named("nightly");
    start_anew(&store, id).await;
    work_until(&store, id, 1).await;
    settle(&store).await;
    let mut seen = status(&store, id).await;
    start_anew(&store, id).await;
    let later = status(&store, id).await.run;
    assert_eq!(later.created_at, seen.run.created_at);
    assert!(later.history_len < seen.run.history_len);
    assert_eq!(seen.refresh(store.as_ref()).await.unwrap(), None, "the run that was read is gone");
}

/// Acknowledges commits and makes none while its flag is set, as a primary does whose last changes are lost in a failover.
struct LosesCommits(Arc<dyn Store>, AtomicBool);

#[async_trait::async_trait]
impl Wrap for LosesCommits {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> windlass::Result<Vec<windlass::Result<RunCommitted>>> {
        if !self.1.load(Ordering::Relaxed) {
            return self.0.commit_runs(commits).await;
        }
        let made = |commit: RunCommit| commit.history_len + commit.step.history.len() as u64;
        Ok(commits.into_iter().map(|commit| Ok(RunCommitted { history_len: made(commit), repeated: false })).collect())
    }
}

#[tokio::test]
async fn an_engine_whose_commit_was_lost_by_a_failover_takes_in_the_ends_of_later_jobs() {
    let (store, clock) = on_virtual_clock();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph(LINE))).await.unwrap();
    work_until(&store, run, 1).await;
    let losing = Arc::new(Wrapped(LosesCommits(Arc::clone(&store), AtomicBool::new(true))));
    let mut one = Engine::new(Arc::<Wrapped<LosesCommits>>::clone(&losing)).unwrap();
    one.settle().await.unwrap();
    losing.1.store(false, Ordering::Relaxed);
    clock.advance_ms(60_000);
    settle(&store).await;
    work_until(&store, run, 1).await;
    one.settle().await.unwrap();
    assert_eq!(status(&store, run).await.run.summary, "2 of 3 done");
}

#[tokio::test]
async fn a_matrix_that_gives_up_cancels_the_job_that_the_same_step_started() {
    let (store, _) = memory();
    let text = "
jobs:
  each:
    strategy: { matrix: { text: [good, fail, third, last] }, max-parallel: 2, fail-fast: true }
    kind: say
    with: { text: '${{ matrix.text }}' }
";
    let run = Runs::new(Arc::clone(&store)).start(NewGraphRun::new(graph(text))).await.unwrap();
    // One claim hands out both ends: the first starts the third instance, the second gives it up.
    work_until(&store, run, 2).await;
    settle(&store).await;
    assert_eq!(store.queues().await.unwrap()[0].counts.ready, 0);
    assert_eq!(status(&store, run).await.run.state, RunState::Failed);
}

#[tokio::test]
async fn a_matrix_of_which_a_job_cannot_be_made_gives_up_the_others() {
    let (store, _) = memory();
    let text = "
jobs:
  each:
    strategy: { matrix: { label: [gpu, '', arm] }, fail-fast: true }
    kind: say
    labels: ['${{ matrix.label }}']
";
    let run = Runs::new(Arc::clone(&store)).start(NewGraphRun::new(graph(text))).await.unwrap();
    assert_eq!(store.queues().await.unwrap()[0].counts.ready, 0);
    settle(&store).await;
    assert_eq!(status(&store, run).await.run.state, RunState::Failed);
}

const HOUR: u64 = 3_600_000;

#[tokio::test]
async fn a_run_whose_jobs_ended_in_time_has_not_timed_out_when_its_engine_is_late() {
    let (store, clock) = on_virtual_clock();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph("timeout: 1h\njobs: { a: { kind: say } }"))).await.unwrap();
    clock.advance_ms(HOUR);
    work_until(&store, run, 1).await;
    clock.advance_ms(HOUR);
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.timed_out), (RunState::Succeeded, false));
}

#[tokio::test]
async fn a_run_whose_last_job_ended_too_late_has_timed_out() {
    let (store, clock) = on_virtual_clock();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph("timeout: 1h\njobs: { a: { kind: say } }"))).await.unwrap();
    clock.advance_ms(HOUR + 1);
    work_until(&store, run, 1).await;
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.timed_out), (RunState::Failed, true));
    assert_eq!(seen.progress.nodes[0].outcome, Some(Outcome::Succeeded), "its job succeeded all the same");
}

#[tokio::test]
async fn a_run_that_has_timed_out_starts_nothing_after_a_job_that_ended_in_time() {
    let (store, clock) = on_virtual_clock();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph(&format!("timeout: 1h{LINE}")))).await.unwrap();
    work_until(&store, run, 1).await;
    clock.advance_ms(2 * HOUR);
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.timed_out), (RunState::Failed, true));
    assert_eq!(seen.progress.nodes[0].outcome, Some(Outcome::Succeeded));
    assert!(seen.progress.nodes[1].instances.is_empty(), "b was not started");
}

#[tokio::test]
async fn more_ends_in_time_than_one_claim_hands_out_are_all_counted() {
    let (store, clock) = on_virtual_clock();
    let mut text = "timeout: 1h\njobs:\n".to_owned();
    for n in 0..=INBOX_ITEMS_MAX {
        text.push_str(&format!("  n{n}: {{ kind: say }}\n"));
    }
    let run = Runs::new(Arc::clone(&store)).start(NewGraphRun::new(graph(&text))).await.unwrap();
    settle(&store).await;
    work_until(&store, run, INBOX_ITEMS_MAX as u64 + 1).await;
    clock.advance_ms(2 * HOUR);
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.timed_out), (RunState::Succeeded, false));
}
