//! The memory store against the suite.

use std::sync::Arc;
use windlass_conformance::{Factory, Opened, TestClock, exercise};
use windlass_core::memory::MemoryStore;
use windlass_core::random::StrongRandom;
use windlass_core::time::{Timestamp, VirtualClock};

struct Memory;

#[async_trait::async_trait]
impl Factory for Memory {
    async fn open(&self) -> Opened {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let store = MemoryStore::with(clock.clone(), Arc::new(StrongRandom::seeded(7)));
        Opened::new(Arc::new(store), TestClock::Virtual(clock))
    }
}

fn main() {
    exercise(Memory);
}
