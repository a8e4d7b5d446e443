//! Sentinels that replace a primary.

use crate::server::{Server, wait_until};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use windlass_core::Error;
use windlass_core::time::HANG_GUARD;
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
    assert_eq!(events.next().await, Some(Event::Lost));
    let again = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap();
    assert_eq!(again, Some(Event::Subscribed));
    replica.cli(&["PUBLISH", "{windlass}:bell", "x"]);
    assert_eq!(events.next().await, Some(Event::Message("x".into())));

    // A primary that becomes a replica without closing connections: calls are refused, and go to the new one.
    // From here on the Sentinel acts only when it is asked to, also on a machine that is too busy to answer it in time.
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", "600000"]), "OK");
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

fn link(url: &str) -> Link {
    Link::open(Options::from_url(url).unwrap(), &SCRIPTS).unwrap()
}

/// A Sentinel that was left behind names a node that is dead, or that is a replica by now, and answers before the others.
#[tokio::test]
async fn an_outdated_sentinel_does_not_keep_the_store_from_its_primary() {
    let primary = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    wait_until("the replica follows", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    let mut dead = Server::start(&[]);
    let names_dead = Server::start_sentinel(dead.port);
    // So that it does not act on what it believes.
    assert_eq!(names_dead.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", "600000"]), "OK");
    dead.kill();
    let names_replica = Server::start_sentinel(replica.port);
    let current = Server::start_sentinel(primary.port);
    for outdated in [&names_dead, &names_replica] {
        for round in 0..10 {
            // The one that is current answers last.
            current.signal("-STOP");
            let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", outdated.port, current.port);
            let link = link(&url);
            let call = tokio::spawn(async move { incr(&link).await });
            // sleeps because: the outdated answer is to be there first; any order must do.
            tokio::time::sleep(Duration::from_millis(20)).await;
            current.signal("-CONT");
            assert!(call.await.unwrap().is_ok(), "round {round}");
        }
    }
    assert_eq!(primary.cli(&["GET", "{windlass}:n"]), "20", "all calls went to the primary");
}

/// Right after a promotion the old primary still accepts writes, and will lose them. A process that starts then has heard no
/// announcement: its first connection waits for the answers of all Sentinels.
#[tokio::test]
async fn the_first_connection_waits_for_a_sentinel_that_answers_late() {
    let (old, new) = (Server::start(&[]), Server::start(&[]));
    let (outdated, current) = (Server::start_sentinel(old.port), Server::start_sentinel_at(new.port, 1));
    current.signal("-STOP");
    let sentinels = format!("127.0.0.1:{},127.0.0.1:{}", outdated.port, current.port);
    let link = link(&format!("redis+sentinel://{sentinels}/main?connect_timeout_ms={}", HANG_GUARD.as_millis()));
    let call = tokio::spawn(async move { incr(&link).await });
    // sleeps because: the other Sentinels are waited for; later connections wait for a quarter of a second.
    tokio::time::sleep(Duration::from_millis(600)).await;
    current.signal("-CONT");
    assert_eq!(call.await.unwrap(), Ok(Value::Int(1)));
    assert_eq!((new.cli(&["GET", "{windlass}:n"]), old.cli(&["GET", "{windlass}:n"])), ("1".into(), String::new()));
}

/// `FAILOVER TO` changes the roles without the Sentinels, which name the old primary for a while.
#[tokio::test]
async fn slow_a_replica_leads_to_its_primary_when_the_sentinels_name_the_replica() {
    let old = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let new = Server::start(&["--replicaof", &format!("127.0.0.1 {}", old.port)]);
    wait_until("the replica follows", || new.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    let sentinel = Server::start_sentinel(old.port);
    wait_until("the Sentinel has the replica", || {
        sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains(&new.port.to_string())
    });
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", "600000"]), "OK");
    let link = link(&format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port));
    let mut events = link.subscribe("{windlass}:bell");
    assert_eq!(events.next().await, Some(Event::Subscribed));
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
    let to = new.port.to_string();
    wait_until("the failover begins", || old.cli(&["FAILOVER", "TO", "127.0.0.1", &to]) == "OK");
    wait_until("the roles are changed", || {
        old.cli(&["ROLE"]).starts_with("slave") && new.cli(&["ROLE"]).starts_with("master")
    });
    assert_eq!(incr(&link).await, Ok(Value::Int(2)));
    // The subscription moves with the calls.
    assert_eq!(events.next().await, Some(Event::Lost));
    assert_eq!(events.next().await, Some(Event::Subscribed));
    new.cli(&["PUBLISH", "{windlass}:bell", "x"]);
    assert_eq!(events.next().await, Some(Event::Message("x".into())));
    let named = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
    assert!(named.ends_with(&old.port.to_string()), "the Sentinel is right already, so this shows nothing: {named}");
}

async fn durable_incr(link: &Link) -> Result<Value, Error> {
    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
    call.arg_fmt(1);
    link.durable_call(&call).await
}

#[tokio::test]
async fn slow_all_replicas_that_are_up_are_waited_for() {
    let primary = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let follow = format!("127.0.0.1 {}", primary.port);
    let replicas = [(); 2].map(|()| Server::start(&["--replicaof", &follow]));
    for replica in &replicas {
        wait_until("the replica follows", || replica.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    }
    let sentinel = Server::start_sentinel(primary.port);
    let flags = || {
        let said = sentinel.cli(&["SENTINEL", "REPLICAS", "main"]);
        let lines: Vec<String> = said.lines().map(str::to_owned).collect();
        let flags = lines.iter().zip(lines.iter().skip(1)).filter(|(name, _)| *name == "flags");
        flags.map(|(_, flags)| flags.clone()).collect::<Vec<_>>()
    };
    wait_until("the Sentinel has both replicas", || flags() == ["slave", "slave"]);
    // Not so soon that the next step has passed by then.
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", "600000"]), "OK");
    let link = link(&format!("redis+sentinel://127.0.0.1:{}/main?wait_replicas=all&timeout_ms=2000", sentinel.port));
    assert!(durable_incr(&link).await.is_ok());
    replicas[0].signal("-STOP");
    let error = durable_incr(&link).await.unwrap_err();
    assert!(matches!(&error, Error::Unknown { reason } if reason.contains("1 of 2 replicas")), "{error:?}");
    // Once the Sentinel considers it down, it cannot be promoted and is not waited for.
    assert_eq!(sentinel.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", "100"]), "OK");
    wait_until("the Sentinel considers one down", || flags().iter().any(|flags| flags.contains("s_down")));
    let until = Instant::now() + Duration::from_secs(60);
    while let Err(error) = durable_incr(&link).await {
        assert!(Instant::now() < until && matches!(error, Error::Unknown { .. }), "{error:?}");
    }
    replicas[0].signal("-CONT");
}

/// The URL names one Sentinel; the others are listened to as well, because one of them may lead a failover.
#[tokio::test]
async fn slow_sentinels_that_the_url_does_not_name_are_listened_to() {
    let primary = Server::start(&[]);
    let sentinels = [(); 3].map(|()| Server::start_sentinel(primary.port));
    wait_until("the Sentinels have found each other", || {
        sentinels.iter().all(|one| one.cli(&["SENTINEL", "MASTER", "main"]).contains("num-other-sentinels\n2"))
    });
    // Under another address than the one that the others name.
    let link = link(&format!("redis+sentinel://localhost:{}/main", sentinels[0].port));
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
    // A Sentinel has no PUBSUB. Other Sentinels subscribe to it, too, but not to as many channels.
    let listeners = |sentinel: &Server| sentinel.cli(&["CLIENT", "LIST"]).matches(" sub=11 ").count();
    for sentinel in &sentinels {
        wait_until("each is subscribed to once", || listeners(sentinel) == 1);
    }
    drop(link);
    for sentinel in &sentinels {
        wait_until("and no longer than the link exists", || listeners(sentinel) == 0);
    }
}

/// A user that may only subscribe and ask for the address is enough; one that may not subscribe is refused, because it would
/// not be notified of a failover.
#[tokio::test]
async fn a_user_at_the_sentinels_needs_the_right_to_subscribe() {
    let server = Server::start(&[]);
    let sentinel = Server::start_sentinel(server.port);
    let grant = |rights: &[&str]| {
        let words = [&["ACL", "SETUSER", "app", "reset", "on", ">secret", "&*"][..], rights].concat();
        assert_eq!(sentinel.cli(&words), "OK");
    };
    let url = format!("redis+sentinel://127.0.0.1:{}/main?sentinel_user=app&sentinel_password=secret", sentinel.port);
    grant(&["+subscribe", "+sentinel|get-master-addr-by-name"]);
    assert_eq!(incr(&link(&url)).await, Ok(Value::Int(1)));
    grant(&["+sentinel|get-master-addr-by-name"]);
    let error = refusal(&url).await;
    let Error::Invalid { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains(&format!("the Sentinel 127.0.0.1:{}", sentinel.port)), "{reason}");
    assert!(reason.contains("subscribe"), "{reason}");
}
