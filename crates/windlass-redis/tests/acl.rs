//! Least privilege: the user of the guide can do all that the store does, and nothing beyond it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use windlass_conformance::{Ctx, Factory, Opened, TestClock, all_cases};
use windlass_core::random::StrongRandom;
use windlass_core::store::{JobQueue as _, Store};
use windlass_core::time::{Timestamp, VirtualClock};
use windlass_redis::doctor::{Depth, Severity, examine};
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

static SERVER: LazyLock<(Redis, String)> = LazyLock::new(|| {
    let server = Redis::start().unwrap();
    let url = grant(&server, "suite-*", None);
    (server, url)
});
static STORES: AtomicU64 = AtomicU64::new(0);

struct Restricted;

fn open(url: &str, clock: &Arc<VirtualClock>, seed: u64) -> Arc<dyn Store> {
    let options = Options::from_url(url).unwrap();
    Arc::new(RedisStore::open_with(options, clock.clone(), Arc::new(StrongRandom::seeded(seed))).unwrap())
}

#[async_trait::async_trait]
impl Factory for Restricted {
    async fn open(&self) -> Opened {
        let url = format!("{}?prefix=suite-{}", SERVER.1, STORES.fetch_add(1, Ordering::Relaxed));
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let store = open(&url, &clock, 7);
        Opened { store, clock: TestClock::Virtual(clock), keep: Some(Box::new(url)) }
    }

    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        let url = opened.keep.as_ref()?.downcast_ref::<String>()?;
        let TestClock::Virtual(clock) = &opened.clock else { return None };
        Some(open(url, clock, 8))
    }
}

/// The suite as that user; afterwards the stores fit together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_the_suite_passes_with_the_rights_of_the_guide() {
    let (mut ran, mut fit) = (0, 0);
    // The random model takes minutes, and sends nothing else.
    for case in all_cases().into_iter().filter(|case| !case.name.starts_with("model::")) {
        let before = STORES.load(Ordering::Relaxed);
        (case.run)(Ctx::open(Arc::new(Restricted)).await).await;
        // Some of them: to examine one takes longer than most cases.
        for store in (before..STORES.load(Ordering::Relaxed)).filter(|store| store % 3 == 0) {
            let options = Options::from_url(&format!("{}?prefix=suite-{store}", SERVER.1)).unwrap();
            let found = examine(&options, Depth { whole: true }).await.unwrap();
            let wrong = |one: &&windlass_redis::doctor::Finding| {
                ["rights", "orphans", "counters", "groups", "quarantine"].contains(&one.check)
                    && one.severity >= Severity::Warning
            };
            let wrong: Vec<_> = found.findings.iter().filter(wrong).collect();
            assert!(found.usable && wrong.is_empty(), "{}: {wrong:#?}", case.name);
            fit += u32::from(found.findings.iter().any(|one| one.check == "orphans"));
        }
        ran += 1;
    }
    assert!(ran > 300 && fit > 50, "{ran} cases ran, {fit} stores held something");
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
