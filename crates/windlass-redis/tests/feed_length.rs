//! The length of the feed on Redis: bounded work per call, and what is stored. The suite has the rest.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::{enqueue, job};
use windlass_core::store::{Feed as _, FeedCursor, FeedRequest};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

/// Puts entries of one event each into the feed, as steps of a schedule would.
const FILL: &str = "for i = 1, tonumber(ARGV[1]) do \
                    redis.call('XADD', KEYS[2], i .. '-0', 'n', i, 't', 1, 'q', '', 'e', 'fired 1 \"s\"') end \
                    redis.call('HSET', KEYS[1], 'feed', ARGV[1], 'events', ARGV[1], 'layout', 1)";

/// Entries of 4,096 jobs, of which 500 are enqueued in a step.
const ENTRIES: u64 = 9;

fn filled(entries: &str) -> (Redis, RedisStore) {
    let server = Redis::start().unwrap();
    server.command(&["EVAL", FILL, "2", "{windlass}:meta", "{windlass}:feed", entries]).unwrap();
    let store = RedisStore::open_url(&server.url()).unwrap();
    (server, store)
}

fn length(server: &Redis) -> u64 {
    server.command(&["XLEN", "{windlass}:feed"]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn setting_a_shorter_length_shortens_the_feed_in_several_calls() {
    let (server, store) = filled("30000");
    let calls = || {
        let stats = server.command(&["INFO", "commandstats"]).unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(str::to_owned);
        line.map_or(0, |line| line["cmdstat_evalsha:calls=".len()..].split(',').next().unwrap().parse::<u32>().unwrap())
    };
    store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap();
    let before = calls();
    store.set_feed_events(1_500).await.unwrap();
    assert_eq!(length(&server), 1_500);
    assert_eq!(calls() - before, 4, "28,500 entries, at most 8,192 in a call");
    let page = store.read_feed(FeedRequest { after: Some(FeedCursor(28_500)), max: 10_000 }).await.unwrap();
    assert_eq!((page.gap, page.entries.len()), (false, 1_500));
    assert!(store.read_feed(FeedRequest { after: Some(FeedCursor(28_499)), max: 1 }).await.unwrap().gap);
    store.set_feed_events(1_500).await.unwrap();
    assert_eq!(length(&server), 1_500);
}

#[tokio::test]
async fn a_step_forgets_a_bounded_number_of_entries() {
    // 12 short of a multiple of 4,096, which is where a step looks.
    let (server, store) = filled("40948");
    server.command(&["HSET", "{windlass}:meta", "feed_events", "1000"]).unwrap();
    enqueue(&store, (0..12).map(|_| job()).collect()).await;
    assert_eq!(length(&server), 40_949 - 8_192);
    // The next time that it looks.
    enqueue(&store, (0..4_096).map(|_| job()).collect()).await;
    assert_eq!(length(&server), 40_949 + ENTRIES - 2 * 8_192);
}

/// A store of schedules and single jobs has steps of one event: as many entries are added between two looks as events.
#[tokio::test]
async fn a_feed_of_steps_with_one_event_keeps_its_length() {
    // One short of a multiple of 4,096, which is where a step looks.
    let (server, store) = filled("4095");
    server.command(&["HSET", "{windlass}:meta", "feed_events", "1000"]).unwrap();
    for round in 1..=4_u32 {
        enqueue(&store, vec![job()]).await;
        assert_eq!(length(&server), 1_000, "after {} events", round * 4_096);
        let more = "for i = ARGV[1] * 4096 + 1, ARGV[1] * 4096 + 4095 do \
                    redis.call('XADD', KEYS[2], i .. '-0', 'n', i, 't', 1, 'q', '', 'e', 'fired 1 \"s\"') \
                    redis.call('HSET', KEYS[1], 'feed', i, 'events', i) end";
        server.command(&["EVAL", more, "2", "{windlass}:meta", "{windlass}:feed", &round.to_string()]).unwrap();
    }
}

#[tokio::test]
async fn a_length_that_cannot_be_read_is_the_default() {
    let (server, store) = filled("40948");
    for stored in ["nonsense", "", "-5", "0", "999", "10000001", "1e400", "nan"] {
        server.command(&["HSET", "{windlass}:meta", "feed_events", stored]).unwrap();
        assert_eq!(store.feed_events().await.unwrap(), 100_000, "{stored:?}");
    }
    for stored in ["nonsense", "0", "nan"] {
        server.command(&["HSET", "{windlass}:meta", "feed_events", stored]).unwrap();
        let before = length(&server);
        enqueue(&store, (0..4_096).map(|_| job()).collect()).await;
        assert_eq!(length(&server), before + ENTRIES, "nothing is forgotten: {stored}");
    }
}
