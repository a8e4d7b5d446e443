//! Runs of graphs, over workers: from start to end, and what can happen in between.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::{LONG, Running, memory};
use windlass::core::graph::{Graph, Outcome, Skip};
use windlass::core::store::{RunClaim, RunCommit, RunCommitted, RunState, RunStep, Store, Wrap, Wrapped};
use windlass::graph::yaml;
use windlass::runs::{Engine, NewGraphRun, Rerun, RunStatus, Runs};
use windlass::{Ctx, Job, JobError, State, Worker, WorkerBuilder};
use windlass_conformance::faults::{FaultPlan, Faulty};

/// Says what it is told; fails when it is told to.
#[derive(Debug, Serialize, Deserialize)]
struct Say {
    #[serde(default)]
    text: Value,
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
struct Seen {
    said: parking_lot::Mutex<Vec<String>>,
    healed: std::sync::atomic::AtomicBool,
    stopped: AtomicU32,
}

async fn say(job: Say, ctx: Ctx, State(seen): State<Arc<Seen>>) -> Result<(), JobError> {
    let text = job.text.as_str().map_or_else(|| job.text.to_string(), str::to_owned);
    seen.said.lock().push(text.clone());
    if job.hang {
        ctx.stopped().await;
        seen.stopped.fetch_add(1, Ordering::Relaxed);
    }
    if job.fail && !seen.healed.load(Ordering::Relaxed) {
        return Err(JobError::fatal(format!("{text} failed")));
    }
    ctx.output("said", text);
    Ok(())
}

fn graph(text: &str) -> Arc<Graph> {
    Arc::new(yaml::read("test.yml", text).unwrap_or_else(|problems| panic!("{problems}")).graph)
}

fn worker(store: &Arc<dyn Store>, seen: &Arc<Seen>) -> WorkerBuilder {
    Worker::builder(Arc::clone(store)).state(Arc::clone(seen)).slots(8).handle(say)
}

async fn ended(runs: &Runs, run: windlass::core::id::RunId) -> RunStatus {
    runs.wait(run, LONG).await.unwrap().expect("the run ends")
}

fn outcomes(status: &RunStatus) -> Vec<(&str, Outcome)> {
    let outcome = |(node, progress): (_, &windlass::core::graph::NodeProgress)| {
        let node: &windlass::core::graph::Node = node;
        (node.id.as_str(), progress.outcome.expect("it has ended"))
    };
    let pairs: Vec<_> = status.graph.nodes.iter().zip(&status.progress.nodes).collect();
    pairs.into_iter().map(outcome).collect()
}

const DIAMOND: &str = "
name: diamond
inputs:
  who: { default: Ada }
jobs:
  top: { kind: say, with: { text: 'hello ${{ inputs.who }}' } }
  left: { needs: top, kind: say, with: { text: 'left of ${{ needs.top.outputs.said }}' } }
  right: { needs: top, kind: say, with: { text: right } }
  end:
    needs: [left, right]
    kind: say
    with: { text: '${{ needs.left.outputs.said }} and ${{ needs.right.outputs.said }}' }
";

#[tokio::test]
async fn a_diamond_is_run_in_its_order_and_outputs_are_handed_on() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let run = runs.start(NewGraphRun::new(graph(DIAMOND)).inputs(json!({ "who": "Bob" }))).await.unwrap();
    let working = Running::start(worker(&store, &seen));
    let status = ended(&runs, run).await;
    assert_eq!((status.run.state, status.run.name.as_str()), (RunState::Succeeded, "diamond"));
    assert_eq!(status.run.summary, "4 of 4 done");
    assert!(outcomes(&status).iter().all(|(_, outcome)| *outcome == Outcome::Succeeded));
    let said = seen.said.lock().clone();
    assert_eq!(said[0], "hello Bob");
    assert_eq!(said[3], "left of hello Bob and right");
    assert!(status.times.iter().all(|times| times.started_at.is_some() && times.started_at <= times.ended_at));
    working.drain().await;
}

#[tokio::test]
async fn the_same_id_starts_a_run_once() {
    let (store, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let new = NewGraphRun::new(graph(DIAMOND)).id(windlass::core::id::RunId::named("nightly 1"));
    assert_eq!(runs.start(new.clone()).await.unwrap(), runs.start(new).await.unwrap());
    let queues = store.queues().await.unwrap();
    assert_eq!(queues[0].counts.ready, 1, "one job of one run");
}

const BROKEN: &str = "
jobs:
  build: { kind: say, with: { text: build } }
  test: { needs: build, kind: say, with: { text: test, fail: true } }
  ship: { needs: test, kind: say, with: { text: ship } }
  tell: { needs: test, if: failure(), kind: say, with: { text: 'it ${{ needs.test.result }}' } }
";

#[tokio::test]
async fn what_failed_is_run_once_more_and_only_that() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let run = runs.start(NewGraphRun::new(graph(BROKEN))).await.unwrap();
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Failed);
    let expected = [Outcome::Succeeded, Outcome::Failed, Outcome::Skipped, Outcome::Succeeded];
    assert_eq!(outcomes(&status).into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>(), expected);
    assert_eq!(status.progress.nodes[1].instances[0].error.as_deref(), Some("test failed"));
    assert_eq!(status.progress.nodes[2].skip, Some(Skip::Need { node: 1, outcome: Outcome::Failed }));
    assert_eq!(*seen.said.lock(), ["build", "test", "it failed"]);

    seen.healed.store(true, Ordering::Relaxed);
    assert_eq!(runs.rerun(run, Rerun::Failed).await.unwrap(), 3, "it, and those after it");
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Succeeded);
    assert_eq!(seen.said.lock()[3..], ["test", "ship"], "what went well is not repeated");
    assert_eq!(status.progress.nodes[3].outcome, Some(Outcome::Skipped), "nothing failed this time");

    let missing = runs.rerun(run, Rerun::From(vec!["tset".to_owned()])).await.unwrap_err();
    assert!(missing.to_string().contains("did you mean `test`?"), "{missing}");
    runs.rerun(run, Rerun::From(vec!["ship".to_owned()])).await.unwrap();
    ended(&runs, run).await;
    assert_eq!(seen.said.lock()[5..], ["ship"]);
    working.drain().await;
}

#[tokio::test]
async fn of_a_matrix_only_the_rows_that_failed_are_run_once_more() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let text = "
jobs:
  each:
    strategy: { matrix: { include: [{ n: one, fail: false }, { n: two, fail: true }] }, fail-fast: false, max-parallel: 1 }
    kind: say
    with: { text: '${{ matrix.n }}', fail: '${{ matrix.fail }}' }
";
    let run = runs.start(NewGraphRun::new(graph(text))).await.unwrap();
    assert_eq!(ended(&runs, run).await.run.state, RunState::Failed);
    // While one row is failed and the other is not, so that there is a row to keep.
    runs.rerun(run, Rerun::From(vec!["each".to_owned()])).await.unwrap();
    assert_eq!(ended(&runs, run).await.run.state, RunState::Failed);
    assert_eq!(*seen.said.lock(), ["one", "two", "one", "two"], "a rerun from the node runs all its rows");
    seen.healed.store(true, Ordering::Relaxed);
    runs.rerun(run, Rerun::Failed).await.unwrap();
    assert_eq!(ended(&runs, run).await.run.state, RunState::Succeeded);
    assert_eq!(seen.said.lock()[4..], ["two"]);
    working.drain().await;
}

#[tokio::test]
async fn a_workflow_in_another_is_run_once_more_from_its_beginning() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let inner = "jobs:\n  x: { kind: say, with: { text: x } }\n  y: { needs: x, kind: say, with: { text: y } }\n";
    let text = "jobs:\n  a: { kind: say, with: { text: a } }\n  s: { needs: a, uses: ./inner.yml }\n  b: { needs: s, kind: say, with: { text: b } }\n";
    let workflow = yaml::read_with("test.yml", text, &|_| Ok(inner.to_owned())).unwrap();
    let run = runs.start(NewGraphRun::new(workflow.graph)).await.unwrap();
    ended(&runs, run).await;
    assert_eq!(*seen.said.lock(), ["a", "x", "y", "b"]);

    let count = runs.rerun(run, Rerun::From(vec!["s".to_owned()])).await.unwrap();
    assert_eq!(count, 3, "its entrance and its exit have no job");
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Succeeded);
    assert_eq!(seen.said.lock()[4..], ["x", "y", "b"]);
    working.drain().await;
}

const SLOW: &str = "
jobs:
  slow: { kind: say, with: { text: slow, hang: true } }
  after: { needs: slow, kind: say, with: { text: after } }
  elsewhere: { kind: say, queue: nobody, with: { text: elsewhere } }
";

#[tokio::test]
async fn after_a_cancel_nothing_starts_and_what_runs_is_told() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let run = runs.start(NewGraphRun::new(graph(SLOW))).await.unwrap();
    while seen.said.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let refused = runs.rerun(run, Rerun::All).await;
    assert!(refused.is_err(), "{refused:?}");
    runs.cancel(run, "enough").await.unwrap();
    let status = runs.status(run).await.unwrap().unwrap();
    assert_eq!(status.progress.cancelled.as_deref(), Some("enough"));
    let waiting = status.progress.nodes[2].instances[0].job.unwrap();
    assert_eq!(support::state(&store, waiting).await, windlass::core::job::State::Cancelled);
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Cancelled);
    assert_eq!(*seen.said.lock(), ["slow"]);
    assert_eq!(runs.cancel(run, "again").await.unwrap(), RunState::Cancelled, "it stays as it is");
    assert_eq!(seen.stopped.load(Ordering::Relaxed), 1);
    working.drain().await;
}

#[tokio::test]
async fn a_run_that_takes_too_long_fails() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let mut graph = Graph::clone(&graph(SLOW));
    graph.timeout_ms = Some(50);
    let run = runs.start(NewGraphRun::new(graph)).await.unwrap();
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Failed);
    assert!(status.progress.timed_out);
    assert_eq!(status.progress.nodes[1].skip, Some(Skip::Stopped));
    working.drain().await;
}

#[tokio::test]
async fn a_matrix_grows_out_of_an_output_and_a_bad_one_fails_its_node() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let text = "
inputs:
  list: {}
jobs:
  list: { kind: say, with: { text: '${{ inputs.list }}' } }
  each:
    needs: list
    strategy: { matrix: '${{ fromJSON(needs.list.outputs.said) }}' }
    kind: say
    with: { text: 'one ${{ matrix.value }}' }
";
    for (list, state) in [("[1, 2, 3]", RunState::Succeeded), ("[]", RunState::Succeeded), ("{", RunState::Failed)] {
        seen.said.lock().clear();
        let run = runs.start(NewGraphRun::new(graph(text)).inputs(json!({ "list": list }))).await.unwrap();
        let status = ended(&runs, run).await;
        assert_eq!(status.run.state, state, "{list}: {:?}", status.progress.nodes[1]);
        let mut said = seen.said.lock().split_off(1);
        said.sort();
        let expected: &[&str] = if list.len() > 2 { &["one 1", "one 2", "one 3"] } else { &[] };
        assert_eq!(said, expected);
    }
    working.drain().await;
}

#[tokio::test]
async fn a_job_that_cannot_be_made_fails_its_node() {
    let (store, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let text = "
inputs:
  label: {}
jobs:
  odd: { kind: say, labels: ['${{ inputs.label }}'], with: { text: odd } }
  after: { needs: odd, kind: say, with: { text: after } }
";
    let run = runs.start(NewGraphRun::new(graph(text)).inputs(json!({ "label": "" }))).await.unwrap();
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Failed);
    let error = status.progress.nodes[0].instances[0].error.clone().unwrap();
    assert!(error.contains("could not be made"), "{error}");
    assert_eq!(outcomes(&status)[1].1, Outcome::Skipped);
}

#[tokio::test]
async fn a_wide_graph_is_started_in_several_steps() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let mut text = "jobs:\n".to_owned();
    for n in 0..1_200 {
        text.push_str(&format!("  n{n}: {{ kind: say, with: {{ text: x }} }}\n"));
    }
    let needs: Vec<String> = (0..1_200).map(|n| format!("n{n}")).collect();
    text.push_str(&format!("  end: {{ kind: say, needs: [{}], with: {{ text: end }} }}\n", needs.join(", ")));
    let run = runs.start(NewGraphRun::new(graph(&text))).await.unwrap();
    let status = runs.status(run).await.unwrap().unwrap();
    assert!(status.progress.nodes.iter().filter(|node| node.has_begun()).count() <= 500, "a step has a limit");
    let working = Running::start(worker(&store, &seen));
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Succeeded);
    assert_eq!(seen.said.lock().len(), 1_201, "every node ran once");
    working.drain().await;
}

#[tokio::test]
async fn an_engine_that_knows_nothing_goes_on_where_another_one_was() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen).without_runs());
    let run = runs.start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
    let told = async {
        while !runs.status(run).await.unwrap().unwrap().run.state.is_terminal() {
            // A new one for every step.
            Engine::new(Arc::clone(&store)).unwrap().settle().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, told).await.expect("it ends");
    assert_eq!(seen.said.lock().len(), 4);
    working.drain().await;
}

#[tokio::test]
async fn a_store_that_fails_and_forgets_to_answer_changes_no_result() {
    for seed in 0..5 {
        let (store, _) = memory();
        let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
        let stormy: Arc<dyn Store> = Arc::new(Faulty::new(Arc::clone(&store), FaultPlan::stormy(seed)));
        let working = Running::start(worker(&store, &seen).without_runs());
        let run = runs.start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let engine = Engine::new(stormy).unwrap().poll(Duration::from_millis(20)).lease(Duration::from_millis(300));
        let engine = engine.run(async { stopped.await.unwrap_or_default() });
        let wait = async {
            let status = ended(&runs, run).await;
            stop.send(()).unwrap();
            status
        };
        let (status, ()) = tokio::join!(wait, engine);
        assert_eq!(status.run.state, RunState::Succeeded, "seed {seed}");
        assert_eq!(seen.said.lock().len(), 4, "seed {seed}: every node ran once");
        working.drain().await;
    }
}

#[tokio::test]
async fn a_fork_is_given_other_inputs() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let working = Running::start(worker(&store, &seen));
    let run = runs.start(NewGraphRun::new(graph(DIAMOND)).inputs(json!({ "who": "Ada" }))).await.unwrap();
    ended(&runs, run).await;
    let inputs = json!({ "who": "Eve" }).as_object().unwrap().clone();
    let fork = runs.fork(run, inputs).await.unwrap();
    assert_ne!(fork, run);
    ended(&runs, fork).await;
    assert_eq!(seen.said.lock()[4], "hello Eve");
    working.drain().await;
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_an_engine_that_thinks_without_it() {
    let (store, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let run = runs.start(NewGraphRun::new(graph(DIAMOND))).await.unwrap();
    let claim = RunClaim {
        run: Some(run),
        lease_ms: 3_600_000,
        ..RunClaim::new("slow".try_into().unwrap(), vec!["graph".try_into().unwrap()])
    };
    let claimed = store.claim_runs(claim).await.unwrap().runs.remove(0);
    let cancelled = tokio::time::timeout(LONG, runs.cancel(run, "enough")).await.expect("it does not wait");
    assert_eq!(cancelled.unwrap(), RunState::Cancelled);
    let (lease, history_len, inbox_to) = (claimed.lease, claimed.history_len, claimed.inbox_to);
    let late = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, RunStep::nothing()) };
    assert_eq!(store.commit_runs(vec![late]).await.unwrap(), [Err(windlass::Error::LeaseLost)]);
}

/// Makes one step, and is gone.
struct DiesAfterOne(Arc<dyn Store>, AtomicU32);

#[async_trait::async_trait]
impl Wrap for DiesAfterOne {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> windlass::Result<Vec<windlass::Result<RunCommitted>>> {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            0 => self.0.commit_runs(commits).await,
            _ => Err(windlass::Error::corrupt("the engine is gone")),
        }
    }
}

#[tokio::test]
async fn an_engine_that_dies_between_two_steps_of_one_thought_forgets_nothing() {
    let (store, _) = memory();
    let (runs, seen) = (Runs::new(Arc::clone(&store)), Arc::new(Seen::default()));
    let mut text = "jobs:\n  a: { kind: say }\n  b: { kind: say }\n".to_owned();
    for n in 0..600 {
        text.push_str(&format!("  a{n}: {{ needs: a, kind: say }}\n  b{n}: {{ needs: b, kind: say }}\n"));
    }
    let run = runs.start(NewGraphRun::new(graph(&text))).await.unwrap();
    let first = Running::start(worker(&store, &seen).without_runs());
    while runs.status(run).await.unwrap().unwrap().run.inbox_len < 2 {
        tokio::task::yield_now().await;
    }
    first.drain().await;
    let dying: Arc<dyn Store> = Arc::new(Wrapped(DiesAfterOne(Arc::clone(&store), AtomicU32::new(0))));
    let mut dying = Engine::new(dying).unwrap().lease(Duration::from_millis(50));
    dying.settle().await.expect_err("it died half-way");
    assert!(runs.status(run).await.unwrap().unwrap().run.history_len > 3, "its first step was made");
    let working = Running::start(worker(&store, &seen));
    let status = ended(&runs, run).await;
    assert_eq!(status.run.state, RunState::Succeeded);
    assert_eq!(seen.said.lock().len(), 1_202, "every node ran once");
    working.drain().await;
}
