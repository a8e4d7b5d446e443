//! Sentinels that replace a primary.

use crate::server::{Server, wait_until};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use windlass_core::Error;
use windlass_redis::link::{Call, Event, Link, Script, Value};
use windlass_redis::options::Options;

static SCRIPTS: LazyLock<Vec<Script>> =
    LazyLock::new(|| vec![Script::new("incr", "return redis.call('INCRBY', KEYS[1], ARGV[1])")]);

async fn incr(link: &Link) -> Result<Value, Error> {
    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
    call.arg_fmt(1);
    link.call(&call).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_new_primary_is_found() {
    let mut primary = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    wait_until("the replica follows", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    let sentinel = Server::start_sentinel(primary.port);
    wait_until("the Sentinel knows the replica", || {
        sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains(&replica.port.to_string())
    });

    // One that is down is no obstacle.
    let url = |service: &str| format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{}/{service}", sentinel.port);
    let link = Link::open(Options::from_url(&url("main")).unwrap(), &SCRIPTS).unwrap();
    let mut events = link.subscribe("{windlass}:bell");
    assert_eq!(events.next().await, Some(Event::Subscribed));
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
    let error = incr(&Link::open(Options::from_url(&url("other")).unwrap(), &SCRIPTS).unwrap()).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid { .. } | Error::Unavailable { .. }), "{error:?}");

    wait_until("the change is on the replica", || replica.cli(&["GET", "{windlass}:n"]) == "1");
    primary.kill();
    let begun = Instant::now();
    let value = loop {
        match incr(&link).await {
            Ok(value) => break value,
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the new primary is not found");
    };
    println!("works again {:?} after the primary's end", begun.elapsed());
    assert!(value == Value::Int(2), "{value:?}");
    assert!(replica.cli(&["INFO", "replication"]).contains("role:master"));
    let again = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap();
    assert_eq!(again, Some(Event::Subscribed));
    replica.cli(&["PUBLISH", "{windlass}:bell", "x"]);
    assert_eq!(events.next().await, Some(Event::Message("x".into())));

    // A primary that becomes a replica without closing connections: calls are refused, and go to the new one.
    primary.restart();
    // By hand: a Sentinel that is short of time leaves its work for half a minute.
    assert_eq!(primary.cli(&["REPLICAOF", "127.0.0.1", &replica.port.to_string()]), "OK");
    wait_until("the old primary follows", || primary.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    wait_until("the failover begins", || sentinel.cli(&["SENTINEL", "FAILOVER", "main"]) == "OK");
    wait_until("the roles are changed", || {
        replica.cli(&["INFO", "replication"]).contains("role:slave")
            && primary.cli(&["INFO", "replication"]).contains("role:master")
    });
    let begun = Instant::now();
    while let Err(error) = incr(&link).await {
        assert!(error.is_retryable(), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{error:?}");
    }
}

async fn refusal(url: &str) -> Error {
    incr(&Link::open(Options::from_url(url).unwrap(), &SCRIPTS).unwrap()).await.unwrap_err()
}

#[tokio::test]
async fn a_sentinel_and_a_server_are_told_apart() {
    let server = Server::start(&[]);
    let sentinel = Server::start_sentinel(server.port);
    for (url, said, advice) in [
        (format!("redis+sentinel://127.0.0.1:{}/main", server.port), "is not a Sentinel", "redis://"),
        (sentinel.url(), "is a Sentinel", "redis+sentinel://"),
        (format!("redis+cluster://127.0.0.1:{}", sentinel.port), "not part of a cluster", "redis+sentinel://"),
    ] {
        let error = refusal(&url).await;
        let Error::Incompatible { what } = &error else { panic!("{url}: {error:?}") };
        assert!(what.contains(said) && what.contains(advice), "{what}");
    }
}

#[tokio::test]
async fn a_sentinel_that_refuses_is_named() {
    let server = Server::start(&[]);
    let sentinel = Server::start_sentinel(server.port);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    assert_eq!(sentinel.cli(&["ACL", "SETUSER", "default", "on", "resetpass", ">right"]), "OK");
    for (url, words) in [
        (format!("{url}?sentinel_password=wrong"), "sentinel_user or sentinel_password"),
        (url.clone(), "sentinel_password="),
    ] {
        let error = refusal(&url).await;
        let Error::Invalid { reason, .. } = &error else { panic!("{url}: {error:?}") };
        let named = format!("the Sentinel 127.0.0.1:{}", sentinel.port);
        assert!(reason.contains(&named) && reason.contains(words), "{reason}");
    }
    let link = Link::open(Options::from_url(&format!("{url}?sentinel_password=right")).unwrap(), &SCRIPTS).unwrap();
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
}
