//! Flows: a parent after its children, on any queue, as deep as it goes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{LONG, Running, memory, state};
use windlass::core::graph::Outcome;
use windlass::core::id::RunId;
use windlass::core::job::State as JobState;
use windlass::core::store::{RunState, Store};
use windlass::runs::{Engine, Flow, OnFailure, RunStatus, Runs};
use windlass::{Client, Ctx, Job, JobError, Options, State, Worker, WorkerBuilder};

/// A job that says its text, and what its children said.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    text: String,
    queue: String,
    fails: bool,
}

impl Job for Part {
    const KIND: &'static str = "part.of";
    type Output = usize;

    fn options(&self) -> Options {
        Options::new().queue(&self.queue).attempts(1)
    }
}

fn part(text: &str) -> Part {
    Part { text: text.to_owned(), queue: "default".to_owned(), fails: false }
}

fn flow(text: &str) -> Flow {
    Flow::new(&part(text)).name(text)
}

fn failing(text: &str) -> Flow {
    Flow::new(&Part { fails: true, ..part(text) }).name(text)
}

fn on(queue: &str, text: &str) -> Flow {
    Flow::new(&Part { queue: queue.to_owned(), ..part(text) }).name(text)
}

#[derive(Debug, Default)]
struct Seen {
    said: parking_lot::Mutex<Vec<String>>,
    healed: AtomicBool,
}

async fn work(job: Part, ctx: Ctx, State(seen): State<Arc<Seen>>) -> Result<usize, JobError> {
    let needs = ctx.needs().await?;
    let words: Vec<String> = (needs.iter())
        .map(|(name, end)| {
            let why = end.errors.first().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{name} {}{why}", end.outputs.get("said").map_or(end.outcome.name(), String::as_str))
        })
        .collect();
    seen.said.lock().push(if words.is_empty() {
        job.text.clone()
    } else {
        format!("{}: {}", job.text, words.join(", "))
    });
    if job.fails && !seen.healed.load(Ordering::Relaxed) {
        return Err(JobError::fatal(format!("no {}", job.text)));
    }
    ctx.output("said", format!("says {}", job.text));
    Ok(words.len())
}

struct Bed {
    store: Arc<dyn Store>,
    client: Client,
    runs: Runs,
    seen: Arc<Seen>,
}

impl Bed {
    fn new() -> Self {
        let (store, client) = memory();
        Self { runs: Runs::new(Arc::clone(&store)), store, client, seen: Arc::default() }
    }

    fn worker(&self) -> WorkerBuilder {
        Worker::builder(Arc::clone(&self.store)).state(Arc::clone(&self.seen)).slots(4).handle(work)
    }

    async fn ended(&self, run: RunId) -> RunStatus {
        self.runs.wait(run, LONG).await.unwrap().expect("the run ends")
    }

    /// Runs a flow to its end: how the run ended, how each job did, and what was said.
    async fn run(flow: Flow) -> (RunState, BTreeMap<String, Outcome>, Vec<String>) {
        let bed = Self::new();
        let working = Running::start(bed.worker());
        let run = bed.runs.start_flow(flow).await.unwrap();
        let status = bed.ended(run).await;
        working.drain().await;
        let outcomes = (status.graph.nodes.iter().zip(&status.progress.nodes))
            .map(|(node, progress)| (node.id.clone(), progress.outcome.expect("it has ended")))
            .collect();
        let said = bed.seen.said.lock().clone();
        (status.run.state, outcomes, said)
    }
}

#[tokio::test]
async fn each_parent_comes_after_its_children_on_whatever_queue() {
    let bed = Bed::new();
    let low = Running::start(bed.worker().queue("low"));
    let high = Running::start(bed.worker().queue("high").queue("default"));
    let flow = on("high", "top")
        .child(on("low", "left").child(on("high", "left-1")).child(flow("left-2")))
        .child(on("low", "right").child(flow("right-1")));
    let run = bed.runs.start_flow(flow).await.unwrap();
    let status = bed.ended(run).await;
    assert_eq!((status.run.state, status.run.name.as_str()), (RunState::Succeeded, "part.of"));
    let said = bed.seen.said.lock().clone();
    assert_eq!(said.len(), 6, "each once: {said:?}");
    assert_eq!(said[5], "top: left says left, right says right");
    for line in ["left: left-1 says left-1, left-2 says left-2", "right: right-1 says right-1"] {
        assert!(said.iter().any(|said| said == line), "{line} in {said:?}");
    }
    let needs = status.progress.nodes.last().unwrap();
    let returned: windlass::Waited<usize> = bed.client.wait(needs.instances[0].job.unwrap(), LONG).await.unwrap();
    assert_eq!(returned, windlass::Waited::Succeeded(2), "a job of a flow returns like any other");
    low.drain().await;
    high.drain().await;
}

#[tokio::test]
async fn a_failed_child_means_what_was_said_of_it() {
    use Outcome::{Failed, Skipped, Succeeded};
    for (policy, run_state, parent, last) in [
        (OnFailure::Fail, RunState::Failed, Skipped, None),
        (OnFailure::Ignore, RunState::Succeeded, Succeeded, Some("parent: bad failed (no bad), good says good")),
        (OnFailure::Continue, RunState::Failed, Succeeded, Some("parent: bad failed (no bad), good says good")),
    ] {
        let (state, outcomes, mut said) =
            Bed::run(flow("parent").child(failing("bad").on_failure(policy)).child(flow("good"))).await;
        assert_eq!(state, run_state, "{policy:?}");
        let expected = [("bad", Failed), ("good", Succeeded), ("parent", parent)];
        assert!(expected.iter().all(|(name, outcome)| outcomes[*name] == *outcome), "{policy:?}: {outcomes:?}");
        said.retain(|line| line.starts_with("parent"));
        assert_eq!(said, Vec::from_iter(last), "{policy:?}");
    }
}

#[tokio::test]
async fn what_fails_below_an_ignored_child_is_ignored_with_it() {
    let (state, outcomes, said) = Bed::run(
        flow("top").child(flow("middle").on_failure(OnFailure::Ignore).child(failing("low").child(flow("lowest")))),
    )
    .await;
    assert_eq!(state, RunState::Succeeded, "{outcomes:?}");
    assert_eq!((outcomes["low"], outcomes["middle"]), (Outcome::Failed, Outcome::Skipped));
    assert_eq!(said.last().unwrap(), "top: middle skipped");
    // One ignored inside of another, and beside it one that counts.
    let ignored = |name| flow(name).on_failure(OnFailure::Ignore);
    let nested = ignored("a").child(ignored("b").child(failing("c")));
    let (state, outcomes, _) = Bed::run(flow("top").child(nested.clone())).await;
    assert_eq!((state, outcomes["a"]), (RunState::Succeeded, Outcome::Succeeded), "{outcomes:?}");
    let counts = failing("d").on_failure(OnFailure::Continue);
    let (state, outcomes, _) = Bed::run(flow("top").child(nested).child(counts)).await;
    assert_eq!((state, outcomes["top"]), (RunState::Failed, Outcome::Succeeded), "{outcomes:?}");
}

#[tokio::test]
async fn children_that_ended_before_anybody_looked_do_not_strand_their_parent() {
    let bed = Bed::new();
    let working = Running::start(bed.worker().without_runs());
    let run = bed.runs.start_flow(flow("parent").child(flow("one")).child(flow("two"))).await.unwrap();
    let status = bed.runs.status(run).await.unwrap().unwrap();
    for node in &status.progress.nodes[..2] {
        let job = node.instances[0].job.unwrap();
        bed.client.wait::<usize>(job, LONG).await.unwrap();
    }
    assert!(!bed.seen.said.lock().iter().any(|said| said.starts_with("parent")), "nobody has looked");
    // One that begins now, and knows of nothing.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let engine = Engine::new(Arc::clone(&bed.store)).unwrap().run(async { stopped.await.unwrap_or_default() });
    let wait = async {
        let status = bed.ended(run).await;
        stop.send(()).unwrap();
        status
    };
    let (status, ()) = tokio::join!(wait, engine);
    assert_eq!(status.run.state, RunState::Succeeded);
    assert_eq!(bed.seen.said.lock()[2..], ["parent: one says one, two says two"]);
    working.drain().await;
}

#[tokio::test]
async fn a_child_that_ends_once_more_does_not_revive_its_parent() {
    let bed = Bed::new();
    let working = Running::start(bed.worker());
    let child = failing("child").on_failure(OnFailure::Continue);
    let run = bed.runs.start_flow(flow("parent").child(child)).await.unwrap();
    let status = bed.ended(run).await;
    let (child, parent) = (&status.progress.nodes[0], &status.progress.nodes[1]);
    let (child, parent) = (child.instances[0].job.unwrap(), parent.instances[0].job.unwrap());
    bed.seen.healed.store(true, Ordering::Relaxed);
    bed.client.retry(child).await.unwrap();
    assert!(bed.client.wait::<usize>(child, LONG).await.unwrap().success().is_some());
    // Whatever the run was told, it has been told now.
    Engine::new(Arc::clone(&bed.store)).unwrap().settle().await.unwrap();
    let again = bed.runs.status(run).await.unwrap().unwrap();
    assert_eq!((again.run.state, again.run.history_len), (RunState::Failed, status.run.history_len));
    assert_eq!(state(&bed.store, parent).await, JobState::Succeeded);
    assert_eq!(bed.seen.said.lock().iter().filter(|said| said.starts_with("parent")).count(), 1);
    working.drain().await;
}

#[tokio::test]
async fn names_are_made_where_nobody_says_one() {
    let plain = || Flow::new(&part("x"));
    let run = plain().child(plain()).child(plain().name("part_of-2")).child(plain()).into_run().unwrap();
    let names: Vec<&str> = run.graph.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!(names, ["part_of", "part_of-2", "part_of-3", "part_of-4"]);
    let twice = flow("a").child(flow("a")).into_run().unwrap_err();
    assert!(twice.to_string().contains("two jobs are called `a`"), "{twice}");
    let bad = Flow::new(&Part { queue: "a\nb".to_owned(), ..part("x") }).into_run().unwrap_err();
    assert!(bad.to_string().contains("job `part.of`: "), "{bad}");
    let bed = Bed::new();
    let same = plain().into_run().unwrap().id(RunId::named("once"));
    assert_eq!(bed.runs.start(same.clone()).await.unwrap(), bed.runs.start(same).await.unwrap());
}

#[tokio::test]
async fn a_flow_may_be_deep_and_wide() {
    // As deep as a graph may be large.
    let deep = (0..2_000).fold(flow("n"), |below, n| Flow::new(&part("x")).name(format!("n{n}")).child(below));
    let graph = deep.into_run().unwrap().graph;
    assert_eq!((graph.nodes.len(), graph.nodes[2_000].needs[0].node), (2_001, 1_999));
    graph.check().unwrap();
    let (state, outcomes, said) = Bed::run(flow("top").children((0..50).map(|n| flow(&format!("n{n}"))))).await;
    assert_eq!((state, outcomes.len(), said.len()), (RunState::Succeeded, 51, 51));
    let too_wide = flow("top").children((0..10_000).map(|n| flow(&format!("n{n}"))));
    assert!(too_wide.into_run().unwrap_err().to_string().contains("10001 jobs"));
}

#[tokio::test]
async fn a_job_of_no_run_has_waited_for_nothing() {
    let bed = Bed::new();
    let working = Running::start(bed.worker());
    let ticket = bed.client.enqueue(part("alone")).await.unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap().success(), Some(0));
    working.drain().await;
}
