//! Workers whose handlers block every thread of their runtime stop all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::{Arc, mpsc};
use std::time::Duration;
use support::{LONG, Task, memory, stored};
use windlass::core::id::JobId;
use windlass::core::job::State as JobState;
use windlass::core::store::Store;
use windlass::{Ctx, Health, JobError, State, Stopper, Worker};

/// Lets go of a handler when it is dropped.
type Blocked = parking_lot::Mutex<mpsc::Receiver<()>>;

/// Blocks, unless its number is 0.
async fn block(job: Task, started: State<mpsc::Sender<()>>, blocked: State<Blocked>) -> Result<u32, JobError> {
    if job.n == 0 {
        return Ok(0);
    }
    started.send(()).unwrap();
    // Returns when the test drops the other end.
    let _ = blocked.lock().recv();
    Ok(1)
}

/// A worker, a runtime with one thread, and a job that blocks it right after another has ended.
struct Setting {
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn Store>,
    ends: JobId,
    blocks: JobId,
    worker: Worker,
    started: mpsc::Receiver<()>,
    let_go: mpsc::Sender<()>,
}

fn setting() -> Setting {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (store, client) = memory();
    let [ends, blocks] = [0, 1].map(|n| runtime.block_on(client.enqueue(Task { n })).unwrap().id());
    let ((start, started), (let_go, blocked)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let builder = Worker::builder(Arc::clone(&store)).state(start).state(Blocked::new(blocked));
    Setting { runtime, store, ends, blocks, worker: builder.handle(block).build().unwrap(), started, let_go }
}

/// Runs a worker on a thread of the test, which needs no thread of the runtime; the end of it.
fn run_beside(runtime: &tokio::runtime::Runtime, worker: Worker) -> mpsc::Receiver<windlass::Result<()>> {
    let (tell, ended) = mpsc::channel();
    let handle = runtime.handle().clone();
    let run = move || tell.send(handle.block_on(worker.run_until_stopped()));
    std::thread::Builder::new().name("worker".to_owned()).spawn(run).unwrap();
    ended
}

fn parts(worker: &Worker) -> (Stopper, Health) {
    (worker.stopper(), worker.health())
}

#[test]
fn slow_a_worker_whose_threads_are_all_blocked_stops() {
    let Setting { runtime, store, ends, blocks, worker, started, let_go } = setting();
    let (stopper, health) = parts(&worker);
    let ended = run_beside(&runtime, worker);
    started.recv_timeout(LONG).unwrap();
    stopper.stop_now();
    ended.recv_timeout(LONG).expect("it ends while its handler blocks").unwrap();
    assert_eq!(health.stuck(), 1);
    let [ended, blocked] = [ends, blocks].map(|id| futures::executor::block_on(stored(&store, id)));
    assert_eq!(ended.state, JobState::Succeeded, "its outcome is reported");
    assert_eq!((blocked.state, blocked.attempt), (JobState::Ready, 1), "given back, its attempt spent");
    drop(let_go);
}

/// The runtime has no thread on which the worker could return; what others wait for happens nevertheless.
#[test]
fn slow_a_worker_that_cannot_return_gives_its_jobs_back_and_is_gone() {
    let Setting { runtime, store, ends, blocks, worker, started, let_go } = setting();
    let (stopper, _) = parts(&worker);
    let running = runtime.spawn(worker.run_until_stopped());
    started.recv_timeout(LONG).unwrap();
    stopper.stop_now();
    let states = async {
        while stored(&store, blocks).await.state == JobState::Active || !store.workers().await.unwrap().is_empty() {
            // sleeps because: no signal tells that a worker was deregistered
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        [stored(&store, ends).await.state, stored(&store, blocks).await.state]
    };
    let beside = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let states = beside.block_on(async { tokio::time::timeout(LONG, states).await });
    let states = states.expect("the job is given back, and the worker is deregistered");
    assert_eq!(states, [JobState::Succeeded, JobState::Ready], "reported, and given back");
    drop(let_go);
    runtime.block_on(running).unwrap().unwrap();
}

/// Blocks its thread until it is told to stop.
async fn watch(_: Task, ctx: Ctx, started: State<mpsc::Sender<()>>, blocked: State<Blocked>) -> Result<u32, JobError> {
    started.send(()).unwrap();
    let blocked = blocked.lock();
    while !ctx.is_stopped() && blocked.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {}
    Ok(1)
}

#[test]
fn slow_handlers_that_block_every_thread_are_told_to_stop() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (store, client) = memory();
    let job = runtime.block_on(client.enqueue(Task { n: 1 })).unwrap().id();
    let ((start, started), (let_go, blocked)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let builder = Worker::builder(Arc::clone(&store)).state(start).state(Blocked::new(blocked)).handle(watch);
    let worker = builder.build().unwrap();
    let (stopper, health) = parts(&worker);
    let (tell, ended) = mpsc::channel();
    let running = runtime.spawn(async move { tell.send(worker.run_until_stopped().await) });
    started.recv_timeout(LONG).unwrap();
    stopper.stop_now();
    ended.recv_timeout(LONG).expect("it ends").unwrap();
    assert_eq!((health.stuck(), futures::executor::block_on(stored(&store, job)).state), (0, JobState::Succeeded));
    drop((let_go, running));
}

/// As if its process had been killed: nothing is waited for.
#[tokio::test]
async fn a_worker_that_is_dropped_is_gone() {
    let (store, client) = memory();
    let ((start, started), (let_go, blocked)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    drop(let_go);
    client.enqueue(Task { n: 1 }).await.unwrap();
    let builder = Worker::builder(Arc::clone(&store)).state(start).state(Blocked::new(blocked)).handle(block);
    {
        let mut running = Box::pin(builder.build().unwrap().run_until_stopped());
        let mut has_started = false;
        while !has_started || store.workers().await.unwrap().is_empty() {
            has_started |= started.try_recv().is_ok();
            assert!(futures::poll!(running.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    let gone = async {
        while !store.workers().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("its own thread deregisters it and ends");
}
