//! The suite that every Windlass store must pass, ours or yours.
//!
//! A store's test target sets `harness = false` and says:
//!
//! ```no_run
//! use windlass_conformance::{Factory, Opened, TestClock};
//! # use std::sync::Arc;
//! # use windlass_core::{memory::MemoryStore, time::{Timestamp, VirtualClock}, random::StrongRandom};
//!
//! struct Memory;
//!
//! #[async_trait::async_trait]
//! impl Factory for Memory {
//!     async fn open(&self) -> Opened {
//!         let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
//!         let store = MemoryStore::with(clock.clone(), Arc::new(StrongRandom::seeded(7)));
//!         Opened::new(Arc::new(store), TestClock::Virtual(clock))
//!     }
//! }
//!
//! fn main() {
//!     windlass_conformance::exercise(Memory)
//! }
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check of the suite is a panic")]

mod cases;
mod ctx;
pub mod faults;
mod look;
pub mod model;
mod run_model;
mod runner;

pub use ctx::{Ctx, Factory, Opened, Skip, TestClock};
pub use runner::{Case, all_cases, exercise};
