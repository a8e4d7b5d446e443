//! Runs of kinds that the library does not have: engines advance them as they advance graphs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod kinds;
#[path = "../support/mod.rs"]
mod support;

use bytes::Bytes;
use kinds::{Counter, Failing, LEASE, SLOW, Sleeper, Slow};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::faulty;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use windlass::core::id::{Ids, RunId};
use windlass::core::job::Due;
use windlass::core::memory::MemoryStore;
use windlass::core::name::Kind;
use windlass::core::random::StrongRandom;
use windlass::core::store::{NewRun, RunMessage, RunRead, RunState, RunStep, RunView, Store};
use windlass::core::time::{Clock, SystemClock, Timestamp};
use windlass::graph::GraphBuilder;
use windlass::runs::{Engine, NewGraphRun, Rerun, Runs};
use windlass::{Error, Job};
use windlass_conformance::faults::{Fault, Method};

#[derive(Debug, Serialize, Deserialize)]
struct Nothing {}

impl Job for Nothing {
    const KIND: &'static str = "nothing";
    type Output = ();
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
    let run = NewRun { name, definition, input: "the input".into(), step, ..NewRun::new(id, kind) };
    store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    id
}

async fn send(store: &Arc<dyn Store>, run: RunId, body: &str, interrupts: bool) {
    let message = RunMessage { interrupts, ..RunMessage::new(run, body) };
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
        let engine = engine.kind(Failing).unwrap();
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

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_code_of_a_kind_makes_its_run_stuck_and_the_others_go_on() {
    let store = memory();
    let engine = Running::start(&store, &Slow::default());
    let ways = ["decode", "begin", "replay", "panic", "later panic", "summarize", "later invalid", "nothing"];
    let mut bad = Vec::new();
    for way in ways {
        bad.push((way, start(&store, "failing", way).await));
    }
    pass(LEASE * 5).await;
    for (way, run) in bad {
        let run = view(&store, run).await.run;
        assert!(run.stuck.is_some() && run.state == RunState::Running, "{way}: {run:?}");
        assert_eq!(run.engine, None, "{way}: its lease is not held");
    }
    let good = start(&store, "failing", "").await;
    assert_eq!(ended(&store, good).await.run.state, RunState::Succeeded);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_decision_is_made_again_after_its_lease_and_does_not_stop_others() {
    let store = memory();
    for way in ["unavailable", "later unavailable"] {
        let (bad, good) = (start(&store, "failing", way).await, start(&store, "failing", "").await);
        let mut engine = Engine::new(Arc::clone(&store)).unwrap().lease(LEASE).kind(Failing).unwrap();
        let error = engine.settle().await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { reason } if reason == "by plan"), "{error}");
        assert_eq!(view(&store, good).await.run.state, RunState::Succeeded);
        let run = view(&store, bad).await.run;
        assert_eq!((run.state, run.stuck), (RunState::Running, None));
    }
}

#[tokio::test]
async fn a_summary_that_is_too_long_is_cut_off() {
    let store = memory();
    let run = start(&store, "failing", "long").await;
    Engine::new(Arc::clone(&store)).unwrap().kind(Failing).unwrap().settle().await.unwrap();
    let run = view(&store, run).await.run;
    assert_eq!((run.state, run.summary), (RunState::Succeeded, "é".repeat(2_048)));
}

#[tokio::test(start_paused = true)]
async fn items_that_a_decision_has_not_read_stay_in_the_inbox() {
    let store = memory();
    let engine = Running::start(&store, &Slow::default());
    let run = start(&store, "failing", "later unread").await;
    pass(LEASE).await;
    send(&store, run, "unread", false).await;
    pass(LEASE * 2).await;
    assert_eq!(view(&store, run).await.history, Vec::<Bytes>::new());
    pass(LEASE * 5).await;
    assert_eq!(view(&store, run).await.history, ["unread"]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn items_of_several_renewals_are_read_together_and_in_order() {
    let store = memory();
    let engine = Running::start(&store, &Slow::default());
    let run = start(&store, "failing", "later read").await;
    for message in ["first", "second"] {
        pass(LEASE / 2).await;
        send(&store, run, message, false).await;
    }
    assert_eq!(ended(&store, run).await.history, ["first", "second"]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_dropped_when_its_lease_has_ended_and_another_engine_decides() {
    let store = memory();
    let slow = Slow::default();
    let begun = Arc::clone(&slow.begun);
    // An engine that makes one claim and no renewal.
    let failing = faulty(&store, move |method| match method {
        Method::RenewRuns => Fault::Before,
        Method::ClaimRuns if begun.load(Ordering::SeqCst) > 0 => Fault::Before,
        _ => Fault::Pass,
    });
    let first = Running::start(&(failing as Arc<dyn Store>), &slow);
    let run = start(&store, "slow", "").await;
    pass(LEASE / 2).await;
    let second = Running::start(&store, &slow);
    assert_eq!(ended(&store, run).await.run.state, RunState::Succeeded);
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.made.load(Ordering::SeqCst)), (2, 1));
    first.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_ends_when_its_lease_cannot_be_renewed() {
    let store = memory();
    let failing = faulty(&store, |method| if method == Method::RenewRuns { Fault::Before } else { Fault::Pass });
    let slow = Slow::default();
    let engine = Running::start(&(failing as Arc<dyn Store>), &slow);
    start(&store, "slow", "").await;
    pass(LEASE * 20).await;
    // Each lease is lost before the decision is made, and the decision with it.
    assert_eq!(slow.made.load(Ordering::SeqCst), 0);
    assert!(slow.begun.load(Ordering::SeqCst) >= 10, "{slow:?}");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_holds_a_bounded_number_of_pending_decisions() {
    let store = memory();
    let slow = Slow::default();
    let engine = Running::start(&store, &slow);
    let mut runs = Vec::new();
    for _ in 0..1_200 {
        runs.push(start(&store, "slow", "").await);
    }
    pass(SLOW / 2).await;
    assert_eq!(slow.begun.load(Ordering::SeqCst), 1_024);
    for run in runs {
        ended(&store, run).await;
    }
    assert_eq!((slow.begun.load(Ordering::SeqCst), slow.made.load(Ordering::SeqCst)), (1_200, 1_200));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_released_run_keeps_its_next_wake_up() {
    let store = memory();
    let run = start(&store, "counter", "1").await;
    let mut engine = Engine::new(Arc::clone(&store)).unwrap().kind(Sleeper).unwrap();
    engine.settle().await.unwrap();
    let wake_at = view(&store, run).await.run.wake_at;
    assert!(wake_at.is_some());
    send(&store, run, "hello", false).await;
    engine.run(pass(LEASE / 2)).await;
    let released = view(&store, run).await.run;
    assert_eq!((released.wake_at, released.inbox_len, released.engine), (wake_at, 1, None));
}

#[tokio::test]
async fn what_is_for_graphs_is_refused_for_runs_of_other_kinds() {
    let store = memory();
    let run = start(&store, "counter", "1").await;
    let runs = Runs::new(Arc::clone(&store));
    let refused = [
        runs.cancel(run, "enough").await.map(drop),
        runs.resume(run).await,
        runs.status(run).await.map(drop),
        runs.rerun(run, Rerun::All).await.map(drop),
    ];
    for answer in refused {
        assert!(matches!(&answer, Err(Error::RunRefused { why, .. }) if why.contains("kind `counter`")), "{answer:?}");
    }
    assert_eq!(view(&store, run).await.run.inbox_len, 0);
}
