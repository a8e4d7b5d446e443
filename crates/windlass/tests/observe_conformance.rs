//! The whole suite over the decorator: no method is forgotten, and none is altered. Somebody records meanwhile.

use std::sync::Arc;
use windlass::core::memory::MemoryStore;
use windlass::core::random::StrongRandom;
use windlass::core::time::{Timestamp, VirtualClock};
use windlass::observe::observe;
use windlass_conformance::{Factory, Opened, TestClock, exercise};

struct Observed;

#[async_trait::async_trait]
impl Factory for Observed {
    async fn open(&self) -> Opened {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let store = MemoryStore::with(clock.clone(), Arc::new(StrongRandom::seeded(7)));
        Opened::new(observe("memory", Arc::new(store)), TestClock::Virtual(clock))
    }
}

fn main() {
    // The way with a recorder is the one with something to get wrong. A second one would be a mistake of this program.
    if let Err(error) = metrics_util::debugging::DebuggingRecorder::new().install() {
        eprintln!("{error}");
        std::process::exit(1);
    }
    exercise(Observed);
}
