//! Runs of two kinds that the library does not have: engines advance them as they advance graphs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::faulty;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use windlass::core::id::{Ids, RunId};
use windlass::core::job::Due;
use windlass::core::memory::MemoryStore;
use windlass::core::name::Kind;
use windlass::core::random::StrongRandom;
use windlass::core::store::{NewRun, RunItem, RunMessage, RunRead, RunState, RunStep, RunView, Store};
use windlass::core::time::{Clock, SystemClock, Timestamp};
use windlass::graph::GraphBuilder;
use windlass::runs::{Engine, NewGraphRun, RunKind, Runs, Turn};
use windlass::{Error, Job, Result};
use windlass_conformance::faults::{Fault, Method};

#[derive(Debug, Serialize, Deserialize)]
struct Nothing {}

impl Job for Nothing {
    const KIND: &'static str = "nothing";
    type Output = ();
}

fn body(item: &RunItem) -> Option<Bytes> {
    match item {
        RunItem::Message { body, .. } => Some(Bytes::from(body.clone())),
        RunItem::JobEnded(_) => None,
    }
}

/// A run that ends when it has received as many messages as its definition says.
struct Counter;

struct Counted {
    wanted: usize,
    received: Vec<Bytes>,
}

impl RunKind for Counter {
    type Definition = usize;
    type State = Counted;

    fn kind(&self) -> Result<Kind> {
        Kind::new("counter")
    }

    fn decode(&self, definition: &[u8]) -> Result<usize> {
        let text = std::str::from_utf8(definition).unwrap_or_default();
        text.parse().map_err(|error| Error::corrupt(format!("its definition `{text}`: {error}")))
    }

    fn begin(&self, _: RunId, wanted: &Arc<usize>, input: &[u8]) -> Result<Counted> {
        Ok(Counted { wanted: **wanted, received: vec![Bytes::copy_from_slice(input)] })
    }

    fn replay(&self, state: &mut Counted, entries: &[Bytes]) -> Result<()> {
        state.received.extend_from_slice(entries);
        Ok(())
    }

    async fn decide(&self, state: &mut Counted, turn: &mut Turn) -> Result<Vec<RunStep>> {
        let new: Vec<Bytes> = turn.claimed().inbox.iter().filter_map(body).collect();
        if new.iter().any(|body| body == "nonsense") {
            return Err(Error::invalid("message", "makes no sense"));
        }
        state.received.extend_from_slice(&new);
        let is_done = state.received.len() > state.wanted;
        let run_state = if is_done { RunState::Succeeded } else { RunState::Running };
        // An entry per step: the engine keeps the lease in between.
        let mut steps: Vec<RunStep> =
            new.into_iter().map(|entry| RunStep { history: vec![entry], ..RunStep::nothing() }).collect();
        steps.push(RunStep { state: run_state, ..RunStep::nothing() });
        Ok(steps)
    }

    fn summarize(&self, state: &Counted) -> String {
        format!("{} of {} messages after {:?}", state.received.len() - 1, state.wanted, state.received[0])
    }
}

const SLOW: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(1);

/// A run whose decisions take three seconds, and that notes the messages that arrive meanwhile. With the definition `go on` it
/// does not end with its first decision.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
}

impl RunKind for Slow {
    type Definition = RunState;
    type State = RunState;

    fn kind(&self) -> Result<Kind> {
        Kind::new("slow")
    }

    fn decode(&self, definition: &[u8]) -> Result<RunState> {
        Ok(if definition == b"go on" { RunState::Running } else { RunState::Succeeded })
    }

    fn begin(&self, _: RunId, after: &Arc<RunState>, _: &[u8]) -> Result<RunState> {
        Ok(**after)
    }

    fn replay(&self, _: &mut RunState, _: &[Bytes]) -> Result<()> {
        Ok(())
    }

    async fn decide(&self, after: &mut RunState, turn: &mut Turn) -> Result<Vec<RunStep>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut entries: Vec<Bytes> = turn.claimed().inbox.iter().filter_map(body).collect();
        let mut time = std::pin::pin!(pass(SLOW));
        loop {
            tokio::select! {
                () = &mut time => break,
                items = turn.arrivals() => entries.extend(items.iter().filter_map(body)),
            }
        }
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(vec![RunStep { history: entries, state: *after, ..RunStep::nothing() }])
    }

    fn summarize(&self, _: &RunState) -> String {
        "decided".to_owned()
    }
}

/// The clock of the store: the paused clock of the runtime, which jumps when every task waits for time.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(1_000_000_000_000).plus_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

#[expect(clippy::disallowed_methods, reason = "tokio's clock, which is paused")]
fn now() -> Instant {
    Instant::now()
}

/// Lets time pass on the paused clock of the runtime.
async fn pass(time: Duration) {
    // sleeps because: the clock is paused, so this takes no time.
    sleep(time).await;
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with(Arc::new(RuntimeClock(now())), Arc::new(StrongRandom::seeded(1))))
}

async fn start(store: &Arc<dyn Store>, kind: &str, definition: &str) -> RunId {
    let id = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system())).next_run();
    let step = RunStep { wake: Some(Due::Now), summary: "new".to_owned(), ..RunStep::nothing() };
    let (kind, name, definition) = (Kind::new(kind).unwrap(), kind.to_owned(), Bytes::from(definition.to_owned()));
    let run = NewRun { id, kind, name, definition, input: "the input".into(), keep_ms: None, step };
    store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    id
}

async fn send(store: &Arc<dyn Store>, run: RunId, body: &str, interrupts: bool) {
    let message = RunMessage { run, body: body.to_owned(), interrupts, reopens: false, ended_with: None };
    store.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
}

async fn view(store: &Arc<dyn Store>, run: RunId) -> RunView {
    let read = RunRead { history_max: 100, ..RunRead::brief(run) };
    store.read_runs(vec![read]).await.unwrap().remove(0).unwrap()
}

/// An engine in a task, and what stops it.
struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "the test's own task")]
    fn start(store: &Arc<dyn Store>, slow: &Slow) -> Self {
        let engine = Engine::new(Arc::clone(store)).unwrap().lease(LEASE).kind(slow.clone()).unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { stopped.await.unwrap_or_default() };
        Self { stop, task: tokio::spawn(engine.run(stopped)) }
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

async fn ended(store: &Arc<dyn Store>, run: RunId) -> RunView {
    let began = now();
    loop {
        assert!(began.elapsed() < SLOW * 20, "the run has not ended");
        let view = view(store, run).await;
        if view.run.state.is_terminal() {
            return view;
        }
        pass(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_counter_ends_with_its_last_message_whichever_engine_decides() {
    let store = memory();
    let run = start(&store, "counter", "3").await;
    let engine = || Engine::new(Arc::clone(&store)).unwrap().kind(Counter).unwrap();
    let mut warm = engine();
    warm.settle().await.unwrap();
    assert_eq!(view(&store, run).await.run.summary, "0 of 3 messages after b\"the input\"");
    for (nth, message) in ["one", "two", "three"].into_iter().enumerate() {
        assert_eq!(view(&store, run).await.run.state, RunState::Running);
        send(&store, run, message, false).await;
        // One that has the state in memory, and one that replays the history.
        if nth == 1 {
            engine().settle().await.unwrap()
        } else {
            warm.settle().await.unwrap()
        };
    }
    let view = view(&store, run).await;
    assert_eq!((view.run.state, view.run.inbox_len), (RunState::Succeeded, 0));
    assert_eq!(view.run.summary, "3 of 3 messages after b\"the input\"");
    assert_eq!(view.history, ["one", "two", "three"]);
}

#[tokio::test]
async fn runs_of_other_kinds_are_left_alone() {
    let store = memory();
    let (counter, unreadable) = (start(&store, "counter", "0").await, start(&store, "counter", "many").await);
    Engine::new(Arc::clone(&store)).unwrap().settle().await.unwrap();
    assert_eq!(view(&store, counter).await.run.state, RunState::Running);
    assert_eq!(view(&store, unreadable).await.run.stuck, None);
    Engine::new(Arc::clone(&store)).unwrap().kind(Counter).unwrap().settle().await.unwrap();
    assert_eq!(view(&store, counter).await.run.state, RunState::Succeeded);
    let stuck = view(&store, unreadable).await.run.stuck.unwrap();
    assert!(stuck.contains("its definition `many`"), "{stuck}");
}

#[tokio::test]
async fn a_run_whose_decision_fails_is_stuck_and_keeps_its_inbox() {
    let store = memory();
    let run = start(&store, "counter", "1").await;
    send(&store, run, "nonsense", false).await;
    Engine::new(Arc::clone(&store)).unwrap().kind(Counter).unwrap().settle().await.unwrap();
    let run = view(&store, run).await.run;
    assert!(run.stuck.as_ref().is_some_and(|why| why.contains("makes no sense")), "{run:?}");
    assert_eq!((run.state, run.inbox_len), (RunState::Running, 1));
}

#[tokio::test(start_paused = true)]
async fn a_long_decision_keeps_its_lease_and_receives_what_arrives_meanwhile() {
    let store = memory();
    let counted = faulty(&store, |_| Fault::Pass);
    let (slow, shared) = (Slow::default(), Arc::clone(&counted) as Arc<dyn Store>);
    // Two engines: the second one would claim the run as soon as its lease has ended.
    let engines = [Running::start(&shared, &slow), Running::start(&shared, &slow)];
    let began = now();
    let run = start(&store, "slow", "").await;
    pass(SLOW / 2).await;
    send(&store, run, "meanwhile", false).await;
    let view = ended(&store, run).await;
    assert_eq!(view.history, ["meanwhile"]);
    assert_eq!((view.run.state, view.run.inbox_len, view.run.summary), (RunState::Succeeded, 0, "decided".to_owned()));
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.made.load(Ordering::SeqCst)), (1, 1));
    assert!(began.elapsed() >= SLOW && began.elapsed() < SLOW * 2, "{:?}", began.elapsed());
    let renewals = counted.calls().get(&Method::RenewRuns).copied().unwrap_or(0);
    assert!((3..20).contains(&renewals), "{renewals} renewals");
    for engine in engines {
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_arrived_during_a_decision_is_handled_by_its_commit() {
    let store = memory();
    let slow = Slow::default();
    let engine = Running::start(&store, &slow);
    let run = start(&store, "slow", "go on").await;
    pass(SLOW / 2).await;
    send(&store, run, "meanwhile", false).await;
    pass(SLOW * 3).await;
    let first = view(&store, run).await;
    assert_eq!((first.history.as_slice(), first.run.inbox_len), ([Bytes::from("meanwhile")].as_slice(), 0));
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.made.load(Ordering::SeqCst)), (1, 1));
    send(&store, run, "later", false).await;
    pass(SLOW * 3).await;
    assert_eq!(view(&store, run).await.history, ["meanwhile", "later"]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn other_runs_go_on_while_a_decision_is_made() {
    let store = memory();
    let slow = Slow::default();
    let engine = Running::start(&store, &slow);
    let began = now();
    let run = start(&store, "slow", "").await;
    while slow.begun.load(Ordering::SeqCst) == 0 {
        pass(Duration::from_millis(1)).await;
    }
    let runs = Runs::new(Arc::clone(&store));
    let mut graph = GraphBuilder::new("one");
    graph.job("only", &Nothing {});
    let graph = runs.start(NewGraphRun::new(graph.finish().unwrap())).await.unwrap();
    runs.cancel(graph, "enough").await.unwrap();
    ended(&store, graph).await;
    assert!(began.elapsed() < SLOW, "{:?}", began.elapsed());
    assert_eq!(view(&store, run).await.run.state, RunState::Running);
    assert_eq!(ended(&store, run).await.run.state, RunState::Succeeded);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_releases_the_run_of_a_decision_that_is_not_made() {
    let store = memory();
    let slow = Slow::default();
    let first = Running::start(&store, &slow);
    let run = start(&store, "slow", "").await;
    pass(SLOW / 2).await;
    first.stop().await;
    let stopped = now();
    assert_eq!(view(&store, run).await.run.summary, "new");
    let second = Running::start(&store, &slow);
    ended(&store, run).await;
    assert!(stopped.elapsed() < SLOW + LEASE / 3, "{:?}", stopped.elapsed());
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.made.load(Ordering::SeqCst)), (2, 1));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_whose_lease_is_taken_away_is_made_again_with_the_message_that_took_it() {
    let store = memory();
    let slow = Slow::default();
    let engine = Running::start(&store, &slow);
    let run = start(&store, "slow", "").await;
    pass(SLOW / 2).await;
    send(&store, run, "stop", true).await;
    let view = ended(&store, run).await;
    assert_eq!(view.history, ["stop"]);
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.made.load(Ordering::SeqCst)), (2, 1));
    engine.stop().await;
}
