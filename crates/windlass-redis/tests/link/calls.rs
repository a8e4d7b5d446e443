//! Calls while the server forgets scripts, loses connections, crashes or stands still.

use crate::server::{Server, wait_until};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use windlass_core::Error;
use windlass_redis::link::{Call, Command, Link, Script, Value};
use windlass_redis::options::Options;

static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    vec![
        Script::new("incr", "return redis.call('INCRBY', KEYS[1], ARGV[1])"),
        Script::new("count", "return #ARGV"),
        Script::new("broken", "return redis.call('GET', KEYS[1]) + {}"),
    ]
});

fn open(url: &str) -> Link {
    Link::open(Options::from_url(url).unwrap(), &SCRIPTS).unwrap()
}

async fn incr(link: &Link) -> Result<Value, Error> {
    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
    call.arg_fmt(1);
    link.call(&call).await
}

#[derive(Default)]
struct Tally {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    unavailable: AtomicU64,
}

impl Tally {
    fn note(&self, answer: &Result<Value, Error>) {
        let counter = match answer {
            Ok(_) => &self.acknowledged,
            Err(Error::Unknown { .. } | Error::Timeout { .. }) => &self.unknown,
            Err(Error::Unavailable { .. }) => &self.unavailable,
            Err(other) => panic!("{other:?}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.acknowledged), read(&self.unknown), read(&self.unavailable))
    }
}

/// Calls from many tasks while `disturb` runs; each task makes `each` calls.
fn under_load(link: &Link, each: usize, disturb: impl FnMut() + Send) -> std::sync::Arc<Tally> {
    let tally = std::sync::Arc::new(Tally::default());
    let done = AtomicBool::new(false);
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (link, tally) = (link.clone(), tally.clone());
        tasks.spawn(async move {
            for _ in 0..each {
                tally.note(&incr(&link).await);
            }
        });
    }
    std::thread::scope(|scope| {
        let mut disturb = disturb;
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                disturb();
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async { while tasks.join_next().await.is_some() {} });
        });
        done.store(true, Ordering::Relaxed);
    });
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_server_that_forgets_scripts_answers_every_call() {
    let server = Server::start(&[]);
    let link = open(&server.url());
    let mut flushes = 0;
    let tally = under_load(&link, 1000, || {
        server.cli(&["SCRIPT", "FLUSH"]);
        flushes += 1;
    });
    assert_eq!(tally.counts(), (16_000, 0, 0), "every call is answered, {flushes} flushes");
    assert!(flushes > 5, "{flushes}");
    assert_eq!(server.cli(&["GET", "{windlass}:n"]), "16000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_what_was_acknowledged_was_applied_when_connections_are_killed() {
    let server = Server::start(&[]);
    let link = open(&server.url());
    let mut kills = 0;
    let tally = under_load(&link, 2000, || {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        kills += 1;
    });
    let (acknowledged, unknown, unavailable) = tally.counts();
    let applied: u64 = server.cli(&["GET", "{windlass}:n"]).parse().unwrap();
    println!(
        "{kills} kills: {acknowledged} acknowledged, {unknown} unknown, {unavailable} unavailable, {applied} applied"
    );
    assert!(kills > 5 && unknown > 0, "nothing was broken: {kills} kills");
    assert!(applied >= acknowledged, "{applied} applied, {acknowledged} acknowledged");
    assert!(applied <= acknowledged + unknown, "a call was applied twice, or after it was said that it was not");
    assert!(incr(&link).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_calls_work_again_soon_after_a_crash() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let link = open(&server.url());
    incr(&link).await.unwrap();
    server.kill();
    let errors = std::sync::Arc::new(Tally::default());
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        errors.note(&incr(&link).await);
    }
    let (acknowledged, _, unavailable) = errors.counts();
    assert!(acknowledged == 0 && unavailable > 0, "{:?}", errors.counts());
    assert!(unavailable < 100, "attempts are spaced: {unavailable}");
    server.restart();
    let back = Instant::now();
    let value = loop {
        if let Ok(value) = incr(&link).await {
            break value;
        }
    };
    println!("works again after {:?}", back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    assert_eq!(value, Value::Int(2), "the failed calls were not applied");
}

/// A thousand callers make one connection.
#[tokio::test]
async fn many_callers_make_one_connection() {
    let server = Server::start(&[]);
    let before: u64 = connections(&server);
    let link = open(&server.url());
    // The server stands still until all have asked: none of them finds a connection that another one has made.
    server.signal("-STOP");
    let mut all = futures::future::join_all((0..1000).map(|_| incr(&link)));
    assert!(futures::poll!(&mut all).is_pending());
    server.signal("-CONT");
    assert!(all.await.iter().all(Result::is_ok));
    // One of them is the question itself.
    assert_eq!(connections(&server) - before, 2);
}

fn connections(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn a_server_that_stands_still_is_a_timeout_and_then_works_again() {
    let server = Server::start(&[]);
    let link = open(&format!("{}?timeout_ms=200&connect_timeout_ms=200", server.url()));
    incr(&link).await.unwrap();
    server.signal("-STOP");
    let begun = Instant::now();
    let error = incr(&link).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    let error = incr(&link).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "there is no new connection: {error:?}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    server.signal("-CONT");
    let until = Instant::now() + Duration::from_secs(5);
    while incr(&link).await.is_err() {
        assert!(Instant::now() < until);
    }
}

#[tokio::test]
async fn nobody_there_is_unavailable_at_once() {
    let link = open("redis://127.0.0.1:1");
    let begun = Instant::now();
    let error = incr(&link).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason } if reason.contains("127.0.0.1:1")), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn big_calls_and_broken_scripts() {
    let server = Server::start(&[]);
    let link = open(&server.url());
    let args = vec![vec![7_u8; 2500]; 5000];
    let mut call = Call::new(&SCRIPTS[1], &["{windlass}:n"]);
    call.args(&args);
    assert_eq!(link.call(&call).await, Ok(Value::Int(5000)));
    let error = link.call(&Call::new(&SCRIPTS[2], &["{windlass}:n"])).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { what } if what.contains("user_script")), "{error:?}");
    let nonsense = Script::new("nonsense", "this is no Lua");
    let error = link.call(&Call::new(&nonsense, &["{windlass}:n"])).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { what } if what.contains("compiling")), "{error:?}");
    assert!(incr(&link).await.is_ok());
}

/// The caller's runtime may have no timer, and its clock may stand still.
#[test]
fn a_caller_needs_no_clock() {
    let server = Server::start(&[]);
    let link = open(&server.url());
    assert!(futures::executor::block_on(incr(&link)).is_ok());
    let paused = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    assert!(paused.block_on(incr(&link)).is_ok());
}

#[tokio::test]
async fn a_waiting_command_has_its_own_connection() {
    let server = Server::start(&[]);
    let link = open(&format!("{}?timeout_ms=500", server.url()));
    let mut blocking = link.blocking();
    let pop = |key: &str, seconds: &str| Command::new("BLPOP").arg(key).arg(seconds);
    // It may wait for longer than an answer may take.
    assert_eq!(blocking.command(&pop("{windlass}:l", "0.7"), Duration::from_millis(700)).await, Ok(Value::Nil));
    let long = pop("{windlass}:l", "30");
    let waiting = tokio::time::timeout(Duration::from_millis(100), blocking.command(&long, Duration::from_secs(30)));
    assert!(waiting.await.is_err(), "it waits");
    incr(&link).await.unwrap();
    // The one that was given up holds up nobody, and takes nothing away.
    let begun = Instant::now();
    let answer = blocking.command(&pop("{windlass}:m", "0.1"), Duration::from_millis(100)).await;
    assert_eq!(answer, Ok(Value::Nil));
    assert!(begun.elapsed() < Duration::from_secs(2));
    let until = Instant::now() + Duration::from_secs(5);
    while server.cli(&["INFO", "clients"]).contains("blocked_clients:1") {
        assert!(Instant::now() < until, "the abandoned command still waits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_replicas_are_waited_for() {
    let primary = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    wait_until("the replica has the data", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    // Both say that they are in step up to a second before the first change flows: see one flow, written after the data.
    primary.cli(&["SET", "{windlass}:probe", "1"]);
    wait_until("changes flow", || replica.cli(&["GET", "{windlass}:probe"]) == "1");
    let link = open(&format!("{}?wait_replicas=1&timeout_ms=800", primary.url()));
    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
    call.arg_fmt(1);
    assert_eq!(link.durable_call(&call).await, Ok(Value::Int(1)));
    assert_eq!(replica.cli(&["GET", "{windlass}:n"]), "1");
    replica.signal("-STOP");
    let error = link.durable_call(&call).await.unwrap_err();
    assert!(matches!(&error, Error::Unknown { reason } if reason.contains("0 of 1")), "{error:?}");
    // A repeated call that only looks must not count as confirmed either: what it saw is on no replica.
    let mut look = Call::new(&SCRIPTS[1], &["{windlass}:n"]);
    look.arg("x");
    for _ in 0..4 {
        let error = link.durable_call(&look).await.unwrap_err();
        assert!(matches!(&error, Error::Unknown { reason } if reason.contains("0 of 1")), "{error:?}");
    }
    replica.signal("-CONT");
}

/// Calls that would wait for replicas that are not there are answered at once, and work as soon as there are enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas_are_counted_before_anything_waits_for_them() {
    let primary = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let link = open(&format!("{}?wait_replicas=1&timeout_ms=5000", primary.url()));
    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
    call.arg_fmt(1);
    let begun = Instant::now();
    let refused = link.durable_call(&call).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Incompatible { what } if what.contains("the 0 that are connected")),
        "{refused:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(primary.cli(&["GET", "{windlass}:n"]), "", "nothing was applied");
    assert!(incr(&link).await.is_ok(), "who does not wait for replicas needs none");

    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    wait_until("the replica follows", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    assert_eq!(link.durable_call(&call).await, Ok(Value::Int(2)));
    // One that goes is no slip: what asks for a new connection meanwhile is to try again.
    drop(replica);
    wait_until("the replica is gone", || primary.cli(&["INFO", "replication"]).contains("connected_slaves:0"));
    primary.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut refused = link.durable_call(&call).await.unwrap_err();
    while let Error::Unknown { .. } = refused {
        refused = link.durable_call(&call).await.unwrap_err();
    }
    assert!(matches!(&refused, Error::Unavailable { reason } if reason.contains("wait_replicas=1")), "{refused:?}");
}
