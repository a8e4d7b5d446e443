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

/// Runs a call on a runtime of its own, which ends with it.
fn call_on_own_runtime<T: Send + 'static>(what: &str, call: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, answered) = mpsc::channel();
    std::thread::spawn(move || sender.send(runtime().block_on(call)));
    answered.recv_timeout(HANG_GUARD).unwrap_or_else(|_| panic!("no answer: {what}"))
}

#[test]
fn an_enqueue_is_answered_after_the_runtimes_of_earlier_ones_have_ended() {
    let server = Redis::start().unwrap();
    let store = Arc::new(RedisStore::open_url(&server.url()).unwrap());
    for n in 0..8 {
        let store = Arc::clone(&store);
        let ids = call_on_own_runtime(&format!("enqueue {n}"), async move { enqueue(&*store, vec![job()]).await });
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
    let has = |count: &str| {
        for _ in 0..HANG_GUARD.as_millis() {
            first.block_on(tokio::task::yield_now());
            if registered() == count {
                return;
            }
            // sleeps because: another runtime registers it, and nothing tells when
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{count} are not registered");
    };
    has("1");
    let (late, (sender, ended)) = (Arc::clone(&store), mpsc::channel());
    let id = ids[1];
    std::thread::spawn(move || sender.send(runtime().block_on(late.wait(WaitFor::Job(id)))));
    has("2");
    drop(wait);
    drop(first);
    // Not by the process that waits: it would notice by itself.
    let other = RedisStore::open_url(&server.url()).unwrap();
    worker.block_on(report(&other, "w", leases.iter().find(|lease| lease.job == id).copied().unwrap())).unwrap();
    ended.recv_timeout(HANG_GUARD).unwrap_or_else(|_| panic!("the wait did not end")).unwrap();
}
