//! Small calls that are sent together with those of other callers: enqueues, new runs and messages to runs; a caller whose jobs
//! cannot be sent, a task that panics, and damage that concerns one caller. Only this store gathers calls.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use futures::future::join_all;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use support::hooked::HookedClock;
use support::raw::Raw;
use support::{block, enqueue, enqueue_one, fresh_url, get, job, job_with, virtual_clock};
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob};
use windlass_core::name::{DedupKey, Kind};
use windlass_core::store::{EnqueueRequest, JobQueue, NewRun, RunMessage, RunStore};
use windlass_core::time::HANG_GUARD;
use windlass_redis::RedisStore;
use windlass_servers::Redis;

/// As many jobs as are gathered at most. Two such callers fit into one script.
fn many() -> Vec<NewJob> {
    (0..64).map(|_| job().due(Due::DelayMs(60_000))).collect()
}

#[test]
fn slow_an_enqueue_that_cannot_be_sent_in_time_is_refused_and_not_sent_later() {
    let server = Redis::start().unwrap();
    block(async {
        let url = format!("{}?timeout_ms=500&connect_timeout_ms=1000", server.url());
        let store = RedisStore::open_url(&url).unwrap();
        enqueue(&store, vec![job()]).await;
        // Connections are made, and no script is answered. Four callers are under way at once, for 500 ms at least, so the
        // turn of the last ones comes after 2,500 ms at the earliest. They wait for 1,500 ms.
        server.command(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
        let calls: Vec<Vec<NewJob>> = (0..24).map(|_| many()).collect();
        let last = calls[23][0].effective_id();
        let mut answers = join_all(calls.into_iter().map(|jobs| store.enqueue(EnqueueRequest::new(jobs)))).await;
        let refused = answers.pop().unwrap();
        let is_refused = matches!(&refused, Err(Error::Unavailable { reason }) if reason.contains("could not be sent"));
        assert!(is_refused, "{refused:?}");
        server.command(&["CLIENT", "UNPAUSE"]).unwrap();
        let mut sent = 0;
        while sent < 4 {
            // The first ones may find connections that were given up.
            sent += u32::from(store.enqueue(EnqueueRequest::new(vec![job()])).await.is_ok());
        }
        assert_eq!(get(&store, last).await, None, "it was refused as not sent");
    });
}

#[test]
fn enqueues_go_on_after_the_tasks_of_earlier_ones_have_panicked() {
    let server = Redis::start().unwrap();
    block(async {
        let (store, clock) = HookedClock::open(&fresh_url(&server.url()), &virtual_clock());
        clock.set(|| panic!("the test lets the task that sends jobs panic"));
        // More than there are tasks at once. Nobody waits for the time that a call may take.
        for _ in 0..2 {
            for answer in join_all((0..9).map(|_| store.enqueue(EnqueueRequest::new(many())))).await {
                assert!(matches!(answer, Err(Error::Unknown { .. })), "{answer:?}");
            }
        }
        clock.clear();
        enqueue(&store, vec![job()]).await;
    });
}

#[test]
fn damage_that_concerns_the_jobs_of_one_caller_refuses_no_others_that_are_sent_with_them() {
    let server = Redis::start().unwrap();
    block(async {
        let url = fresh_url(&server.url());
        let (store, clock) = HookedClock::open(&url, &virtual_clock());
        enqueue(&store, vec![job()]).await;
        let raw = Raw::open(&url);
        raw.run("SET", "dedup", &[b"noise"]).await;
        let with_key = job_with(|spec| {
            let by = DedupBy::Key(DedupKey::new("k").unwrap());
            spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
        });
        // The first call is held up on the thread of all calls, so that the others wait and are sent together.
        let (release, released) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel();
        clock.set(move || {
            let _ = held.send(());
            let _ = released.recv();
        });
        let first = enqueue_one(&store, job());
        let wait_for_first = async { is_held.recv().unwrap() };
        let others =
            async { tokio::join!(store.enqueue(EnqueueRequest::new(vec![with_key])), enqueue_one(&store, job())) };
        let release = async { drop(release) };
        let (first, (), (bad, good), ()) = tokio::join!(biased; first, wait_for_first, others, release);
        first.unwrap();
        assert!(matches!(bad, Err(Error::Corrupt { .. })), "{bad:?}");
        good.unwrap();
    });
}

/// How many calls of scripts the server has had.
fn script_calls(server: &Redis) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

/// Awaits calls of one store together: the first is held up until all have been made. Returns their answers, and how many scripts
/// were called.
async fn made_together<T>(server: &Redis, clock: &HookedClock, calls: Vec<impl Future<Output = T>>) -> (Vec<T>, u64) {
    let before = script_calls(server);
    let (release, released) = mpsc::channel::<()>();
    let held = AtomicBool::new(false);
    clock.set(move || {
        if !held.swap(true, Ordering::SeqCst) {
            let _ = released.recv_timeout(HANG_GUARD);
        }
    });
    // `join_all` polls in order, so this is polled when all calls have been made.
    let (answers, ()) = tokio::join!(biased; join_all(calls), async { drop(release) });
    clock.clear();
    (answers, script_calls(server) - before)
}

#[test]
fn runs_and_messages_of_many_callers_go_in_few_calls() {
    let server = Redis::start().unwrap();
    block(async {
        let (store, clock) = HookedClock::open(&fresh_url(&server.url()), &virtual_clock());
        enqueue(&store, vec![job()]).await;
        let ids: Vec<RunId> = (0..40).map(|n| RunId::named(&n.to_string())).collect();
        let new = |id: &RunId| store.create_runs(vec![NewRun::new(*id, Kind::new("code@1").unwrap())]);
        let (answers, calls) = made_together(&server, &clock, ids.iter().map(new).collect()).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap()[0].is_ok()));
        assert!(calls <= 3, "{calls} calls for 40 runs");
        let send = |id: &RunId| store.send_to_runs(vec![RunMessage::new(*id, "hello")]);
        let (answers, calls) = made_together(&server, &clock, ids.iter().map(send).collect()).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap()[0].is_ok()));
        assert!(calls <= 3, "{calls} calls for 40 messages");
        let unknown = store.send_to_runs(vec![RunMessage::new(RunId::named("unknown"), "hello")]).await.unwrap();
        assert!(matches!(unknown[..], [Err(Error::NotFound { .. })]), "{unknown:?}");
    });
}
