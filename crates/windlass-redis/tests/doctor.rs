//! What an examination finds on a server that does not do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

use windlass_core::store::{Durability, Store as _};
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
