//! Who is let in, and which servers are refused.

use crate::server::Server;
use std::sync::LazyLock;
use windlass_core::Error;
use windlass_redis::link::{Call, Command, Link, Script, Value};
use windlass_redis::options::Options;

static SCRIPTS: LazyLock<Vec<Script>> =
    LazyLock::new(|| vec![Script::new("incr", "return redis.call('INCRBY', KEYS[1], ARGV[1])")]);

fn open(url: &str) -> Link {
    Link::open(Options::from_url(url).unwrap(), &SCRIPTS).unwrap()
}

async fn incr(link: &Link) -> Result<Value, Error> {
    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
    call.arg_fmt(1);
    link.call(&call).await
}

#[tokio::test]
async fn a_password_may_have_any_characters() {
    let server = Server::start(&["--requirepass", "a@b:c/d?e#f%g"]);
    let link = open(&format!("redis://:a%40b%3Ac%2Fd%3Fe%23f%25g@127.0.0.1:{}", server.port));
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
    for (url, advice) in [
        (server.url(), "user:password@"),
        (format!("redis://:hunter2@127.0.0.1:{}", server.port), "does not accept the user or the password"),
        (format!("redis://nobody:hunter2@127.0.0.1:{}", server.port), "does not accept the user or the password"),
    ] {
        let link = open(&url);
        let error = incr(&link).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { reason, .. } if reason.contains(advice)), "{error}");
        let shown = format!("{error} {error:?} {link:?} {:?}", link.options());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let open_server = Server::start(&[]);
    let error = incr(&open(&format!("redis://:hunter2@127.0.0.1:{}", open_server.port))).await;
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

/// A server that knows no HELLO repeats what it was given, the password too.
#[tokio::test]
async fn a_server_that_repeats_the_password_does_not_show_it() {
    let server = Server::start(&["--rename-command", "HELLO", ""]);
    let error = incr(&open(&format!("redis://u:hunter2@127.0.0.1:{}", server.port))).await.unwrap_err();
    assert!(matches!(&error, Error::Incompatible { .. }), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn what_the_access_list_forbids_is_named() {
    let server = Server::start(&[]);
    server.cli(&["ACL", "SETUSER", "some", "on", ">pw", "~{windlass}*", "&{windlass}*", "+@all", "-incrby"]);
    server.cli(&["ACL", "SETUSER", "other", "on", ">pw", "~x", "+@all"]);
    server.cli(&["ACL", "SETUSER", "none", "on", ">pw", "~*", "+info", "+hello"]);
    for (user, named) in [("some", "can't run this command"), ("other", "~{windlass}:*"), ("none", "'eval'")] {
        let error = incr(&open(&format!("redis://{user}:pw@127.0.0.1:{}", server.port))).await.unwrap_err();
        let Error::Invalid { reason, .. } = &error else { panic!("{user}: {error:?}") };
        assert!(reason.contains(named) && reason.contains("grant"), "{reason}");
    }
    // One who may not load scripts sends them with the call.
    server.cli(&["ACL", "SETUSER", "noload", "on", ">pw", "~{windlass}*", "&{windlass}*", "+@all", "-script"]);
    server.cli(&["SCRIPT", "FLUSH"]);
    let link = open(&format!("redis://noload:pw@127.0.0.1:{}", server.port));
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
}

#[tokio::test]
async fn a_replica_is_refused_and_its_primary_named() {
    let primary = Server::start(&[]);
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    let error = incr(&open(&replica.url())).await.unwrap_err();
    let Error::Incompatible { what } = &error else { panic!("{error:?}") };
    assert!(what.contains(&primary.port.to_string()), "{what}");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_unless_that_is_wanted() {
    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = incr(&open(&server.url())).await.unwrap_err();
    assert!(matches!(&error, Error::Incompatible { what } if what.contains("allkeys-lru")), "{error}");
    let link = open(&format!("{}?allow_eviction=true", server.url()));
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
}

#[tokio::test]
async fn a_full_memory_is_full() {
    let server = Server::start(&["--maxmemory", "1"]);
    let error = incr(&open(&server.url())).await.unwrap_err();
    assert!(matches!(&error, Error::Full { what } if what.contains("maxmemory")), "{error:?}");
}

#[tokio::test]
async fn databases_are_separate_and_must_exist() {
    let server = Server::start(&[]);
    assert_eq!(incr(&open(&format!("{}/3", server.url()))).await, Ok(Value::Int(1)));
    assert_eq!(server.cli(&["-n", "3", "GET", "{windlass}:n"]), "1");
    assert_eq!(server.cli(&["GET", "{windlass}:n"]), "");
    let error = incr(&open(&format!("{}/99", server.url()))).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid { reason, .. } if reason.contains("database")), "{error:?}");
}

#[tokio::test]
async fn a_users_own_client_is_used_as_it_is() {
    let server = Server::start(&["--requirepass", "pw"]);
    let client = redis::Client::open(format!("redis://:pw@127.0.0.1:{}/2", server.port)).unwrap();
    let link = Link::from_client(&client, Options::single("ignored", 1), &SCRIPTS).unwrap();
    assert_eq!(incr(&link).await, Ok(Value::Int(1)));
    assert_eq!(server.cli(&["-a", "pw", "-n", "2", "GET", "{windlass}:n"]), "1");
}

#[tokio::test]
async fn commands_are_answered_one_by_one() {
    let server = Server::start(&[]);
    let link = open(&server.url());
    let answers = link.commands(&[Command::new("PING"), Command::new("NONSENSE"), Command::new("TIME")]).await.unwrap();
    assert_eq!(answers[0], Ok(Value::SimpleString("PONG".to_owned())));
    assert!(matches!(&answers[1], Err(Error::Incompatible { .. })), "{:?}", answers[1]);
    assert!(matches!(&answers[2], Ok(Value::Array(time)) if time.len() == 2));
    let info = link.command(&Command::new("INFO").arg("server")).await.unwrap();
    assert!(format!("{info:?}").contains("redis_version"));
}
