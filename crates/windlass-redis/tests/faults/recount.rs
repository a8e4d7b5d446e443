//! The recount must notice what it is there to notice: every index and counter is broken once.

use crate::support::{assert_in_accord, claim, done, jobs};
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob};
use windlass_core::name::{DedupKey, GroupName};
use windlass_core::store::{Change, ChangeOp, EnqueueRequest, JobQueue};
use windlass_crash::recount::{Raw, recount};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

/// Jobs in every state, of groups and of none, with keys and with times.
async fn furnish(store: &RedisStore) {
    let mut all: Vec<NewJob> = jobs(24);
    for (k, job) in all.iter_mut().enumerate() {
        job.spec.group = (k % 2 == 0).then(|| GroupName::new(format!("g{}", k % 3)).unwrap());
        job.spec.priority = i16::from(k % 3 == 0);
        if k % 4 == 0 {
            let by = DedupBy::Key(DedupKey::new(format!("key-{k}")).unwrap());
            job.spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: (k % 8 == 0).then_some(60_000) });
        }
        if k >= 20 {
            job.due = Due::DelayMs(600_000);
        }
    }
    let last = all[19].id;
    store.enqueue(EnqueueRequest::new(all)).await.unwrap();
    let held = store.claim(claim(1, 8)).await.unwrap().jobs;
    assert_eq!(held.len(), 8);
    store.report(done(held.iter().take(4).map(|job| job.lease))).await.unwrap();
    let cancel = |id| Change { id, op: ChangeOp::Cancel };
    store.change(vec![cancel(held[7].lease.job), cancel(last)]).await.unwrap();
}

#[tokio::test]
async fn slow_every_broken_index_is_noticed() {
    let server = Redis::start().unwrap();
    let ask = |words: &[&str]| server.command(words).unwrap();
    let sets = ["ready", "ring", "scheduled", "leases", "ended", "cancelling", "dedup_until", "group_names"];
    for (round, key) in sets.iter().enumerate() {
        let prefix = format!("r{round}");
        let url = format!("{}?prefix={prefix}", server.url());
        furnish(&RedisStore::open_url(&url).unwrap()).await;
        assert_in_accord(&url).await;
        let key = format!("{{{prefix}}}:{key}");
        // Reads the members inside the server: some are more than a line.
        ask(&[
            "EVAL",
            "local m = redis.call('ZRANGE', KEYS[1], 0, 0) return redis.call('ZREM', KEYS[1], m[1])",
            "1",
            &key,
        ]);
        let missing = recount(&Raw::read(&url).await.unwrap());
        assert!(!missing.is_none(), "{key}: an entry is missing");
        ask(&["ZADD", &key, "7", "a1a10000000000000000nobody"]);
        let more = recount(&Raw::read(&url).await.unwrap());
        assert!(more.count > missing.count, "{key}: an entry stands for nothing");
    }
}

#[tokio::test]
async fn every_broken_counter_and_record_is_noticed() {
    let server = Redis::start().unwrap();
    let first = "local f = redis.call('HKEYS', KEYS[1]) for _, k in ipairs(f) do if string.match(k, ARGV[1]) then ";
    let bump = "local t = redis.call('HGET', KEYS[1], k) local a, n, b = string.match(t, ARGV[2]) redis.call('HSET', KEYS[1], \
                k, a .. (n + 1) .. b) return 1 end end return 0";
    let drop_it = "redis.call('HDEL', KEYS[1], k) return 1 end end return 0";
    let cases = [
        ("meta", "^q%d", "^()(%d+)(.*)$", bump),
        ("meta", "^q%d", "^(%d+ %d+ )(%d+)(.*)$", bump),
        ("meta", "^q%d", "^(%d+ %d+ %d+ %d+ %d+ %d+ %d+ %d+ )(%d+)(.*)$", bump),
        ("meta", "^l%d", "^(%d+ )(%d+)(.*)$", bump),
        ("meta", "^l%d", "^(%d+ %d+ )(%d+)(.*)$", bump),
        ("meta", "^feed$", "^()(%d+)()$", bump),
        ("groups", "^%d", "^(%d+ )(%d+)(.*)$", bump),
        ("groups", "^%d", "^(%d+ %d+ )(%d+)(.*)$", bump),
        ("groups", "^s", "^()(%d+)(.*)$", bump),
        ("groups", "^n", "", drop_it),
        ("jobs", ".", "", drop_it),
        ("life", ".", "", drop_it),
        ("dedup", ".", "", drop_it),
    ];
    for (round, (key, field, pattern, change)) in cases.into_iter().enumerate() {
        let prefix = format!("r{round}");
        let url = format!("{}?prefix={prefix}", server.url());
        furnish(&RedisStore::open_url(&url).unwrap()).await;
        assert_in_accord(&url).await;
        let (script, key) = (format!("{first}{change}"), format!("{{{prefix}}}:{key}"));
        // `()` captures a place in Lua, where nothing is meant.
        let script = script.replace("local a, n, b = string.match(t, ARGV[2])", CAPTURE);
        assert_eq!(server.command(&["EVAL", &script, "1", &key, field, pattern]).unwrap(), "1", "{key} {field}");
        let discord = recount(&Raw::read(&url).await.unwrap());
        assert!(!discord.is_none(), "{key} {field} {pattern}");
    }
}

const CAPTURE: &str = "local a, n, b = string.match(t, ARGV[2]) a = type(a) == 'number' and '' or a \
                       b = type(b) == 'number' and '' or b";
