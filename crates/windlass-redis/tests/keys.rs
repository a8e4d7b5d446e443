//! No script touches a key that it did not declare, or sends a message that is not of its store: on a cluster such a
//! script is stopped half-way while a slot moves, and an access list cannot hold it.
//!
//! Every script is run with a guard in front (`guard.lua`) that knows the keys of every command the scripts use. A command
//! that it does not know is refused, too: add it there, and say where its keys are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::LazyLock;
use support::suite::{On, run_all};
use support::{block, enqueue, enqueue_one, fresh_url, job, job_with, keep, open_with_scripts, virtual_clock};
use windlass_core::Error;
use windlass_core::job::{Due, NewJob};
use windlass_core::store::{EnqueueRequest, JobQueue, ListRequest};
use windlass_redis::link::{Call, Link, Script};
use windlass_redis::{Options, RedisStore, scripts};
use windlass_servers::Redis;

const GUARD: &str = include_str!("guard.lua");

/// A script with Lua between its flags and the rest.
fn with_prelude(script: &Script, prelude: &str) -> Script {
    let (flags, rest) = script.text().split_once('\n').unwrap();
    assert!(flags.starts_with("#!lua"), "{flags}");
    Script::new(script.name(), format!("{flags}\n{prelude}\n{rest}"))
}

static GUARDED: LazyLock<&'static [Script]> =
    LazyLock::new(|| keep(scripts::all().iter().map(|script| with_prelude(script, GUARD)).collect()));

#[test]
fn slow_the_whole_suite_passes_with_guarded_scripts() {
    let server = Redis::start().unwrap();
    run_all(On { url: server.url(), scripts: Box::new(|| *GUARDED) });
}

/// Runs Lua behind the guard, with two keys of which it is told one.
async fn run_guarded(server: &Redis, body: &str) -> Result<(), Error> {
    let script = with_prelude(&Script::new("cheat", format!("#!lua\n{body}")), GUARD);
    let link = Link::open(Options::from_url(&server.url()).unwrap(), &[]).unwrap();
    let mut call = Call::new(&script, &["{w}:told"]);
    call.arg("").arg("{w}:bell:");
    link.call(&call).await.map(drop)
}

#[test]
fn a_script_that_cheats_is_caught() {
    let server = Redis::start().unwrap();
    block(async {
        for honest in [
            "return redis.call('HGET', KEYS[1], 'f')",
            "redis.call('PUBLISH', '{w}:bell:x', '1') return redis.call('TIME')",
            "return redis.pcall('ZADD', KEYS[1], 1, 'm')",
        ] {
            assert_eq!(run_guarded(&server, honest).await, Ok(()), "{honest}");
        }
        for (cheat, words) in [
            ("return redis.call('HGET', '{w}:other', 'f')", "not declared"),
            ("return redis.pcall('HSET', '{w}:other', 'f', 1)", "not declared"),
            ("local call = redis.call return call('HGET', KEYS[2], 'f')", "not declared"),
            ("return redis.call('PUBLISH', '{v}:bell:x', '1')", "no bell of this store"),
            ("return redis.call('DEL', KEYS[1])", "not one that scripts are known to use"),
            ("return redis.call('RENAME', KEYS[1], 'x')", "not one that scripts are known to use"),
        ] {
            let refused = run_guarded(&server, cheat).await.unwrap_err().to_string();
            assert!(refused.contains("GUARD") && refused.contains(words), "{cheat}: {refused}");
        }
    });
}

/// What the guard cannot see: ways to the server that do not go through its table.
#[test]
fn scripts_reach_the_server_in_one_way() {
    for script in scripts::all() {
        let text = script.text();
        assert_eq!(text.matches("redis").count(), 1, "{} uses more than redis.call", script.name());
        assert!(text.contains("= redis.call"), "{}", script.name());
        for word in ["_G", "loadstring", "dofile", "setfenv", "getfenv", "rawset", "server."] {
            assert!(!text.contains(word), "{} uses {word}", script.name());
        }
    }
}

/// Guarded scripts, with an enqueue that refuses more than the ten keys of plain jobs. The store exists, with one job: the call that
/// creates a store is given all keys.
async fn plain_only(server: &Redis) -> RedisStore {
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    enqueue(&open_with_scripts(&url, &clock, *GUARDED), vec![job()]).await;
    let narrow = "if #KEYS ~= 10 then error('GUARD: ' .. #KEYS .. ' keys') end\n";
    let guarded = |script: &Script| {
        let narrow = if script.name() == "enqueue" { narrow } else { "" };
        with_prelude(script, &format!("{narrow}{GUARD}"))
    };
    let scripts = keep(scripts::all().iter().map(guarded).collect());
    open_with_scripts(&url, &clock, scripts)
}

#[test]
fn plain_jobs_touch_ten_keys_and_nothing_else() {
    let server = Redis::start().unwrap();
    block(async {
        let store = plain_only(&server).await;
        let plain: [fn() -> NewJob; 5] = [
            job,
            || job_with(|spec| spec.priority = -7),
            || job_with(|spec| spec.lifo = true),
            || job_with(|spec| spec.kind = "other".try_into().unwrap()),
            || job_with(|spec| spec.keep_for.succeeded_ms = Some(1)),
        ];
        for _ in 0..3 {
            let jobs: Vec<NewJob> = plain.iter().map(|make| make()).collect();
            enqueue(&store, jobs.clone()).await;
            // Once more, of which nothing is new; and all or nothing.
            enqueue(&store, jobs).await;
            let atomic = EnqueueRequest { atomic: true, ..EnqueueRequest::new(plain.map(|make| make()).into()) };
            assert!(store.enqueue(atomic).await.unwrap().iter().all(Result::is_ok));
        }
        let all = store.list(ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap();
        assert_eq!(all.jobs.len(), 31);
    });
}

/// The other half: these need more, and a store that gave them ten would be found out.
#[test]
fn jobs_that_are_not_plain_are_sent_with_all_keys() {
    let server = Redis::start().unwrap();
    block(async {
        let store = plain_only(&server).await;
        let grouped = job_with(|spec| spec.group = Some("g".try_into().unwrap()));
        for other in [grouped, job().due(Due::DelayMs(1_000))] {
            let refused = store.enqueue(EnqueueRequest::new(vec![other])).await.unwrap_err().to_string();
            assert!(refused.contains("GUARD: 35 keys"), "{refused}");
        }
        enqueue_one(&store, job()).await.unwrap();
    });
}
