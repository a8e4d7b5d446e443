//! A whole store over any ordered key-value engine: implement the four methods of [`OrderedKv`], and [`KvTables`] is the
//! [`Tables`](crate::engine::Tables) that a [`Host`](crate::engine::Host) needs.
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
