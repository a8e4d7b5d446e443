//! Least privilege: the user of the guide can do all that the store does, and nothing beyond it. One who lacks a part of it
//! is not let in: a script that meets what is forbidden has done its first half.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use support::suite::{On, run_and_check};
use support::{block, enqueue, enqueue_one, job};
use windlass_core::Error;
use windlass_core::store::JobQueue as _;
use windlass_redis::doctor::{Depth, Finding, Severity, examine};
use windlass_redis::link::ON_KEYS;
use windlass_redis::{Options, RedisStore};
use windlass_servers::Redis;

/// The line that the guide shows, for its user `app` and the prefix `windlass`.
fn line() -> Vec<String> {
    let guide = include_str!("../../../docs/redis.md");
    let start = guide.find("ACL SETUSER app ").unwrap();
    let block = &guide[start..start + guide[start..].find("```").unwrap()];
    block
        .split_whitespace()
        .filter(|word| *word != "\\")
        .map(|word| word.trim_matches('\'').replace('\\', ""))
        .collect()
}

/// Gives the user of the guide the rights that the guide shows, for another prefix, without one of them.
fn grant(server: &Redis, prefix: &str, without: Option<&str>) -> String {
    let rules = line().into_iter().filter(|rule| Some(rule.as_str()) != without);
    let rules: Vec<String> = rules.map(|rule| rule.replace("{windlass}", &format!("{{{prefix}}}"))).collect();
    assert!(rules.iter().any(|rule| rule.starts_with('>')), "a password: {rules:?}");
    server.command(&rules.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let password = rules.iter().find_map(|rule| rule.strip_prefix('>')).unwrap();
    format!("redis://app:{password}@127.0.0.1:{}", server.port())
}

/// The suite as that user; afterwards the stores fit together.
#[test]
fn slow_the_suite_passes_with_the_rights_of_the_guide() {
    let server = Redis::start().unwrap();
    let on = On { url: grant(&server, "suite-*", None), scripts: Box::new(windlass_redis::scripts::all) };
    let (stores, fit) = (AtomicU64::new(0), AtomicU64::new(0));
    let check = |urls: &[String]| {
        // Some of them: to examine one takes longer than most cases.
        for url in urls.iter().filter(|_| stores.fetch_add(1, Ordering::Relaxed) % 3 == 0) {
            fit.fetch_add(u64::from(block(fits_together(url))), Ordering::Relaxed);
        }
    };
    // The random model of jobs takes minutes, and sends nothing else.
    let ran = run_and_check(on, |name| !name.starts_with("model::"), check);
    let fit = fit.into_inner();
    assert!(ran > 300 && fit > 50, "{ran} cases ran, {fit} stores held something");
}

/// Nothing is wrong with a store; true when it holds anything.
async fn fits_together(url: &str) -> bool {
    let found = examine(&Options::from_url(url).unwrap(), Depth { whole: true }).await.unwrap();
    let wrong = |one: &&Finding| {
        ["rights", "orphans", "counters", "groups", "quarantine"].contains(&one.check)
            && one.severity >= Severity::Warning
    };
    let wrong: Vec<_> = found.findings.iter().filter(wrong).collect();
    assert!(found.usable && wrong.is_empty(), "{url}: {wrong:#?}");
    found.findings.iter().any(|one| one.check == "orphans")
}

#[tokio::test]
async fn slow_no_right_of_the_guide_is_too_much() {
    let server = Redis::start().unwrap();
    let url = grant(&server, "windlass", None);
    let whole = examine(&Options::from_url(&url).unwrap(), Depth::default()).await.unwrap();
    assert!(whole.usable, "{whole:?}");
    let all = line();
    let rights: Vec<&str> = all.iter().map(String::as_str).filter(|rule| rule.starts_with(['+', '~', '&'])).collect();
    assert!(rights.len() > 20, "{rights:?}");
    for right in rights {
        let url = grant(&server, "windlass", Some(right));
        let found = examine(&Options::from_url(&url).unwrap(), Depth::default()).await;
        let missed = match &found {
            // Without this one nobody gets in.
            Err(error) => error.to_string().contains("access control list"),
            Ok(found) => found.findings.iter().any(|one| one.check == "rights" && one.severity > Severity::Ok),
        };
        assert!(missed, "nobody needs {right}: {found:#?}");
    }
}

#[tokio::test]
async fn other_keys_are_out_of_reach() {
    let server = Redis::start().unwrap();
    let url = grant(&server, "windlass", None);
    let other = RedisStore::open_url(&format!("{url}?prefix=other")).unwrap();
    let refused = other.queues().await.unwrap_err().to_string();
    assert!(refused.contains("access control list"), "{refused}");
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0");
    let raw = redis::Client::open(url).unwrap();
    let mut connection = raw.get_multiplexed_async_connection().await.unwrap();
    for words in
        [&["KEYS", "*"][..], &["FLUSHALL"], &["CONFIG", "SET", "save", ""], &["GET", "x"], &["DEL", "{windlass}:jobs"]]
    {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer: redis::RedisResult<redis::Value> = command.query_async(&mut connection).await;
        assert_eq!(answer.unwrap_err().code(), Some("NOPERM"), "{words:?}");
    }
}

#[tokio::test]
async fn who_lacks_a_command_is_refused_before_anything_is_written() {
    let server = Redis::start().unwrap();
    let on_keys = ON_KEYS.iter().map(|(name, _)| format!("+{}", name.to_lowercase()));
    let others = ["+evalsha", "+eval", "+time", "+publish"].map(str::to_owned);
    for right in on_keys.chain(others) {
        assert!(line().contains(&right), "the guide does not grant {right}");
        let store = RedisStore::open_url(&grant(&server, "windlass", Some(&right))).unwrap();
        let refused = try_enqueue(&store).await.unwrap_err();
        let Error::Invalid { reason, .. } = &refused else { panic!("{right}: {refused:?}") };
        assert!(reason.contains("access control list") && reason.contains(&right), "{right}: {reason}");
        assert!(reason.contains("windlass doctor"), "{reason}");
        assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0", "{right}");
    }
    let store = RedisStore::open_url(&grant(&server, "windlass", None)).unwrap();
    enqueue(&store, vec![job()]).await;
    // Channels and keys of another prefix.
    for (right, named) in [("~{windlass}:*", "~{windlass}:*"), ("&{windlass}:*", "&{windlass}:*")] {
        let store = RedisStore::open_url(&grant(&server, "windlass", Some(right))).unwrap();
        let refused = try_enqueue(&store).await.unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
}

async fn try_enqueue(store: &RedisStore) -> Result<(), Error> {
    let answers = store.enqueue(windlass_core::store::EnqueueRequest::new(vec![job()])).await?;
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

#[tokio::test]
async fn waiting_for_replicas_and_other_databases_need_rights_of_their_own() {
    let server = Redis::start().unwrap();
    let url = grant(&server, "windlass", None);
    for (rest, right) in [("?wait_replicas=1", "+wait"), ("/2", "+select")] {
        let refused = try_enqueue(&RedisStore::open_url(&format!("{url}{rest}")).unwrap()).await.unwrap_err();
        let Error::Invalid { reason, .. } = &refused else { panic!("{right}: {refused:?}") };
        assert!(reason.contains("access control list") && reason.contains(right), "{reason}");
    }
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0");
}

async fn feed_findings(url: &str) -> Vec<Finding> {
    let found = examine(&Options::from_url(url).unwrap(), Depth::default()).await.unwrap();
    found.findings.into_iter().filter(|one| one.check == "feed").collect()
}

/// Rights that are taken away under an open connection still stop a script half-way.
#[tokio::test]
async fn what_was_stopped_half_way_is_named_and_set_right() {
    let server = Redis::start().unwrap();
    let url = grant(&server, "windlass", None);
    let store = RedisStore::open_url(&url).unwrap();
    // Connected, and nothing is there yet.
    store.queues().await.unwrap();
    server.command(&["ACL", "SETUSER", "app", "-hset"]).unwrap();
    let stopped = try_enqueue(&store).await.unwrap_err();
    assert!(matches!(&stopped, Error::Invalid { .. }), "{stopped:?}");
    assert!(stopped.to_string().contains("windlass doctor"), "{stopped}");
    server.command(&["ACL", "SETUSER", "app", "+hset"]).unwrap();
    let ahead = try_enqueue(&store).await.unwrap_err();
    assert!(matches!(&ahead, Error::Corrupt { what } if what.contains("windlass doctor")), "{ahead:?}");

    let found = feed_findings(&url).await;
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((one.severity, one.message.contains("1 entry ahead")), (Severity::Error, true), "{one:?}");
    let hint = one.hint.as_ref().unwrap();
    let words = hint.split_once("redis-cli ").unwrap().1.split_once(',').unwrap().0;
    let words: Vec<&str> = words.split(' ').map(|word| word.trim_matches('\'')).collect();
    assert_eq!(words[..2], ["HSET", "{windlass}:meta"], "{hint}");
    server.command(&words).unwrap();
    enqueue_one(&store, job()).await.unwrap();
    assert_eq!(feed_findings(&url).await, []);
}
