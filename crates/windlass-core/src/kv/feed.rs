//! The feed: entries by number, and where it begins and ends.

use super::codec::{decode, stored};
use super::keys::{Table, parts};
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{FEED_TRIM_MAX, FeedTables, decode_events, encode_events};
use crate::error::Result;
use crate::store::{FeedCursor, FeedEntry, check_feed_events};
use crate::time::Timestamp;
use bytes::Bytes;

/// Where the feed begins and ends, and how many events it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeedEnds {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) events: u64,
}

stored!(FeedEnds { begin, end, events });

/// An entry as it is kept: how many events it has stands apart, so that an entry may go without being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) at: Timestamp,
    pub(super) count: u64,
    pub(super) events: Bytes,
}

stored!(Packed { at, count, events });

impl<K: OrderedKv> KvTables<K> {
    fn feed_ends(&mut self) -> Result<FeedEnds> {
        if let Some((ends, _)) = self.feed {
            return Ok(ends);
        }
        let ends = self.db.get(&keys::feed_ends())?.unwrap_or(FeedEnds { begin: 1, end: 0, events: 0 });
        self.feed = Some((ends, false));
        Ok(ends)
    }
}

impl<K: OrderedKv> FeedTables for KvTables<K> {
    fn feed_end(&mut self) -> Result<u64> {
        Ok(self.feed_ends()?.end)
    }

    fn feed_begin(&mut self) -> Result<u64> {
        Ok(self.feed_ends()?.begin)
    }

    fn append_feed(&mut self, entry: FeedEntry) -> Result<()> {
        let ends = self.feed_ends()?;
        let count = entry.events.len() as u64;
        let packed = Packed { at: entry.at, count, events: encode_events(&entry.events)?.into() };
        let number = entry.cursor.0;
        self.db.put(&keys::feed_entry(number), &packed)?;
        let begin = if ends.end < ends.begin { number } else { ends.begin };
        self.feed = Some((FeedEnds { begin, end: number, events: ends.events.saturating_add(count) }, true));
        Ok(())
    }

    /// An entry that cannot be read is shown empty: a reader must get past it.
    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        let entries = self.db.some(keys::feed().under().above(&keys::feed_entry(after)), limit)?;
        let entry = |(key, value): &super::Entry| {
            let cursor = FeedCursor(parts(Table::Feed, key)?);
            let packed: Option<Packed> = decode(value).ok();
            let at = packed.as_ref().map_or(Timestamp::from_ms(0), |packed| packed.at);
            let events = packed.and_then(|packed| decode_events(&packed.events).ok()).unwrap_or_default();
            Ok(FeedEntry { cursor, at, events })
        };
        entries.iter().map(entry).collect()
    }

    fn trim_feed(&mut self, events_min: u64) -> Result<()> {
        let mut ends = self.feed_ends()?;
        for _ in 0..FEED_TRIM_MAX {
            if ends.events <= events_min || ends.begin > ends.end {
                break;
            }
            let key = keys::feed_entry(ends.begin);
            // One that cannot be read has lost its count; the feed then goes on as if it had been empty.
            let packed = self.db.get_bytes(&key)?.and_then(|bytes| decode::<Packed>(&bytes).ok());
            let left = ends.events.saturating_sub(packed.map_or(0, |packed| packed.count));
            if left < events_min {
                break;
            }
            self.db.delete(&key)?;
            ends = FeedEnds { begin: ends.begin + 1, events: left, ..ends };
            self.feed = Some((ends, true));
        }
        Ok(())
    }

    fn feed_events(&mut self) -> Result<Option<u64>> {
        if let Some(known) = self.feed_events {
            return Ok(known);
        }
        let stored = self.db.get_bytes(&keys::feed_events())?;
        let events = stored.and_then(|bytes| decode(&bytes).ok()).filter(|events| check_feed_events(*events).is_ok());
        Ok(*self.feed_events.insert(events))
    }

    fn set_feed_events(&mut self, events: u64) -> Result<()> {
        self.db.put(&keys::feed_events(), &events)?;
        self.feed_events = Some(Some(events));
        Ok(())
    }
}
