//! The core of Windlass: its words, its job machine, the storage contract, and the memory store, which is the model that
//! every other store is checked against.
//!
//! Nothing here does I/O, reads a clock or starts a thread: time, ids and randomness are handed in.

pub mod artifact;
pub mod engine;
pub mod error;
pub mod finding;
pub mod graph;
pub mod id;
pub mod job;
pub mod kv;
pub mod memory;
pub mod name;
pub mod payload;
pub mod random;
pub mod rate;
pub mod retry;
pub mod schedule;
pub mod store;
pub mod time;
pub mod typed;

pub use error::{Error, Result};
