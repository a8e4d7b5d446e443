//! The timekeeper's key: what older versions wrote there, whose deputy counts, and how long the rest of a fleet rests.
//!
//! That one process keeps time, and when another takes over, is in the shared suite (`timekeeper::`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use support::{block, fresh_url, open_at, virtual_clock};
use windlass_core::name::{Labels, WorkerId};
use windlass_core::store::{Beat, Kinds, MaintenanceClaim, Store, WorkerRegistry as _};
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

    /// The deputy that is written in the second line of the key.
    fn deputy(&self) -> Option<String> {
        let value = self.server.command(&["GET", &self.key()]).unwrap();
        value.lines().nth(1)?.split(' ').nth(2).map(str::to_owned)
    }
}

async fn ask(store: &RedisStore, keeper: &str) -> MaintenanceClaim {
    store.claim_maintenance(WorkerId::new(keeper).unwrap(), TTL_MS).await.unwrap()
}

async fn retry_after_ms(store: &RedisStore, keeper: &str) -> u64 {
    match ask(store, keeper).await {
        MaintenanceClaim::HeldByOther { retry_after_ms } => retry_after_ms,
        MaintenanceClaim::Granted => panic!("{keeper} keeps time"),
    }
}

#[test]
fn the_timekeeper_of_an_older_version_is_left_alone_until_its_key_expires() {
    let set = Setting::new();
    block(async {
        // As the first version wrote it.
        set.server.command(&["SET", &set.key(), "timekeeper-5f0c9a1be2d34870", "PX", "60000"]).unwrap();
        let store = set.open();
        assert!(retry_after_ms(&store, "new").await <= TTL_MS);
        assert_eq!(set.server.command(&["GET", &set.key()]).unwrap(), "timekeeper-5f0c9a1be2d34870");
        set.server.command(&["DEL", &set.key()]).unwrap();
        assert_eq!(ask(&store, "new").await, MaintenanceClaim::Granted);
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
        assert_eq!(ask(&one, "a").await, MaintenanceClaim::Granted);
        set.clock.advance_ms(TTL_MS - 100);
        // A second worker of the same process rests.
        assert_eq!((retry_after_ms(&one, "b").await, set.deputy()), (100, None));
        assert_eq!((retry_after_ms(&other, "c").await, set.deputy()), (100, Some("c".to_owned())));
        assert_eq!((retry_after_ms(&other, "d").await, set.deputy()), (300, Some("c".to_owned())));
        // The second worker takes over: the deputy of its own process does not count any more.
        set.clock.advance_ms(100);
        assert_eq!(ask(&other, "d").await, MaintenanceClaim::Granted);
        assert!(retry_after_ms(&other, "c").await >= TTL_MS);
        assert_eq!(set.deputy(), None);
        assert_eq!((retry_after_ms(&one, "b").await, set.deputy()), (TTL_MS, Some("b".to_owned())));
    });
}

/// Processes that ask on a virtual clock, each when it was told to.
struct Fleet<'s> {
    set: &'s Setting,
    /// The timekeeper's, the deputy's and the others'.
    stores: [RedisStore; 3],
    /// When each asks next, in ms, and its number.
    asks: BTreeSet<(i64, usize)>,
}

impl<'s> Fleet<'s> {
    /// So many processes that were all started at once.
    async fn start(set: &'s Setting, size: usize) -> Self {
        let now_ms = set.clock.now().as_ms();
        let stores = [set.open(), set.open(), set.open()];
        for n in 0..size {
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
            stores[2].heartbeat(beat).await.unwrap();
        }
        Self { set, stores, asks: (0..size).map(|n| (now_ms, n)).collect() }
    }

    /// The next who is to ask does; who it is, and whether it keeps time.
    async fn step(&mut self) -> (usize, bool) {
        let (at_ms, n) = self.asks.pop_first().unwrap();
        self.set.clock.set(Timestamp::from_ms(at_ms));
        let kept = ask(&self.stores[n.min(2)], &format!("w{n}")).await;
        let rest_ms = match kept {
            MaintenanceClaim::Granted => TTL_MS / 2,
            MaintenanceClaim::HeldByOther { retry_after_ms } => retry_after_ms,
        };
        self.asks.insert((at_ms + i64::try_from(rest_ms).unwrap(), n));
        (n, kept.is_granted())
    }

    fn now_ms(&self) -> i64 {
        self.set.clock.now().as_ms()
    }
}

/// Whether it was started just now, and all processes ask at the same time, or long ago.
#[test]
fn the_rest_of_a_fleet_takes_over_soon_when_timekeeper_and_deputy_die() {
    block(async {
        for (size, for_ms) in [(100, 30_000), (100, 1_000), (100, 90_000), (5, 1_000), (300, 30_000)] {
            let set = Setting::new();
            let mut fleet = Fleet::start(&set, size).await;
            let (begun_ms, mut asks) = (fleet.now_ms(), 0);
            while fleet.now_ms() < begun_ms + for_ms {
                fleet.step().await;
                asks += 1;
            }
            // Just after a renewal they die.
            while fleet.step().await != (0, true) {}
            let died_ms = fleet.now_ms();
            fleet.asks.retain(|(_, n)| *n > 1);
            while !fleet.step().await.1 {}
            let late_ms = fleet.now_ms() - died_ms;
            println!("{size} processes, {asks} asks in {for_ms} ms: taken over after {late_ms} ms");
            assert!(late_ms <= 2_000, "{size} processes, {for_ms} ms after their start: {late_ms} ms");
        }
    });
}

#[test]
fn an_idle_fleet_asks_five_times_a_second() {
    block(async {
        let set = Setting::new();
        let mut fleet = Fleet::start(&set, 100).await;
        let begun_ms = fleet.now_ms();
        let mut asks = [0; 6];
        while fleet.now_ms() < begun_ms + 60_000 {
            let (n, _) = fleet.step().await;
            let at = usize::try_from((fleet.now_ms() - begun_ms) / 10_000).unwrap().min(5);
            asks[at] += u32::from(n > 1);
        }
        println!("{asks:?}");
        // In the first ten seconds every process asks for the first time.
        assert!(asks[0] <= 98 + 50 && asks[1..].iter().all(|count| (40..=51).contains(count)), "{asks:?}");
        let longest = fleet.asks.iter().map(|(at_ms, _)| at_ms - fleet.now_ms()).max().unwrap();
        assert!(longest <= 22_000, "{longest} ms: the last of a fleet is that late");
    });
}

/// Otherwise nobody would keep time until the clock has caught up with the end of the dead process's hint.
#[test]
fn a_hint_that_ends_too_far_ahead_was_given_before_the_clock_was_set_back() {
    let set = Setting::new();
    block(async {
        let (dead, deputy, other) = (set.open(), set.open(), set.open());
        assert_eq!(ask(&dead, "a").await, MaintenanceClaim::Granted);
        assert_eq!(retry_after_ms(&deputy, "b").await, TTL_MS);
        set.clock.set(Timestamp::from_ms(set.clock.now().as_ms() - 3_600_000));
        assert_eq!(ask(&other, "c").await, MaintenanceClaim::Granted);
        // The deputy from before the clock was set back does not count either.
        assert_eq!(retry_after_ms(&deputy, "d").await, TTL_MS);
    });
}

/// The moments to ask were given out to a larger fleet, or before the clock was set back.
#[test]
fn no_worker_rests_for_longer_than_a_round_after_the_end_of_the_hint() {
    let set = Setting::new();
    block(async {
        let store = set.open();
        assert_eq!(ask(&store, "a").await, MaintenanceClaim::Granted);
        for n in 0..250 {
            let rest_ms = retry_after_ms(&store, &format!("w{n}")).await;
            assert!(rest_ms <= TTL_MS + 20_000, "the worker {n} rests for {rest_ms} ms");
        }
    });
}
