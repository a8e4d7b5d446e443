//! Code that blocks its thread, destructors of workflow code, and workers that stop while local steps are open.

use super::{support, worker};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::Client;
use windlass::core::store::Store;
use windlass::core::time::HANG_GUARD;
use windlass::durable::{Error, Wf, workflow};

fn store() -> (Arc<dyn Store>, Client) {
    let store = windlass::open("memory://").unwrap();
    let client = Client::new(Arc::clone(&store));
    (store, client)
}

static IS_OPEN: Mutex<bool> = Mutex::new(false);
static OPENED: Condvar = Condvar::new();

#[workflow]
async fn blocks(_wf: Wf, _: ()) -> Result<(), Error> {
    let mut is_open = IS_OPEN.lock().unwrap();
    while !*is_open {
        is_open = OPENED.wait(is_open).unwrap();
    }
    Ok(())
}

#[workflow]
async fn quick(_wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(n)
}

/// There is a thread for each core, at least two; up to four more take the place of those that are blocked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_runs_go_on_while_code_blocks_its_thread() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(blocks).workflow(quick));
    let mut blocked = Vec::new();
    for _ in 0..std::thread::available_parallelism().unwrap().get().clamp(2, 16) {
        blocked.push(client.start(blocks, ()).await.unwrap());
    }
    for n in 0..3 {
        let run = client.start(quick, n).await.unwrap();
        assert_eq!(run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap(), n);
    }
    *IS_OPEN.lock().unwrap() = true;
    OPENED.notify_all();
    for run in blocked {
        run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    }
    running.drain().await;
}

static DROPPED_ON: Mutex<Option<String>> = Mutex::new(None);
static DROPPED: Semaphore = Semaphore::const_new(0);

struct NotesItsThread;

impl Drop for NotesItsThread {
    fn drop(&mut self) {
        *DROPPED_ON.lock().unwrap() = std::thread::current().name().map(str::to_owned);
        DROPPED.add_permits(1);
    }
}

#[workflow]
async fn sleeps_long(wf: Wf, _: ()) -> Result<(), Error> {
    let _guard = NotesItsThread;
    wf.sleep("1d").await?;
    Ok(())
}

/// A run that sleeps for a day is dropped from memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destructors_of_workflow_code_run_on_threads_of_workflows() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(sleeps_long));
    client.start(sleeps_long, ()).await.unwrap();
    tokio::time::timeout(HANG_GUARD, DROPPED.acquire()).await.expect("the run is dropped").unwrap().forget();
    let thread = DROPPED_ON.lock().unwrap().clone().unwrap_or_default();
    assert!(thread.starts_with("windlass-workflow-"), "{thread}");
    running.drain().await;
}

static FIRST_STEPS: AtomicU32 = AtomicU32::new(0);
static SECOND_STEPS: AtomicU32 = AtomicU32::new(0);
static FIRST_BEGAN: Semaphore = Semaphore::const_new(0);
static FIRST_ENDS: Semaphore = Semaphore::const_new(0);

#[workflow]
async fn two_steps(wf: Wf, _: ()) -> Result<(), Error> {
    wf.run_ok("first", || async {
        FIRST_STEPS.fetch_add(1, Ordering::SeqCst);
        FIRST_BEGAN.add_permits(1);
        FIRST_ENDS.acquire().await.expect("it is not closed").forget();
    })
    .await?;
    wf.run_ok("second", || async { SECOND_STEPS.fetch_add(1, Ordering::SeqCst) }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_ends_the_step_that_has_begun_and_begins_no_other() {
    let (store, client) = store();
    let running = support::Running::start(worker(&store).workflow(two_steps));
    let run = client.start(two_steps, ()).await.unwrap();
    FIRST_BEGAN.acquire().await.unwrap().forget();
    running.stopper.drain();
    // sleeps because: a worker that drops the step does so at once, and must have had the time.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(run.describe().await.unwrap().engine.is_some(), "the run is still held");
    FIRST_ENDS.add_permits(1);
    running.ended().await;
    assert_eq!((FIRST_STEPS.load(Ordering::SeqCst), SECOND_STEPS.load(Ordering::SeqCst)), (1, 0));
    let next = support::Running::start(worker(&store).workflow(two_steps));
    run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!((FIRST_STEPS.load(Ordering::SeqCst), SECOND_STEPS.load(Ordering::SeqCst)), (1, 1));
    next.drain().await;
}
