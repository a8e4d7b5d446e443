//! The timekeeper's key: what older versions wrote there, whose deputy counts, and how long the rest of a fleet rests.
//!
//! That one process keeps time, and when another takes over, is in the shared suite (`timekeeper::`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use support::{block, fresh_url, open_at, virtual_clock};
use windlass_core::name::{Labels, WorkerId};
use windlass_core::store::{Beat, Kinds, Store, Timekeeping, WorkerRegistry as _};
use windlass_core::time::{Clock as _, Timestamp, VirtualClock};
use windlass_redis::RedisStore;
use windlass_redis::options::Options;
use windlass_servers::Redis;

const TTL_MS: u64 = 1_500;

struct Setting {
    server: Redis,
    url: String,
    clock: Arc<VirtualClock>,
}

impl Setting {
    fn new() -> Self {
        let server = Redis::start().unwrap();
        Self { url: fresh_url(&server.url()), server, clock: virtual_clock() }
    }

    /// Another process.
    fn open(&self) -> RedisStore {
        open_at(&self.url, &self.clock)
    }

    fn key(&self) -> String {
        format!("{{{}}}:timekeeper", Options::from_url(&self.url).unwrap().prefix)
    }
}

async fn ask(store: &RedisStore, keeper: &str) -> Timekeeping {
    store.keep_time(WorkerId::new(keeper).unwrap(), TTL_MS).await.unwrap()
}

async fn ask_in_ms(store: &RedisStore, keeper: &str) -> u64 {
    match ask(store, keeper).await {
        Timekeeping::Waits { ask_in_ms } => ask_in_ms,
        Timekeeping::Keeps => panic!("{keeper} keeps time"),
    }
}

#[test]
fn the_timekeeper_of_an_older_version_is_left_alone_until_its_key_expires() {
    let set = Setting::new();
    block(async {
        // As the first version wrote it.
        set.server.command(&["SET", &set.key(), "timekeeper-5f0c9a1be2d34870", "PX", "60000"]).unwrap();
        let store = set.open();
        assert!(ask_in_ms(&store, "new").await <= TTL_MS);
        assert_eq!(set.server.command(&["GET", &set.key()]).unwrap(), "timekeeper-5f0c9a1be2d34870");
        set.server.command(&["DEL", &set.key()]).unwrap();
        assert_eq!(ask(&store, "new").await, Timekeeping::Keeps);
        // And the other way round: an older version finds the key taken until it expires.
        let left_ms: u64 = set.server.command(&["PTTL", &set.key()]).unwrap().parse().unwrap();
        assert!((1..=10_000).contains(&left_ms), "{left_ms}");
        assert_eq!(set.server.command(&["SET", &set.key(), "old", "NX", "PX", "5000"]).unwrap(), "");
    });
}

/// One process that dies would take the timekeeper and its deputy along.
#[test]
fn the_deputy_is_of_another_process_than_the_timekeeper() {
    let set = Setting::new();
    block(async {
        let (one, other) = (set.open(), set.open());
        assert_eq!(ask(&one, "a").await, Timekeeping::Keeps);
        set.clock.advance_ms(TTL_MS - 100);
        // A second worker of the same process rests; were it the deputy, it would be asked back in 100 ms.
        assert!(ask_in_ms(&one, "b").await > 1_000);
        assert_eq!(ask_in_ms(&other, "c").await, 100);
        assert!(ask_in_ms(&other, "d").await > 1_000);
        // The second worker takes over: the deputy of its own process does not count any more.
        set.clock.advance_ms(100);
        assert_eq!(ask(&other, "d").await, Timekeeping::Keeps);
        assert!(ask_in_ms(&other, "c").await > 1_000);
        assert_eq!(ask_in_ms(&one, "b").await, TTL_MS);
    });
}

#[test]
fn the_larger_the_fleet_the_longer_each_process_rests() {
    let set = Setting::new();
    block(async {
        let (keeper, deputy, rest) = (set.open(), set.open(), set.open());
        assert_eq!(ask(&keeper, "a").await, Timekeeping::Keeps);
        assert_eq!(ask_in_ms(&deputy, "b").await, TTL_MS);
        for (workers, most) in [(0, TTL_MS), (40, 8_000), (100, 20_000), (150, 20_000)] {
            for n in 0..workers {
                let beat = Beat {
                    worker: WorkerId::new(format!("w{n}")).unwrap(),
                    queues: Vec::new(),
                    kinds: Kinds::Any,
                    labels: Labels::default(),
                    slots: 1,
                    running: 0,
                    about: String::new(),
                    ttl_ms: 60_000,
                };
                rest.heartbeat(beat).await.unwrap();
            }
            for _ in 0..20 {
                let rest_ms = ask_in_ms(&rest, "c").await;
                assert!((most * 3 / 4..=most).contains(&rest_ms), "{workers} workers: {rest_ms} ms");
            }
        }
        assert_eq!(ask_in_ms(&deputy, "b").await, TTL_MS, "the deputy is not among them");
    });
}

/// Otherwise nobody would keep time until the clock has caught up with the end of the dead process's hint.
#[test]
fn a_hint_that_ends_too_far_ahead_was_given_before_the_clock_was_set_back() {
    let set = Setting::new();
    block(async {
        let (dead, deputy, other) = (set.open(), set.open(), set.open());
        assert_eq!(ask(&dead, "a").await, Timekeeping::Keeps);
        assert_eq!(ask_in_ms(&deputy, "b").await, TTL_MS);
        set.clock.set(Timestamp::from_ms(set.clock.now().as_ms() - 3_600_000));
        assert_eq!(ask(&other, "c").await, Timekeeping::Keeps);
        // The deputy from before the clock was set back does not count either.
        assert_eq!(ask_in_ms(&deputy, "d").await, TTL_MS);
    });
}
