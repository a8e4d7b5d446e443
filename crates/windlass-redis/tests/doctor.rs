//! What an examination finds on a server that does not do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

use windlass_core::id::RunId;
use windlass_core::job::Due;
use windlass_core::name::Kind;
use windlass_core::store::{Durability, NewRun, RunStep, RunStore as _, Store as _};
use windlass_redis::doctor::{Depth, Examination, Finding, Severity, examine};
use windlass_redis::{Options, RedisStore};
use windlass_servers::{Fsync, Redis};

async fn look(url: &str) -> Examination {
    examine(&Options::from_url(url).unwrap(), Depth::default()).await.unwrap()
}

fn of<'a>(found: &'a Examination, check: &str) -> &'a Finding {
    let of = found.findings.iter().find(|one| one.check == check);
    of.unwrap_or_else(|| panic!("no {check}: {found:#?}"))
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_an_error() {
    let server = Redis::start().unwrap();
    server.command(&["SET", "{windlass}:jobs", "mine"]).unwrap();
    server.command(&["HSET", "{windlass}:feed", "f", "v"]).unwrap();
    let found = look(&server.url()).await;
    assert!(!found.usable, "{found:#?}");
    let keys = of(&found, "keys");
    assert_eq!(keys.severity, Severity::Error);
    assert!(keys.message.ends_with(": {windlass}:jobs, {windlass}:feed"), "{keys:?}");
    assert!(!found.findings.iter().any(|one| one.check == "prefix"), "something is stored there: {found:#?}");
    assert!(look(&format!("{}?prefix=other", server.url())).await.usable);
}

/// What is said about a power cut must not depend on who could take over.
#[tokio::test]
async fn an_unsynced_file_promises_no_more_where_there_are_replicas() {
    let primary = Redis::builder().append_only(Fsync::EverySec).start().unwrap();
    let _replica = Redis::builder().config("replicaof", &format!("127.0.0.1 {}", primary.port())).start().unwrap();
    // Answers when the replica has the data.
    assert_eq!(primary.command(&["WAIT", "1", "10000"]).unwrap(), "1");
    let store = RedisStore::open_url(&primary.url()).unwrap();
    let durability = || async { store.info().await.unwrap().durability };
    assert_eq!(durability().await, Durability::Process);
    let said = of(&look(&primary.url()).await, "persistence").message.clone();
    assert!(said.contains("durability process") && said.contains("up to two seconds"), "{said}");
    primary.command(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
    assert_eq!(durability().await, Durability::FailoverBestEffort);
}

#[tokio::test]
async fn a_server_that_compares_texts_by_a_locale_is_named() {
    let server = Redis::builder().collation("da_DK").start().unwrap();
    let found = look(&server.url()).await;
    assert_eq!(of(&found, "collation").severity, Severity::Info);
    assert!(found.usable, "the store does not depend on it: {found:#?}");
}

#[tokio::test]
async fn runs_that_nobody_would_find_are_named() {
    let server = Redis::start().unwrap();
    let store = RedisStore::open_url(&server.url()).unwrap();
    let run = |n: u128, wake| NewRun {
        step: RunStep { wake: Some(wake), ..RunStep::nothing() },
        ..NewRun::new(RunId::from_parts(0, n), Kind::new("graph").unwrap())
    };
    let runs: Vec<NewRun> = (1..=4).map(|n| run(n, if n == 3 { Due::DelayMs(600_000) } else { Due::Now })).collect();
    let ids: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
    assert!(store.create_runs(runs).await.unwrap().iter().all(Result::is_ok));
    let found = look(&server.url()).await;
    assert!(!found.findings.iter().any(|one| one.check == "runs"), "{found:#?}");
    let ready = server.command(&["ZRANGE", "{windlass}:run_ready", "0", "-1"]).unwrap();
    assert!(ready.contains(&ids[1]), "{ready}");
    server.command(&["HSET", "{windlass}:runs", &ids[0], "nonsense"]).unwrap();
    // Read inside the server: members are more than a line.
    let unready = "local m = redis.call('ZRANGE', KEYS[1], 0, -1) for _, one in ipairs(m) do \
                   if string.find(one, ARGV[1], 1, true) then redis.call('ZREM', KEYS[1], one) end end return 1";
    server.command(&["EVAL", unready, "1", "{windlass}:run_ready", &ids[1]]).unwrap();
    server.command(&["ZREM", "{windlass}:run_wake", &ids[2]]).unwrap();
    let found = look(&server.url()).await;
    let runs = of(&found, "runs");
    assert_eq!(runs.severity, Severity::Warning);
    for (id, why) in ids.iter().zip(["it cannot be read", "no engine will find it", "nothing will wake it"]) {
        assert!(runs.message.contains(id) && runs.message.contains(why), "{id}: {runs:?}");
    }
    assert!(runs.message.starts_with("3 runs") && !runs.message.contains(&ids[3]), "{runs:?}");
}
