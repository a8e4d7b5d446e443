//! Workflows in code that are started by schedules.

use std::sync::Arc;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::job::State;
use windlass::core::name::ScheduleName;
use windlass::core::schedule::{Overlap, Rule, tick, trigger};
use windlass::core::store::{ListOrder, Run, RunList, RunState, Store};
use windlass::durable::{
    Error, LABEL_SCHEDULE, LABEL_TICK, ScheduledStart, StartWorkflow, Wf, start_workflow, typed, workflow,
};
use windlass::runs::Engine;
use windlass::testing::TestBed;
use windlass::{Client, Job, Worker};

#[workflow]
async fn nap(wf: Wf, time: String) -> Result<(), Error> {
    wf.sleep(time.as_str()).await?;
    Ok(())
}

async fn runs(store: &dyn Store) -> Vec<Run> {
    store.list_runs(RunList { order: ListOrder::Ascending, ..RunList::new(100) }).await.unwrap().runs
}

/// Lets a minute pass, and handles the jobs of the ticks.
async fn minute(test: &TestBed) {
    test.advance(Duration::from_secs(60)).await;
    test.run_until_idle(Worker::builder(test.store()).handle(start_workflow)).await;
}

fn engine(store: Arc<dyn Store>) -> Engine {
    Engine::new(store).unwrap().workflows(vec![typed(nap)], Some("test".to_owned())).unwrap()
}

#[tokio::test]
async fn each_tick_starts_one_run_however_often_its_job_is_tried() {
    let test = TestBed::new();
    let start = || test.client().schedule_workflow("naps", Rule::every_ms(60_000), nap, "1h".to_owned());
    let armed = start().timeout("2h").label("tenant", "acme").await.unwrap();
    let again = start().timeout("2h").label("tenant", "acme").await.unwrap();
    assert_eq!(armed.next_tick, again.next_tick, "put again, it goes on where it was");
    minute(&test).await;
    let first = runs(&*test.store()).await.remove(0);
    assert_eq!((first.kind.as_str(), first.state), ("nap@1", RunState::Running));
    assert_eq!((first.labels[LABEL_SCHEDULE].as_str(), first.labels["tenant"].as_str()), ("naps", "acme"));
    assert_eq!(first.labels[LABEL_TICK], armed.next_tick.unwrap().to_string());
    let job = test.store().schedules().await.unwrap().remove(0).last_job.unwrap();
    let done = test.client().get(job).await.unwrap().unwrap();
    assert_eq!((done.state, done.outputs["run"].as_str()), (State::Succeeded, first.id.to_string().as_str()));

    // The job is tried again, while the run goes on and when it has ended.
    engine(test.store()).settle().await.unwrap();
    for _ in 0..2 {
        test.client().retry(job).await.unwrap();
        test.run_until_idle(Worker::builder(test.store()).handle(start_workflow)).await;
        let all = runs(&*test.store()).await;
        assert_eq!(all.iter().filter(|run| run.labels[LABEL_TICK] == first.labels[LABEL_TICK]).count(), 1, "{all:?}");
        test.client()
            .run_by_id(first.id)
            .terminate("enough")
            .await
            .or_else(|error| match error {
                windlass::Error::RunRefused { .. } => Ok(()),
                error => Err(error),
            })
            .unwrap();
        engine(test.store()).settle().await.unwrap();
    }
    let before = runs(&*test.store()).await.len();
    minute(&test).await;
    assert_eq!(runs(&*test.store()).await.len(), before + 1, "the next tick starts another one");
}

#[tokio::test]
async fn with_skip_no_run_is_started_while_an_earlier_one_goes_on() {
    let test = TestBed::new();
    let naps = test.client().schedule_workflow("naps", Rule::every_ms(60_000), nap, "90s".to_owned());
    naps.overlap(Overlap::Skip).await.unwrap();
    // A run of another schedule and one of none are in nobody's way.
    test.client().schedule_workflow("other", Rule::every_ms(3_600_000), nap, "9h".to_owned()).await.unwrap();
    test.client().start(nap, "9h".to_owned()).await.unwrap();
    let mut engine = engine(test.store());
    let mut counts = Vec::new();
    for _ in 0..5 {
        test.advance(Duration::from_secs(60)).await;
        // First the naps that are over end, and then the jobs of the ticks are handled.
        engine.settle().await.unwrap();
        test.run_until_idle(Worker::builder(test.store()).handle(start_workflow)).await;
        engine.settle().await.unwrap();
        let all = runs(&*test.store()).await;
        counts.push(all.iter().filter(|run| run.labels.get(LABEL_SCHEDULE).is_some_and(|name| name == "naps")).count());
    }
    // A nap takes a minute and a half: every second tick finds the last one asleep.
    assert_eq!(counts, [1, 1, 2, 2, 3]);
    let schedule = test.store().schedules().await.unwrap().into_iter().find(|one| one.name.as_str() == "naps").unwrap();
    let job = test.client().get(schedule.last_job.unwrap()).await.unwrap().unwrap();
    let said: windlass::durable::WorkflowStarted = serde_json::from_slice(&job.result.unwrap().bytes).unwrap();
    assert!(said.started);
}

#[tokio::test]
async fn a_schedule_of_a_workflow_that_cannot_be_started_is_refused() {
    let test = TestBed::new();
    let client = test.client();
    let start = |name: &str, rule| client.schedule_workflow(name, rule, nap, "1s".to_owned());
    let every = || Rule::every_ms(60_000);
    start("", every()).await.unwrap_err();
    start("naps", Rule::every_ms(1)).await.unwrap_err();
    start("naps", every()).queue("").await.unwrap_err();
    start("naps", every()).label("a\nb", "c").await.unwrap_err();
    let large = ScheduledStart::new("nap", serde_json::value::to_raw_value(&"x".repeat(5 << 20)).unwrap());
    large.schedule(ScheduleName::new("naps").unwrap(), every()).unwrap_err();
    let wrong = ScheduledStart::new("nap@two", serde_json::value::to_raw_value(&1).unwrap());
    wrong.schedule(ScheduleName::new("naps").unwrap(), every()).unwrap_err();
    assert!(test.store().schedules().await.unwrap().is_empty());
}

/// A tick on a store, its job handled twice.
async fn on_store(store: Arc<dyn Store>) {
    let client = Client::new(Arc::clone(&store));
    client
        .schedule_workflow("naps", Rule::every_ms(60_000), nap, "1h".to_owned())
        .overlap(Overlap::Skip)
        .await
        .unwrap();
    let name = ScheduleName::new("naps").unwrap();
    trigger(store.as_ref(), &name, JobId::from_parts(0, 7)).await.unwrap();
    let worker = super::support::Running::start(Worker::builder(Arc::clone(&store)).handle(start_workflow));
    let wait = |id| client.wait::<windlass::durable::WorkflowStarted>(id, windlass::core::time::HANG_GUARD);
    let first = wait(JobId::from_parts(0, 7)).await.unwrap().success().expect("it starts a run");
    assert!(first.started);
    client.retry(JobId::from_parts(0, 7)).await.unwrap();
    assert_eq!(wait(JobId::from_parts(0, 7)).await.unwrap().success(), Some(first));
    trigger(store.as_ref(), &name, JobId::from_parts(0, 8)).await.unwrap();
    let skipped = wait(JobId::from_parts(0, 8)).await.unwrap().success().expect("it is handled");
    assert_eq!((skipped.started, skipped.run), (false, first.run));
    assert_eq!(runs(store.as_ref()).await.len(), 1);
    worker.drain().await;
    let _ = (tick(store.as_ref(), 1).await.unwrap(), StartWorkflow::KIND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_starts_one_run_memory() {
    on_store(windlass::open("memory://").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_starts_one_run_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    on_store(windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_starts_one_run_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    on_store(windlass::open(&server.url()).unwrap()).await;
}
