//! The Redis store against the suite, on one server.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use windlass_conformance::{Factory, Opened, TestClock, exercise};
use windlass_core::random::StrongRandom;
use windlass_core::store::Store;
use windlass_core::time::{HANG_GUARD, Timestamp, VirtualClock};
use windlass_redis::{Options, RedisStore};
use windlass_servers::Redis;

/// One server for the cases of a process; each store has a prefix of its own.
static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start().unwrap());
static STORES: AtomicU64 = AtomicU64::new(0);

struct Single;

fn open(url: &str, clock: &Arc<VirtualClock>, seed: u64) -> Arc<dyn Store> {
    let options = Options::from_url(url).unwrap();
    Arc::new(RedisStore::open_with(options, clock.clone(), Arc::new(StrongRandom::seeded(seed))).unwrap())
}

#[async_trait::async_trait]
impl Factory for Single {
    async fn open(&self) -> Opened {
        // The cases do not test time limits, and the machine may be loaded.
        let (n, ms) = (STORES.fetch_add(1, Ordering::Relaxed), HANG_GUARD.as_millis());
        let url = format!("{}?prefix=suite-{n}&timeout_ms={ms}&connect_timeout_ms={ms}", SERVER.url());
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let store = open(&url, &clock, 7);
        Opened { store, clock: TestClock::Virtual(clock), keep: Some(Box::new(url)) }
    }

    /// The same keys once more, as another process would open them.
    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        let url = opened.keep.as_ref()?.downcast_ref::<String>()?;
        let TestClock::Virtual(clock) = &opened.clock else { return None };
        Some(open(url, clock, 8))
    }
}

fn main() {
    exercise(Single);
}
