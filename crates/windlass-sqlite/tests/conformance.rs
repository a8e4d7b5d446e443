//! The SQLite store against the suite.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

use std::sync::Arc;
use windlass_conformance::{Factory, Opened, TestClock, exercise};
use windlass_core::random::StrongRandom;
use windlass_core::store::Store;
use windlass_core::time::{Timestamp, VirtualClock};
use windlass_sqlite::{Options, SqliteStore, Synchronous};

struct Sqlite;

#[async_trait::async_trait]
impl Factory for Sqlite {
    async fn open(&self) -> Opened {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        // The suite is about behaviour; durability has tests of its own.
        let options = Options { synchronous: Synchronous::Normal, ..Options::new(dir.path().join("jobs.db")) };
        let store = SqliteStore::open_with(options, clock.clone(), Arc::new(StrongRandom::seeded(7))).unwrap();
        Opened { store: Arc::new(store), clock: TestClock::Virtual(clock), keep: Some(Box::new(dir)) }
    }

    /// The same file once more, as another process would open it.
    async fn reopen(&self, opened: &Opened) -> Option<Arc<dyn Store>> {
        let dir = opened.keep.as_ref()?.downcast_ref::<tempfile::TempDir>()?;
        let TestClock::Virtual(clock) = &opened.clock else { return None };
        let options = Options { synchronous: Synchronous::Normal, ..Options::new(dir.path().join("jobs.db")) };
        let store = SqliteStore::open_with(options, clock.clone(), Arc::new(StrongRandom::seeded(8))).unwrap();
        Some(Arc::new(store))
    }
}

fn main() {
    exercise(Sqlite);
}
