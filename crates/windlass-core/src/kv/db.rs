//! The engine's bytes as keys and values of ours.

use super::codec::{Stored, decode, encode};
use super::keys::{Key, Part, Range, Table, parts};
use super::{Entry, OrderedKv, Scan};
use crate::error::{Error, Result};

/// Entries that are read at once.
const PAGE: usize = 1_000;

/// The engine, and the first thing that went wrong with it.
#[derive(Debug)]
pub(super) struct Db<K> {
    pub(super) kv: K,
    /// An item of a batch may swallow an error of the engine's; the step must not be committed then.
    failure: Option<Error>,
}

impl<K: OrderedKv> Db<K> {
    pub(super) fn new(kv: K) -> Self {
        Self { kv, failure: None }
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn note<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.failure.get_or_insert_with(|| error.clone());
        }
        outcome
    }

    pub(super) fn get_bytes(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        let outcome = self.kv.get(key.bytes());
        self.note(outcome)
    }

    pub(super) fn get<T: Stored>(&mut self, key: &Key) -> Result<Option<T>> {
        self.get_bytes(key)?.map(|bytes| decode(&bytes)).transpose()
    }

    pub(super) fn put(&mut self, key: &Key, value: &impl Stored) -> Result<()> {
        let bytes = encode(value)?;
        let outcome = self.kv.put(key.bytes(), &bytes);
        self.note(outcome)
    }

    /// Sets the value of a key, or removes the key.
    pub(super) fn set<T: Stored>(&mut self, key: &Key, value: Option<&T>) -> Result<()> {
        match value {
            Some(value) => self.put(key, value),
            None => self.delete(key),
        }
    }

    /// Moves an entry of an index, which has no value, from one key to another.
    pub(super) fn move_entry(&mut self, from: Option<Key>, to: Option<Key>) -> Result<()> {
        if from == to {
            return Ok(());
        }
        from.map_or(Ok(()), |key| self.delete(&key))?;
        to.map_or(Ok(()), |key| self.put(&key, &()))
    }

    pub(super) fn delete(&mut self, key: &Key) -> Result<()> {
        self.delete_bytes(key.bytes())
    }

    pub(super) fn delete_bytes(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.kv.delete(key);
        self.note(outcome)
    }

    /// The first of a range.
    pub(super) fn first(&mut self, range: Range) -> Result<Option<Entry>> {
        Ok(self.some(range, 1)?.pop())
    }

    /// At most `limit` of a range.
    pub(super) fn some(&mut self, range: Range, limit: usize) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        self.visit(
            range,
            |entry| {
                if found.len() < limit {
                    found.push(entry);
                }
                Ok(found.len() < limit)
            },
            limit,
        )?;
        Ok(found)
    }

    /// The values of at most `limit` of a range.
    pub(super) fn values<T: Stored>(&mut self, range: Range, limit: usize) -> Result<Vec<T>> {
        self.some(range, limit)?.iter().map(|(_, value)| decode(value)).collect()
    }

    /// The parts of the keys of at most `limit` of a range of `table`.
    pub(super) fn keys<P: Part>(&mut self, table: Table, range: Range, limit: usize) -> Result<Vec<P>> {
        self.some(range, limit)?.iter().map(|(key, _)| parts(table, key)).collect()
    }

    /// All of a range, which somebody else bounds.
    pub(super) fn all(&mut self, range: Range) -> Result<Vec<Entry>> {
        self.some(range, usize::MAX)
    }

    /// Hands a range out in order, until `visit` says that it is enough. `expected` is how many that may be.
    pub(super) fn visit(
        &mut self,
        mut range: Range,
        mut visit: impl FnMut(Entry) -> Result<bool>,
        expected: usize,
    ) -> Result<()> {
        let limit = expected.clamp(1, PAGE);
        while !range.is_empty() {
            let outcome = self.kv.scan(Scan { from: &range.from, to: &range.to, reverse: range.reverse, limit });
            let page = self.note(outcome)?;
            let last = page.last().filter(|_| page.len() >= limit).map(|(key, _)| key.clone());
            for entry in page {
                if !visit(entry)? {
                    return Ok(());
                }
            }
            match last {
                Some(last) => range = range.beyond(&last),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Removes a range.
    pub(super) fn clear(&mut self, range: Range) -> Result<()> {
        for (key, _) in self.all(range)? {
            self.delete_bytes(&key)?;
        }
        Ok(())
    }
}
