//! What keeps a code run right when something unusual has happened to it, on the virtual clock.

use super::{Charge, support};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::core::id::RunId;
use windlass::core::name::{Kind, WorkerId};
use windlass::core::store::{
    RUN_PART_BYTES_MAX, Run, RunClaim, RunCommit, RunMessage, RunRead, RunState, RunStep, Store, Wrap, Wrapped,
};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{AnyWorkflow, Error, RunHandle, Signal, Wf, select, typed, workflow};
use windlass::runs::Engine;
use windlass::testing::TestBed;
use windlass::{Client, Worker};

const LEASE_MS: u64 = 10_000;
const LEASE: Duration = Duration::from_millis(LEASE_MS);

fn engine(store: Arc<dyn Store>, workflow: Arc<dyn AnyWorkflow>) -> Engine {
    Engine::new(store).unwrap().lease(LEASE).workflows(vec![workflow], Some("test".to_owned())).unwrap()
}

async fn view(store: &dyn Store, run: RunId) -> Run {
    store.read_runs(vec![RunRead::brief(run)]).await.unwrap().remove(0).unwrap().run
}

/// Claims the run as an engine does that ends before it commits anything.
pub(super) async fn claim_and_vanish(test: &TestBed, kind: &str) {
    let claim = RunClaim {
        max: 1,
        lease_ms: LEASE_MS,
        ..RunClaim::new(WorkerId::new("vanished").unwrap(), vec![Kind::new(kind).unwrap()])
    };
    assert_eq!(test.store().claim_runs(claim).await.unwrap().runs.len(), 1);
    test.advance(LEASE + Duration::from_secs(1)).await;
}

static CALLS_OF_FATAL: AtomicU32 = AtomicU32::new(0);

#[workflow]
async fn fatal(_wf: Wf, _: ()) -> Result<(), Error> {
    CALLS_OF_FATAL.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test]
async fn a_run_that_has_ended_three_processes_is_stuck_and_tried_again_in_an_hour() {
    let test = TestBed::new();
    let run = test.client().start(fatal, ()).await.unwrap();
    for _ in 0..3 {
        claim_and_vanish(&test, "fatal@1").await;
    }
    let mut engine = engine(test.store(), typed(fatal));
    engine.settle().await.unwrap();
    let stuck = view(&*test.store(), run.id()).await.stuck.expect("the run is stuck");
    assert!(stuck.starts_with("3 processes in a row ended"), "{stuck}");
    assert_eq!(CALLS_OF_FATAL.load(Ordering::SeqCst), 0, "its code is not called");
    test.advance(Duration::from_secs(59 * 60)).await;
    assert_eq!(engine.settle().await.unwrap(), 0);
    test.advance(Duration::from_secs(2 * 60)).await;
    engine.settle().await.unwrap();
    assert_eq!(view(&*test.store(), run.id()).await.state, RunState::Succeeded);
}

#[derive(Serialize, Deserialize, Signal)]
struct Stop {}

#[derive(Serialize, Deserialize, Signal)]
struct Noise {}

#[workflow]
async fn stopped_or_late(wf: Wf, time: String) -> Result<String, Error> {
    let end = select! {
        stop = wf.recv::<Stop>() => { stop?; "stopped" },
        late = wf.sleep(time.as_str()) => { late?; "late" },
    };
    // An end would be refused while messages are unread, and the turn made anew.
    wf.sleep("1s").await?;
    Ok(end.to_owned())
}

async fn result(run: &RunHandle<stopped_or_late>) -> String {
    run.result(HANG_GUARD).await.unwrap().expect("the run has ended").unwrap()
}

/// A claim hands out a thousand items, so that an engine sees the message after the timer is due.
#[tokio::test]
async fn a_message_behind_a_thousand_others_comes_before_a_later_timer() {
    let test = TestBed::new();
    let mut engine = engine(test.store(), typed(stopped_or_late));
    let run = test.client().start(stopped_or_late, "10s".to_owned()).await.unwrap();
    engine.settle().await.unwrap();
    for _ in 0..1_100 {
        run.signal(Noise {}).await.unwrap();
    }
    run.signal(Stop {}).await.unwrap();
    test.advance(Duration::from_secs(20)).await;
    engine.settle().await.unwrap();
    test.advance(Duration::from_secs(2)).await;
    engine.settle().await.unwrap();
    assert_eq!(result(&run).await, "stopped");
}

#[tokio::test]
async fn a_message_that_comes_after_a_timer_is_due_does_not_come_before_it() {
    let test = TestBed::new();
    let mut engine = engine(test.store(), typed(stopped_or_late));
    let run = test.client().start(stopped_or_late, "10s".to_owned()).await.unwrap();
    engine.settle().await.unwrap();
    test.advance(Duration::from_secs(20)).await;
    run.signal(Stop {}).await.unwrap();
    engine.settle().await.unwrap();
    test.advance(Duration::from_secs(2)).await;
    engine.settle().await.unwrap();
    assert_eq!(result(&run).await, "late");
}

#[workflow]
async fn pays(wf: Wf, _: ()) -> Result<String, Error> {
    Ok(match wf.call(Charge { order: 1 }).schedule_to_close("30s").await {
        Ok(cents) => format!("paid {cents}"),
        Err(error) => error.message,
    })
}

/// A message arrives while the end of a run is committed.
struct SendsBeforeCommit(Arc<dyn Store>, RunId);

#[async_trait::async_trait]
impl Wrap for SendsBeforeCommit {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn commit_runs(
        &self,
        commits: Vec<RunCommit>,
    ) -> windlass::Result<Vec<windlass::Result<windlass::core::store::RunCommitted>>> {
        if commits.iter().any(|commit| commit.requires_read_messages) {
            let signal = RunMessage::new(self.1, r#"{"say":"signal","name":"noise","body":null}"#);
            self.0.send_to_runs(vec![signal]).await?.remove(0)?;
        }
        self.0.commit_runs(commits).await
    }
}

/// The turn is made again with the message in front of the end of the job, which is older.
#[tokio::test]
async fn a_message_that_refuses_an_end_does_not_make_a_call_late_that_ended_in_time() {
    let test = TestBed::new();
    let run = test.client().start(pays, ()).await.unwrap();
    engine(test.store(), typed(pays)).settle().await.unwrap();
    let worker = Worker::builder(test.store()).queue("shop").handle(super::charge).without_runs();
    let worker = support::Running::start(worker);
    super::stores::until("the job has ended", || async {
        let view = view(&*test.store(), run.id()).await;
        (view.inbox_len > 0).then_some(())
    })
    .await;
    worker.drain().await;
    test.advance(Duration::from_secs(600)).await;
    let store = Arc::new(Wrapped(SendsBeforeCommit(test.store(), run.id())));
    engine(store, typed(pays)).settle().await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok("paid 10".to_owned()));
    assert!(view(&*test.store(), run.id()).await.history_len >= 5, "the message is in the history");
}

#[workflow]
async fn stopped_or_late_with_step(wf: Wf, _: ()) -> Result<String, Error> {
    let end = select! {
        never = wf.run_ok("never", std::future::pending::<()>) => { never?; "never" },
        stop = wf.recv::<Stop>() => { stop?; "stopped" },
        late = wf.sleep("9500ms") => { late?; "late" },
    };
    wf.sleep("1s").await?;
    Ok(end.to_owned())
}

/// While a step is open, messages come with the renewals of the lease, once in a second.
#[tokio::test]
async fn a_message_during_a_step_comes_before_a_later_timer() {
    let test = TestBed::new();
    let workflows = Worker::builder(test.store()).without_maintenance().workflow(stopped_or_late_with_step);
    let running = support::Running::start(workflows);
    let run = test.client().start(stopped_or_late_with_step, ()).await.unwrap();
    // sleeps because: the message has to come after the ninth renewal and before the timer; the clock is virtual.
    tokio::time::sleep(Duration::from_millis(9_300)).await;
    run.signal(Stop {}).await.unwrap();
    let end = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!(end, "stopped");
    running.drain().await;
}

#[tokio::test]
async fn a_message_that_is_not_understood_makes_the_run_stuck_and_stays() {
    let test = TestBed::new();
    let mut engine = engine(test.store(), typed(stopped_or_late));
    let run = test.client().start(stopped_or_late, "1d".to_owned()).await.unwrap();
    engine.settle().await.unwrap();
    for body in ["{\"say\":\"dance\"}", "not JSON", "{\"s\\u0061y\":\"sig\\u006eal\",\"name\":\"stop\",\"body\":{}}"] {
        test.store().send_to_runs(vec![RunMessage::new(run.id(), body)]).await.unwrap().remove(0).unwrap();
    }
    engine.settle().await.unwrap();
    let seen = view(&*test.store(), run.id()).await;
    let stuck = seen.stuck.expect("the run is stuck");
    assert!(stuck.contains("message 0 is not understood: an unknown message `dance`"), "{stuck}");
    assert_eq!(seen.unread_messages, 3);
    let wake = seen.wake_at.expect("it is tried again").ms_since(test.now());
    assert!((59_000..=60_000).contains(&wake), "{wake}");
}

/// Escapes are allowed in JSON.
#[tokio::test]
async fn a_message_with_escapes_is_understood() {
    let test = TestBed::new();
    let mut engine = engine(test.store(), typed(stopped_or_late));
    let run = test.client().start(stopped_or_late, "1d".to_owned()).await.unwrap();
    let body = "{\"s\\u0061y\":\"sig\\u006eal\",\"name\":\"\\u0053top\",\"body\":{}}".replace("\\u0053top", Stop::NAME);
    test.store().send_to_runs(vec![RunMessage::new(run.id(), body)]).await.unwrap().remove(0).unwrap();
    engine.settle().await.unwrap();
    test.advance(Duration::from_secs(2)).await;
    engine.settle().await.unwrap();
    assert_eq!(result(&run).await, "stopped");
}

#[tokio::test]
async fn a_record_of_another_version_makes_the_run_stuck_and_the_run_is_tried_again() {
    let test = TestBed::new();
    let store = test.store();
    let run = test.client().start(stopped_or_late, "1d".to_owned()).await.unwrap();
    let kinds = vec![Kind::new("stopped_or_late@1").unwrap()];
    let claim = RunClaim { max: 1, lease_ms: 10_000, ..RunClaim::new(WorkerId::new("newer").unwrap(), kinds) };
    let held = store.claim_runs(claim).await.unwrap().runs.remove(0);
    let step = RunStep { history: vec!["{\"v\":99}".into()], ..RunStep::nothing() };
    let commit = RunCommit::new(held.lease, 0, RunStep { wake: Some(windlass::core::job::Due::Now), ..step });
    store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
    let mut engine = engine(test.store(), typed(stopped_or_late));
    engine.settle().await.unwrap();
    let mut seen = view(&*store, run.id()).await;
    for pause in [60_000, 120_000, 240_000] {
        let stuck = seen.stuck.expect("the run is stuck");
        assert!(stuck.contains("its history"), "{stuck}");
        let wake = seen.wake_at.expect("it is tried again").ms_since(test.now());
        assert!((pause - 1_000..=pause).contains(&wake), "{wake} instead of {pause}");
        test.advance(Duration::from_millis(pause)).await;
        engine.settle().await.unwrap();
        seen = view(&*store, run.id()).await;
    }
}

#[workflow]
async fn many_records(wf: Wf, sleeps: u32) -> Result<u32, Error> {
    if sleeps == 0 {
        wf.recv::<Stop>().await?;
        return Ok(1);
    }
    for _ in 0..sleeps {
        wf.sleep("0s").await?;
    }
    wf.continue_as_new(many_records, 0).await
}

/// One commit has 10,000 entries at most.
#[tokio::test]
async fn a_segment_ends_in_the_turn_of_its_20_000_records() {
    let test = TestBed::new();
    let mut engine = engine(test.store(), typed(many_records));
    let run = test.client().start(many_records, 10_100).await.unwrap();
    run.signal(Stop {}).await.unwrap();
    engine.settle().await.unwrap();
    assert_eq!(
        run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap(),
        1,
        "the signal is in the second segment"
    );
    let seen = view(&*test.store(), run.id()).await;
    assert!(seen.segment_from > 20_000, "{}", seen.segment_from);
}

#[workflow]
async fn fails_at_length(_wf: Wf, _: ()) -> Result<(), Error> {
    Err("x".repeat(6 << 20).into())
}

#[tokio::test]
async fn an_error_of_6_mib_is_cut_off() {
    let test = TestBed::new();
    let mut engine = engine(test.store(), typed(fails_at_length));
    let run = test.client().start(fails_at_length, ()).await.unwrap();
    engine.settle().await.unwrap();
    let failure = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap_err();
    assert!(failure.message.starts_with("xxx") && failure.message.len() <= 4_096);
}

#[derive(Serialize, Deserialize, Signal)]
struct Large(String);

#[workflow]
async fn receives_large(wf: Wf, _: ()) -> Result<usize, Error> {
    Ok(wf.recv::<Large>().await?.0.len())
}

async fn largest_signal(store: Arc<dyn Store>) {
    let mut engine = engine(Arc::clone(&store), typed(receives_large));
    let client = Client::new(store);
    let run = client.start(receives_large, ()).await.unwrap();
    let rest = format!("{{\"say\":\"signal\",\"name\":\"{}\",\"body\":\"\"}}", Large::NAME);
    let len = RUN_PART_BYTES_MAX - rest.len();
    assert!(run.signal(Large("x".repeat(len + 1))).await.is_err(), "that is the largest signal");
    run.signal(Large("x".repeat(len))).await.unwrap();
    engine.settle().await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap(), len);
}

#[tokio::test]
async fn the_largest_signal_is_received_memory() {
    largest_signal(windlass::open("memory://").unwrap()).await;
}

#[tokio::test]
async fn the_largest_signal_is_received_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    largest_signal(windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()).await;
}

#[tokio::test]
async fn the_largest_signal_is_received_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    largest_signal(windlass::open(&server.url()).unwrap()).await;
}
