//! Randomness, injected: tokens, ids and jitter come from here.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Where randomness comes from.
pub trait Random: Send + Sync + 'static {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;
}

/// A cryptographically strong generator, seeded once.
#[derive(Debug)]
pub struct StrongRandom(Mutex<StdRng>);

impl StrongRandom {
    /// Seeded by the operating system: for production.
    pub fn from_system() -> Self {
        Self(Mutex::new(rand::make_rng()))
    }

    /// Seeded by the caller: for tests that can be repeated.
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Random for StrongRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().random()
    }
}
