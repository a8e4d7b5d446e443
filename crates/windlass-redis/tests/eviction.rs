//! Servers that delete keys when their memory is full: which policies are accepted, and what they cost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use support::{claim, counts, job_with, report};
use windlass_core::Error;
use windlass_core::job::NewJob;
use windlass_core::name::WorkerId;
use windlass_core::payload::Payload;
use windlass_core::store::{EnqueueRequest, JobQueue as _, Store as _};
use windlass_redis::doctor::{Depth, Severity, examine};
use windlass_redis::{Options, RedisStore};
use windlass_servers::Redis;

fn info(server: &Redis, name: &str) -> u64 {
    let info = server.command(&["INFO", "everything"]).unwrap();
    let value = info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// A server with this policy and room for `bytes` more than an empty one uses.
fn server(policy: &str, bytes: u64) -> Redis {
    let server = Redis::builder().config("maxmemory-policy", policy).start().unwrap();
    // Loads the scripts, which take memory, too.
    let store = RedisStore::open(Options { allow_eviction: true, ..options(&server) }).unwrap();
    support_block(async { store.queues().await.unwrap() });
    let room = (info(&server, "used_memory") + bytes).to_string();
    server.command(&["CONFIG", "SET", "maxmemory", &room]).unwrap();
    server
}

fn support_block<F: Future + Send>(future: F) -> F::Output
where
    F::Output: Send,
{
    std::thread::scope(|scope| scope.spawn(|| support::block(future)).join().unwrap())
}

fn options(server: &Redis) -> Options {
    Options::from_url(&server.url()).unwrap()
}

/// A job of about a kilobyte.
fn large_job() -> NewJob {
    job_with(|spec| spec.payload = Payload::json(&"x".repeat(1_000)).unwrap())
}

const POLICIES: [&str; 4] = ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"];

#[tokio::test]
async fn slow_a_full_server_that_deletes_expiring_keys_loses_no_job() {
    for policy in POLICIES {
        let server = server(policy, 6 << 20);
        let store = RedisStore::open_url(&server.url()).unwrap();
        let keeper = |name: &str| WorkerId::new(name).unwrap();
        assert!(store.claim_maintenance(keeper("first"), 600_000).await.unwrap().is_granted());
        // Keys of another program: the server has something to delete for a while.
        for n in 0..1_000 {
            server.command(&["SET", &format!("cache-{n}"), &"x".repeat(1_000), "EX", "1000"]).unwrap();
        }
        let mut acknowledged = BTreeSet::new();
        let refused = loop {
            match store.enqueue(EnqueueRequest::new((0..50).map(|_| large_job()).collect())).await {
                Ok(answers) => acknowledged.extend(answers.into_iter().map(|answer| answer.unwrap().id())),
                Err(error) => break error,
            }
            assert!(acknowledged.len() < 100_000, "the server is never full");
        };
        assert!(matches!(&refused, Error::Full { what } if what.contains("maxmemory")), "{policy}: {refused:?}");
        assert!(acknowledged.len() > 1_000, "{policy}: {}", acknowledged.len());
        // All that could be deleted was, the timekeeper's key with it.
        assert_eq!(info(&server, "evicted_keys"), 1_001, "{policy}");
        assert_eq!(server.command(&["EXISTS", "{windlass}:timekeeper"]).unwrap(), "0", "{policy}");
        assert_eq!(counts(&store).await.ready, acknowledged.len() as u64, "{policy}");
        let mut done = BTreeSet::new();
        while done.len() < acknowledged.len() {
            let jobs = claim(&store, "w", 1_000).await;
            assert!(!jobs.is_empty(), "{policy}: {} of {} jobs were found", done.len(), acknowledged.len());
            for job in jobs {
                report(&store, "w", job.lease).await.unwrap();
                done.insert(job.lease.job);
            }
        }
        assert_eq!(done, acknowledged, "{policy}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        let other = RedisStore::open_url(&server.url()).unwrap();
        assert!(
            other.claim_maintenance(keeper("second"), 600_000).await.unwrap().is_granted(),
            "{policy}: the hint is made again"
        );
    }
}

#[tokio::test]
async fn policies_that_delete_expiring_keys_are_information() {
    for policy in POLICIES {
        let server = Redis::builder().config("maxmemory-policy", policy).start().unwrap();
        let found = examine(&options(&server), Depth::default()).await.unwrap();
        let eviction = found.findings.iter().find(|one| one.check == "eviction").unwrap();
        assert!(found.usable && eviction.severity == Severity::Info, "{eviction:?}");
        assert!(eviction.message.contains(policy) && eviction.message.contains("timekeeper"), "{eviction:?}");
    }
}

/// The warning is right: there are no other keys, so the server deletes those of the store.
#[tokio::test]
async fn a_full_server_that_deletes_any_key_deletes_those_of_the_store() {
    let server = server("allkeys-random", 3 << 20);
    let store = RedisStore::open(Options { allow_eviction: true, ..options(&server) }).unwrap();
    for _ in 0..200 {
        // Later calls meet a store that is damaged, and fail or not.
        let _ = store.enqueue(EnqueueRequest::new((0..50).map(|_| large_job()).collect())).await;
        if info(&server, "evicted_keys") > 0 {
            return;
        }
    }
    panic!("nothing was deleted");
}

#[derive(Clone, Default)]
struct Lines(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Connections are made on a thread of the store's own, so the subscriber is that of the whole process.
#[tokio::test]
async fn a_store_that_accepts_the_deletion_of_any_key_warns_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
    let server = Redis::builder().config("maxmemory-policy", "allkeys-lfu").start().unwrap();
    let warnings = || {
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        text.lines()
            .filter(|line| line.contains("WARN") && line.contains("allkeys-lfu"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let refused = RedisStore::open(options(&server)).unwrap().queues().await.unwrap_err();
    let Error::Incompatible { what } = &refused else { panic!("{refused:?}") };
    for words in [
        "maxmemory-policy is allkeys-lfu",
        "lose all jobs, runs or schedules at once",
        "parameter group",
        "allow_eviction=true",
    ] {
        assert!(what.contains(words), "{what}");
    }
    assert_eq!(warnings(), [""; 0], "one that is refused is not warned about");
    // Examined, it is a finding.
    let accepted = Options { allow_eviction: true, prefix: "warned".to_owned(), ..options(&server) };
    let found = examine(&accepted, Depth::default()).await.unwrap();
    let finding = found.findings.iter().find(|one| one.check == "eviction").unwrap();
    assert!(found.usable && finding.severity == Severity::Warning, "{finding:?}");
    assert!(finding.message.contains("lose all jobs, runs or schedules at once"), "{finding:?}");
    assert_eq!(warnings(), [""; 0]);
    let store = RedisStore::open(accepted.clone()).unwrap();
    store.queues().await.unwrap();
    // Another connection of the same store.
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    for _ in 0..100 {
        // The first may meet the connection that is gone.
        if store.queues().await.is_ok() {
            break;
        }
    }
    store.queues().await.unwrap();
    let [warning] = &warnings()[..] else { panic!("{:?}", warnings()) };
    for words in ["lose all jobs, runs or schedules at once", "prefix=\"warned\"", "noeviction prevents it"] {
        assert!(warning.contains(words), "{warning}");
    }
    // Another store is warned about, too.
    RedisStore::open(Options { prefix: "other".to_owned(), ..accepted }).unwrap().queues().await.unwrap();
    assert_eq!(warnings().len(), 2, "{:?}", warnings());
}
