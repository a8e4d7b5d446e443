//! A whole store over any ordered key-value engine: implement the four methods of [`OrderedKv`], and [`KvTables`] is the
//! [`Tables`](crate::engine::Tables) that a [`Host`](crate::engine::Host) needs.
//!
//! This is the shortest way to a store of one's own. The backend provides four things:
//!
//! - **An ordered map of bytes**, which reads its own writes: [`OrderedKv`].
//! - **Atomic steps.** What a step has written is committed as a whole or taken back as a whole. That is the host's part.
//! - **One step at a time.** If other processes write to the same data, a step must see all that they have committed.
//! - **Clock, randomness and wake-ups**, for the [`Host`](crate::engine::Host): [`Clock`](crate::time::Clock),
//!   [`Random`](crate::random::Random), [`Signals`](crate::engine::Signals).
//!
//! It provides no indexes, no transactions across steps and no rules of the contract. `docs/write-your-own-store.md` leads
//! through a whole store with a log file; this is the part for an engine:
//!
//! ```
//! use std::collections::BTreeMap;
//! use windlass_core::engine::Step;
//! use windlass_core::kv::{Entry, KvTables, OrderedKv, Scan};
//! # use windlass_core::{Result, id::JobId, job::{JobSpec, NewJob}, payload::Payload, random::StrongRandom};
//! # use windlass_core::{store::EnqueueRequest, time::Timestamp};
//!
//! #[derive(Default)]
//! struct Map(BTreeMap<Vec<u8>, Vec<u8>>);
//!
//! impl OrderedKv for Map {
//!     fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
//!         Ok(self.0.get(key).cloned())
//!     }
//!
//!     fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
//!         self.0.insert(key.to_vec(), value.to_vec());
//!         Ok(())
//!     }
//!
//!     fn delete(&mut self, key: &[u8]) -> Result<()> {
//!         self.0.remove(key);
//!         Ok(())
//!     }
//!
//!     fn scan(&mut self, scan: Scan<'_>) -> Result<Vec<Entry>> {
//!         let range = self.0.range(scan.from.to_vec()..scan.to.to_vec());
//!         let entries = range.map(|(key, value)| (key.clone(), value.clone()));
//!         Ok(if scan.reverse { entries.rev().take(scan.limit).collect() } else { entries.take(scan.limit).collect() })
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let (random, now) = (StrongRandom::from_system(), Timestamp::from_ms(1_700_000_000_000));
//! # let spec = JobSpec::new("mails".try_into()?, "welcome".try_into()?, Payload::default());
//! # let request = EnqueueRequest::new(vec![NewJob::new(JobId::from_parts(0, 1), spec)]);
//! let mut tables = KvTables::open(Map::default())?;
//! let mut step = Step::new(&mut tables, &random, now);
//! let answers = step.enqueue(request)?;
//! step.finish()?;
//! tables.flush()?; // Here an engine with a file commits.
//! assert!(answers[0].is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! Keys are built in one file, `keys.rs`: a byte for the table, then parts whose bytes sort as their values do. Values
//! are a version byte and fields in a fixed order (`codec.rs`, `values.rs`). Indexes are functions of the record, as in
//! the memory store.
//!
//! # What the host does
//!
//! A step is run over the tables, then [`KvTables::flush`] writes what was kept back, then the engine commits, and only
//! then the step is answered. When any of that fails, the engine takes its writes back and [`KvTables::forget`] drops
//! what was read:
//!
//! ```text
//! run the step ── finish ── flush ── commit ── announce ── answer
//!        └───────────┴────────┴── roll back, forget ── answer the error
//! ```
//!
//! Queues, lanes, groups and minutes stay in memory between steps. When somebody else may have written meanwhile, call
//! `forget` before the step, or make new tables for every transaction.

mod codec;
mod db;
mod feed;
mod groups;
mod jobs;
mod keys;
mod logs;
mod memos;
mod minutes;
mod queues;
mod rest;
mod runs;
mod salvage;
mod tables;
#[cfg(test)]
mod tests;
mod values;

use crate::error::Result;

pub use tables::KvTables;

/// An ordered map from bytes to bytes: all that [`KvTables`] asks of an engine.
///
/// Keys sort as unsigned bytes. A read sees every write before it, also those of the step that is under way. What a step
/// writes takes effect as a whole when the host commits it, or not at all; that is the host's affair, and no method here.
/// An engine that holds other data, too, puts a prefix of its own before every key.
///
/// `&mut self` throughout, so that an engine may be a transaction or keep a cache.
pub trait OrderedKv {
    /// The value of `key`.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets the value of `key`, whether there is one or not.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`; one that is not there is fine.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Keys of a range with their values, in order.
    fn scan(&mut self, scan: Scan<'_>) -> Result<Vec<Entry>>;
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A range of keys to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'k> {
    /// From this key on, itself included.
    pub from: &'k [u8],
    /// Up to this key, itself not included. It is always above `from`.
    pub to: &'k [u8],
    /// From the last to the first.
    pub reverse: bool,
    /// At most so many; never more than 1,000.
    pub limit: usize,
}
