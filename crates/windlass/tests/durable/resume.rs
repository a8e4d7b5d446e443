//! Workers that start resume what is stuck under another build.

use super::stores::{Opened, memory, on_every_store};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use windlass::core::id::RunId;
use windlass::core::job::Due;
use windlass::core::name::{Kind, WorkerId};
use windlass::core::store::{
    Run, RunClaim, RunCommit, RunList, RunMessage, RunPage, RunState, RunStep, Store, Wrap, Wrapped,
};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Wf, typed, workflow};
use windlass::runs::Engine;
use windlass::testing::TestBed;
use windlass::{Worker, WorkerBuilder};

on_every_store!(a_worker_of_another_build_resumes_what_is_stuck, slow_thousands_of_stuck_runs_are_resumed_page_by_page,);

#[workflow(name = "parcel")]
async fn broken(_wf: Wf, _: u32) -> Result<u32, Error> {
    panic!("a bad deploy")
}

#[workflow(name = "parcel")]
async fn fixed(_wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(n)
}

/// Notes which runs are resumed through it. Without that, a run is tried again after a minute.
struct Resumes(Arc<dyn Store>, Mutex<Vec<RunId>>);

#[async_trait::async_trait]
impl Wrap for Resumes {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> windlass::Result<Vec<windlass::Result<()>>> {
        self.1.lock().extend(messages.iter().filter(|message| message.reopens).map(|message| message.run));
        self.0.send_to_runs(messages).await
    }
}

fn noted(on: &Opened) -> Arc<Wrapped<Resumes>> {
    Arc::new(Wrapped(Resumes(Arc::clone(&on.store), Mutex::default())))
}

/// A worker of this build whose resumptions are noted.
fn worker(noted: &Arc<Wrapped<Resumes>>, build: &str) -> WorkerBuilder {
    super::worker(&(Arc::clone(noted) as Arc<dyn Store>)).build_id(build)
}

async fn a_worker_of_another_build_resumes_what_is_stuck(on: Opened) {
    let first = on.start(on.worker("a").workflow(broken));
    let run = on.client.start(broken, 7).await.unwrap();
    let stuck = on.stuck(&run).await;
    assert!(stuck.contains("a bad deploy") && stuck.ends_with("\nstuck under build a"), "{stuck}");
    first.drain().await;
    // Another worker of the same build leaves it alone: a run that it finds later is done, and this one is as it was.
    let before = on.view(&run).await;
    let resumed = noted(&on);
    let same = on.start(worker(&resumed, "a").workflow(fixed).workflow(super::order));
    on.client.start(super::order, 1).await.unwrap().result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    same.drain().await;
    assert_eq!(on.view(&run).await, before);
    assert_eq!(*resumed.1.lock(), []);
    let other = on.start(worker(&resumed, "b").workflow(fixed));
    assert_eq!(run.result_json(HANG_GUARD).await.unwrap().unwrap().unwrap().get(), "7");
    assert_eq!(*resumed.1.lock(), [run.id()]);
    other.drain().await;
}

/// More than fit on one page.
const MANY: u32 = 2_500;

async fn slow_thousands_of_stuck_runs_are_resumed_page_by_page(on: Opened) {
    let broken_engine = on.start(on.worker("a").workflow(broken));
    for n in 0..MANY {
        on.client.start(broken, n).await.unwrap();
    }
    let is_stuck = |run: &Run| run.stuck.is_some();
    on.all("all runs are stuck", is_stuck).await;
    broken_engine.drain().await;
    let resumed = noted(&on);
    let workers: Vec<_> = (0..2).map(|_| on.start(worker(&resumed, "b").workflow(fixed))).collect();
    on.all("all runs have ended", |run| run.state == RunState::Succeeded).await;
    let resumed: BTreeSet<RunId> = resumed.1.lock().iter().copied().collect();
    assert_eq!(resumed.len(), MANY as usize);
    for worker in workers {
        worker.drain().await;
    }
}

static RESUMED: AtomicU32 = AtomicU32::new(0);
static IS_FIXED: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn counts_its_starts(_wf: Wf, _: ()) -> Result<(), Error> {
    RESUMED.fetch_add(1, Ordering::SeqCst);
    assert!(IS_FIXED.load(Ordering::SeqCst), "still broken");
    Ok(())
}

/// On the virtual clock: the second pass of the worker comes after five minutes, and the run is stuck under its own build by then.
#[tokio::test]
async fn a_run_that_is_stuck_under_the_new_build_as_well_is_resumed_once() {
    let test = TestBed::new();
    let store = test.store();
    let mut engine =
        Engine::new(store.clone()).unwrap().workflows(vec![typed(counts_its_starts)], Some("a".into())).unwrap();
    let run = test.client().start(counts_its_starts, ()).await.unwrap();
    engine.settle().await.unwrap();
    assert_eq!(RESUMED.load(Ordering::SeqCst), 1);
    let start = || Worker::builder(store.clone()).without_maintenance().workflow(counts_its_starts).build_id("b");
    let workers = [super::support::Running::start(start()), super::support::Running::start(start())];
    // sleeps because: the runs are resumed at once, and then tried again after a minute; the clock is virtual.
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(RESUMED.load(Ordering::SeqCst), 2, "it was resumed once, by two workers");
    assert!(run.describe().await.unwrap().stuck.unwrap().ends_with("build b"));
    IS_FIXED.store(true, Ordering::SeqCst);
    run.result(HANG_GUARD).await.unwrap().expect("it is tried again by itself").unwrap();
    for worker in workers {
        worker.drain().await;
    }
}

/// Three processes that end with a run make it stuck under the build of the engine that finds it.
#[tokio::test]
async fn a_run_that_has_ended_three_processes_is_resumed_under_another_build_alone() {
    let test = TestBed::new();
    let run = test.client().start(fixed, 7).await.unwrap();
    for _ in 0..3 {
        super::guards::claim_and_vanish(&test, "parcel@1").await;
    }
    let start = |build: &str| Worker::builder(test.store()).without_maintenance().workflow(fixed).build_id(build);
    for (build, ends) in [("a", false), ("a", false), ("b", true)] {
        let worker = super::support::Running::start(start(build));
        let ended = run.result(Duration::from_secs(600)).await.unwrap();
        assert_eq!(ended.is_some(), ends, "{:?}", run.describe().await.unwrap());
        worker.drain().await;
    }
}

/// Fails the first two calls of each kind.
struct Unavailable(Arc<dyn Store>, AtomicU32, AtomicU32);

fn fail_twice(count: &AtomicU32) -> windlass::Result<()> {
    let is_failing = count.fetch_add(1, Ordering::SeqCst) < 2;
    if is_failing { Err(windlass::Error::Unavailable { reason: "by plan".to_owned() }) } else { Ok(()) }
}

#[async_trait::async_trait]
impl Wrap for Unavailable {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn list_runs(&self, list: RunList) -> windlass::Result<RunPage> {
        fail_twice(&self.1)?;
        self.0.list_runs(list).await
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> windlass::Result<Vec<windlass::Result<()>>> {
        fail_twice(&self.2)?;
        self.0.send_to_runs(messages).await
    }
}

/// Without another try, the run would be resumed by the second pass, after five minutes.
#[tokio::test]
async fn a_store_that_is_unavailable_when_a_worker_starts_is_waited_for() {
    let test = TestBed::new();
    let run = test.client().start(fixed, 7).await.unwrap();
    for _ in 0..3 {
        super::guards::claim_and_vanish(&test, "parcel@1").await;
    }
    let first = Worker::builder(test.store()).without_maintenance().workflow(fixed).build_id("a");
    let first = super::support::Running::start(first);
    assert!(run.result(Duration::from_secs(10)).await.unwrap().is_none());
    assert!(run.describe().await.unwrap().stuck.is_some());
    first.drain().await;
    let store = Arc::new(Wrapped(Unavailable(test.store(), AtomicU32::new(0), AtomicU32::new(0))));
    let second = Worker::builder(store).without_maintenance().workflow(fixed).build_id("b");
    let second = super::support::Running::start(second);
    assert_eq!(run.result(Duration::from_secs(60)).await.unwrap(), Some(Ok(7)));
    second.drain().await;
}

#[workflow]
async fn not_concerned(_wf: Wf, _: ()) -> Result<(), Error> {
    Ok(())
}

/// A worker resumes only runs that it can execute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_other_workflows_are_left_alone() {
    let on = memory();
    let first = on.start(on.worker("a").workflow(broken));
    let run = on.client.start(broken, 7).await.unwrap();
    on.stuck(&run).await;
    first.drain().await;
    let before = on.view(&run).await;
    let other = on.start(on.worker("b").workflow(not_concerned));
    on.client.start(not_concerned, ()).await.unwrap().result(HANG_GUARD).await.unwrap().unwrap().unwrap();
    other.drain().await;
    assert_eq!(on.view(&run).await, before);
}

/// During a deploy, a worker of the old build may take what a new one has resumed. On the virtual clock.
#[tokio::test]
async fn a_run_that_becomes_stuck_under_the_old_build_later_is_resumed_by_the_second_pass() {
    let test = TestBed::new();
    let start = Worker::builder(test.store()).without_maintenance().workflow(fixed).build_id("b");
    let worker = super::support::Running::start(start);
    // sleeps because: the first pass comes at once, and must not find the run; the clock is virtual.
    tokio::time::sleep(Duration::from_secs(30)).await;
    // Nobody claims it before its time, but the old worker below.
    let run = test.client().start(fixed, 7).delay("1d").await.unwrap();
    let claim = RunClaim::new(WorkerId::new("old").unwrap(), vec![Kind::new("parcel@1").unwrap()]);
    let held = test.store().claim_runs(RunClaim { run: Some(run.id()), ..claim }).await.unwrap().runs.remove(0);
    let stuck = Some("it does not match\nstuck under build a".to_owned());
    let parked = RunStep { stuck, wake: Some(Due::DelayMs(3_600_000)), ..RunStep::nothing() };
    test.store().commit_runs(vec![RunCommit::new(held.lease, 0, parked)]).await.unwrap().remove(0).unwrap();
    assert!(run.result(Duration::from_secs(200)).await.unwrap().is_none());
    assert!(run.describe().await.unwrap().stuck.is_some(), "the second pass comes after 300 s");
    assert!(run.result(Duration::from_secs(200)).await.unwrap().is_none());
    assert_eq!(run.describe().await.unwrap().stuck, None);
    assert_eq!(run.result(Duration::from_hours(24)).await.unwrap(), Some(Ok(7)));
    worker.drain().await;
}
