//! Jobs and the threads they run on: nobody waits for another one's handler.

#![allow(clippy::unwrap_used, reason = "a failed check is a panic")]

use serde::{Deserialize, Serialize};
use std::sync::{Condvar, mpsc};
use std::time::Duration;
use tokio::sync::{Barrier, Mutex};
use windlass::{Client, Job, State, Waited, Worker};

#[derive(Serialize, Deserialize)]
struct Task {
    n: usize,
}

impl Job for Task {
    const KIND: &'static str = "task";
    type Output = ();
}

const LONG: Duration = windlass::core::time::HANG_GUARD;

/// Runs `n` jobs on as many slots; all of them must succeed.
async fn run(n: usize, builder: impl FnOnce(windlass::WorkerBuilder) -> windlass::WorkerBuilder) {
    let client = Client::open("memory://").unwrap();
    let worker = builder(Worker::builder(client.store().clone()).slots(n)).build().unwrap();
    let stopper = worker.stopper();
    let tickets = client.enqueue_all((0..n).map(|n| Task { n })).await.unwrap();
    let jobs = async {
        for ticket in tickets {
            assert_eq!(ticket.unwrap().wait(LONG).await.unwrap(), Waited::Succeeded(()));
        }
        stopper.drain();
    };
    let (ran, ()) = tokio::join!(worker.run_until_stopped(), jobs);
    ran.unwrap();
}

async fn meet(_: Task, State(barrier): State<Barrier>) {
    barrier.wait().await;
}

#[tokio::test]
async fn handlers_that_wait_for_each_other_all_run_on_one_thread() {
    run(50, |worker| worker.state(Barrier::new(50)).handle(meet)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_wait_for_each_other_all_run_on_two() {
    run(50, |worker| worker.state(Barrier::new(50)).handle(meet)).await;
}

struct Gate {
    open: mpsc::Sender<()>,
    opened: Mutex<mpsc::Receiver<()>>,
}

/// All but the last block their threads until the last has run.
async fn block(job: Task, State(gate): State<Gate>) {
    if job.n == 3 {
        for _ in 0..3 {
            gate.open.send(()).unwrap();
        }
        return;
    }
    tokio::task::block_in_place(|| gate.opened.blocking_lock().recv_timeout(LONG).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_in_place_do_not_keep_others_from_starting() {
    let (open, opened) = mpsc::channel();
    run(4, |worker| worker.state(Gate { open, opened: Mutex::new(opened) }).handle(block)).await;
}

/// Counts handlers that have begun, and holds back each of them until there are three.
#[derive(Default)]
struct Meeting {
    begun: std::sync::Mutex<usize>,
    three: Condvar,
}

/// Blocks its thread until three handlers have begun, which takes three threads.
async fn meet_on_threads(_: Task, State(meeting): State<Meeting>) {
    let mut begun = meeting.begun.lock().unwrap();
    *begun += 1;
    meeting.three.notify_all();
    let (begun, waited) = meeting.three.wait_timeout_while(begun, LONG, |begun| *begun < 3).unwrap();
    assert!(!waited.timed_out(), "{begun} handlers ran at the same time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_block_use_several_threads_of_the_runtime() {
    run(60, |worker| worker.state(Meeting::default()).handle(meet_on_threads)).await;
}
