//! One store and several runtimes, of which some end: a program without a runtime of its own makes one per call, and so does every
//! `#[tokio::test]`. Only this store has tasks that could end with a runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use std::sync::mpsc;
use support::{claim, enqueue, job, report};
use tokio::runtime::{Builder, Runtime};
use windlass_core::store::{Store as _, WaitFor};
use windlass_core::time::HANG_GUARD;
use windlass_redis::RedisStore;
use windlass_servers::Redis;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Begins a call on a thread and a runtime of its own, which end with it. A call that hangs is left behind.
fn begin<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, answered) = mpsc::channel();
    let run = move || drop(sender.send(runtime().block_on(call)));
    std::thread::Builder::new().name("caller".to_owned()).spawn(run).unwrap();
    answered
}

fn answer_of<T>(answered: &mpsc::Receiver<T>, what: &str) -> T {
    answered.recv_timeout(HANG_GUARD).unwrap_or_else(|_| panic!("no answer: {what}"))
}

#[test]
fn an_enqueue_is_answered_after_the_runtimes_of_earlier_ones_have_ended() {
    let server = Redis::start().unwrap();
    let store = Arc::new(RedisStore::open_url(&server.url()).unwrap());
    for n in 0..8 {
        let store = Arc::clone(&store);
        let answered = begin(async move { enqueue(&*store, vec![job()]).await });
        let ids = answer_of(&answered, &format!("enqueue {n}"));
        assert_eq!(ids.len(), 1);
    }
}

#[test]
fn a_wait_ends_after_the_runtime_of_an_earlier_wait_has_ended() {
    let server = Redis::start().unwrap();
    let store = Arc::new(RedisStore::open_url(&server.url()).unwrap());
    let worker = runtime();
    let ids = worker.block_on(enqueue(&*store, vec![job(), job()]));
    let leases: Vec<_> = worker.block_on(claim(&*store, "w", 2)).into_iter().map(|job| job.lease).collect();
    let first = runtime();
    let early = Arc::clone(&store);
    let id = ids[0];
    let wait = first.spawn(async move { early.wait(WaitFor::Job(id)).await });
    let registered = || server.command(&["HLEN", "{windlass}:watch"]).unwrap();
    // Goes on with the tasks of the first runtime meanwhile.
    let has = |count: &str| {
        let is_there = async {
            while registered() != count {
                tokio::task::yield_now().await;
            }
        };
        let in_time = first.block_on(async { tokio::time::timeout(HANG_GUARD, is_there).await });
        assert!(in_time.is_ok(), "{count} are not registered");
    };
    has("1");
    let (late, id) = (Arc::clone(&store), ids[1]);
    let ended = begin(async move { late.wait(WaitFor::Job(id)).await });
    has("2");
    drop(wait);
    drop(first);
    // Not by the process that waits: it would notice by itself.
    let other = RedisStore::open_url(&server.url()).unwrap();
    worker.block_on(report(&other, "w", leases.iter().find(|lease| lease.job == id).copied().unwrap())).unwrap();
    answer_of(&ended, "the wait").unwrap();
}
