//! What keeps runs right when something goes otherwise: each test falls with one guard.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{LONG, Running, faulty, memory};
use windlass::core::graph::{Graph, Outcome};
use windlass::core::id::RunId;
use windlass::core::job::State as JobState;
use windlass::core::memory::MemoryStore;
use windlass::core::name::{GroupName, QueueName};
use windlass::core::random::StrongRandom;
use windlass::core::rate::Rate;
use windlass::core::store::{
    ChangeOp, GroupSettings, GroupsRequest, RunList, RunRead, RunState, RunView, Setting, Store, Wrap, Wrapped,
};
use windlass::core::time::{Timestamp, VirtualClock};
use windlass::graph::yaml;
use windlass::runs::{Engine, NewGraphRun, Rerun, RunStatus, Runs, StartRun, start_run};
use windlass::{Client, Ctx, Error, Job, JobError, State, Worker, WorkerBuilder};
use windlass_conformance::faults::{Fault, Method};

#[derive(Debug, Serialize, Deserialize)]
struct Say {
    #[serde(default)]
    fail: bool,
    #[serde(default)]
    hang: bool,
}

impl Job for Say {
    const KIND: &'static str = "say";
    type Output = ();
}

#[derive(Debug, Default)]
struct Said(AtomicU32);

async fn say(job: Say, ctx: Ctx, State(said): State<Arc<Said>>) -> Result<(), JobError> {
    said.0.fetch_add(1, Ordering::Relaxed);
    if job.hang {
        ctx.stopped().await;
    }
    if job.fail { Err(JobError::fatal("told to")) } else { Ok(()) }
}

fn worker(store: &Arc<dyn Store>, said: &Arc<Said>) -> WorkerBuilder {
    Worker::builder(Arc::clone(store)).state(Arc::clone(said)).slots(8).handle(say)
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

const DIAMOND: &str = "
jobs:
  top: { kind: say }
  left: { needs: top, kind: say }
  right: { needs: top, kind: say }
  end: { needs: [left, right], kind: say }
";

/// A store on a clock that is far from the machine's.
fn elsewhere() -> (Arc<dyn Store>, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(4_102_444_800_000)));
    let random = Arc::new(StrongRandom::seeded(1));
    (Arc::new(MemoryStore::with(Arc::<VirtualClock>::clone(&clock), random)), clock)
}

#[tokio::test]
async fn a_timeout_is_counted_by_the_clock_of_the_store_and_anew_for_a_rerun() {
    const HOUR: u64 = 3_600_000;
    let (store, clock) = elsewhere();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph("timeout: 1h\njobs: { a: { kind: say }, b: { kind: say } }"))).await;
    let run = run.unwrap();
    let job = status(&store, run).await.progress.nodes[0].instances[0].job.unwrap();
    Client::new(Arc::clone(&store)).cancel(job).await.unwrap();
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.inbox_len, seen.progress.timed_out), (0, false), "its time has only begun");
    clock.advance_ms(HOUR);
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.timed_out), (RunState::Failed, true));

    runs.rerun(run, Rerun::All).await.unwrap();
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.timed_out), (RunState::Running, false), "its time begins anew");
    clock.advance_ms(HOUR);
    settle(&store).await;
    assert!(status(&store, run).await.progress.timed_out);
}

#[tokio::test]
async fn one_that_fails_stops_those_beside_it() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let text = "
inputs: { rows: {} }
jobs:
  each:
    strategy: { matrix: '${{ fromJSON(inputs.rows) }}' }
    kind: say
    with: { fail: '${{ matrix.fail }}', hang: '${{ matrix.hang }}' }
";
    let rows = json!({ "rows": r#"[{"fail": false, "hang": true}, {"fail": true, "hang": false}]"# });
    let run = runs.start(NewGraphRun::new(graph(text)).inputs(rows)).await.unwrap();
    let working = Running::start(worker(&store, &said));
    let seen = runs.wait(run, LONG).await.unwrap().expect("the one that hangs is told to stop");
    assert_eq!(seen.run.state, RunState::Failed);
    working.drain().await;
}

#[tokio::test]
async fn a_job_that_was_removed_has_not_succeeded() {
    let (store, client) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
    let job = status(&store, run).await.progress.nodes[0].instances[0].job.unwrap();
    client.cancel(job).await.unwrap();
    settle(&store).await;
    runs.rerun(run, Rerun::All).await.unwrap();
    settle(&store).await;
    let job = status(&store, run).await.progress.nodes[0].instances[0].job.unwrap();
    client.change(job, ChangeOp::Remove).await.unwrap();
    settle(&store).await;
    let seen = status(&store, run).await;
    assert_eq!((seen.run.state, seen.progress.nodes[0].outcome), (RunState::Cancelled, Some(Outcome::Cancelled)));
    assert_eq!(seen.progress.nodes[0].instances[0].error.as_deref(), Some("it was removed"));
}

/// Answers with one entry of a history at a time.
struct Sparing(Arc<dyn Store>);

#[async_trait::async_trait]
impl Wrap for Sparing {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> windlass::Result<Vec<Option<RunView>>> {
        let less = |read: RunRead| RunRead { history_max: read.history_max.min(1), ..read };
        self.0.read_runs(reads.into_iter().map(less).collect()).await
    }
}

#[tokio::test]
async fn a_long_history_is_read_to_its_end() {
    let (store, _) = memory();
    let sparing: Arc<dyn Store> = Arc::new(Wrapped(Sparing(Arc::clone(&store))));
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let run = runs.start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
    let working = Running::start(worker(&store, &said).without_runs());
    let told = async {
        while !status(&store, run).await.run.state.is_terminal() {
            settle(&sparing).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, told).await.expect("it ends");
    let (whole, spared) = (status(&store, run).await, status(&sparing, run).await);
    assert_eq!((whole.run.state, said.0.load(Ordering::Relaxed)), (RunState::Succeeded, 4));
    assert_eq!((&spared.progress, &spared.times), (&whole.progress, &whole.times));
    working.drain().await;
}

#[tokio::test]
async fn engines_that_take_turns_trust_the_store_and_not_their_memory() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let line = "jobs:\n  a: { kind: say }\n  b: { needs: a, kind: say }\n  c: { needs: b, kind: say }\n  d: { needs: c, kind: say }\n";
    let run = runs.start(NewGraphRun::new(graph(line))).await.unwrap();
    let working = Running::start(worker(&store, &said).without_runs());
    let mut engines = [(); 2].map(|()| Engine::new(Arc::clone(&store)).unwrap());
    let told = async {
        let mut turn = 0;
        while !status(&store, run).await.run.state.is_terminal() {
            turn += usize::from(engines[turn % 2].settle().await.unwrap() > 0);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, told).await.expect("it ends");
    assert_eq!(said.0.load(Ordering::Relaxed), 4, "every node ran once");
    working.drain().await;
}

#[tokio::test]
async fn the_rest_of_a_wide_start_waits_for_no_job() {
    let (store, _) = memory();
    let mut text = "jobs:\n".to_owned();
    for n in 0..600 {
        text.push_str(&format!("  n{n}: {{ kind: say }}\n"));
    }
    let run = Runs::new(Arc::clone(&store)).start(NewGraphRun::new(graph(&text))).await.unwrap();
    settle(&store).await;
    assert_eq!(status(&store, run).await.progress.running_jobs().count(), 600);
    assert_eq!(store.queues().await.unwrap()[0].counts.ready, 600);
}

#[tokio::test]
async fn a_start_whose_answer_got_lost_is_repeated_and_starts_one() {
    let (store, _) = memory();
    let lost = AtomicU32::new(0);
    let deaf = faulty(&store, move |method| {
        let first = method == Method::CreateRuns && lost.fetch_add(1, Ordering::Relaxed) == 0;
        if first { Fault::Lost } else { Fault::Pass }
    });
    let run = Runs::new(deaf).start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
    assert_eq!(status(&store, run).await.run.state, RunState::Running);
    assert_eq!(store.queues().await.unwrap()[0].counts.ready, 1, "one job of one run");
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_before_it_is_kept() {
    let (store, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let mut odd = graph(DIAMOND);
    odd.nodes[0].needs = odd.nodes[3].needs.clone();
    let refused = runs.start(NewGraphRun::new(odd)).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let all = RunList::new(9);
    assert_eq!(store.list_runs(all).await.unwrap().runs, []);
}

#[tokio::test]
async fn a_run_of_which_nothing_failed_has_nothing_to_run_once_more() {
    let (store, _) = memory();
    let (runs, said) = (Runs::new(Arc::clone(&store)), Arc::new(Said::default()));
    let run = runs.start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
    let working = Running::start(worker(&store, &said));
    runs.wait(run, LONG).await.unwrap().expect("it ends");
    let refused = runs.rerun(run, Rerun::Failed).await;
    assert!(matches!(&refused, Err(Error::RunRefused { why, .. }) if why.contains("nothing")), "{refused:?}");
    assert_eq!(status(&store, run).await.run.state, RunState::Succeeded, "it is left as it is");
    working.drain().await;
}

#[tokio::test]
async fn a_job_that_starts_a_run_starts_the_same_one_however_often_it_is_tried() {
    let (store, client) = memory();
    let job = StartRun { graph: graph(DIAMOND), inputs: json!({}) };
    let ticket = client.enqueue(job).await.unwrap();
    let working = Running::start(Worker::builder(Arc::clone(&store)).handle(start_run));
    ticket.wait(LONG).await.unwrap();
    assert_eq!(support::state(&store, ticket.id()).await, JobState::Succeeded);
    let run = RunId::named(&format!("job {}", ticket.id()));
    assert_eq!(status(&store, run).await.run.state, RunState::Running, "its id is made of the job's");
    working.drain().await;
}

#[tokio::test]
async fn a_run_sets_the_cap_of_its_group_and_leaves_its_settings_alone() {
    let (store, _) = memory();
    let (queue, group) = (QueueName::new("default").unwrap(), GroupName::new("one").unwrap());
    let settings = GroupSettings { cap: None, rate: Some(Rate { limit: 5, per_ms: 1_000 }), weight: Some(3) };
    store.configure(Setting::Group { queue: queue.clone(), group, settings }).await.unwrap();
    let text = "jobs:\n  a: { kind: say, concurrency: { group: one, max: 2 } }\n";
    Runs::new(Arc::clone(&store)).start(NewGraphRun::new(graph(text))).await.unwrap();
    let found = store.groups(GroupsRequest { queue, after: None, limit: 10 }).await.unwrap().groups;
    assert_eq!((found[0].settings, found[0].run_cap), (settings, Some(2)));
}

#[tokio::test]
async fn no_group_remains_of_ended_runs_whose_inputs_name_their_groups() {
    let (store, _) = memory();
    let text = "inputs: { stage: {} }\njobs:\n  a: { kind: say, concurrency: '${{ inputs.stage }}' }\n  \
                b: { needs: a, kind: say, concurrency: 'after-${{ inputs.stage }}' }\n";
    let graph = Arc::new(graph(text));
    let runs = Runs::new(Arc::clone(&store));
    let running = Running::start(worker(&store, &Arc::default()));
    for n in 0..50 {
        let run = NewGraphRun::new(Arc::clone(&graph)).inputs(json!({ "stage": format!("stage-{n}") }));
        let ended = runs.wait(runs.start(run).await.unwrap(), LONG).await.unwrap();
        assert_eq!(ended.map(|status| status.run.state), Some(RunState::Succeeded));
    }
    running.drain().await;
    let request = GroupsRequest { queue: QueueName::new("default").unwrap(), after: None, limit: 1_000 };
    let left: Vec<GroupName> =
        store.groups(request).await.unwrap().groups.into_iter().map(|group| group.name).collect();
    assert_eq!(left, [], "{} groups remain", left.len());
}
