//! The feed: entries by number, and where it begins and ends.

use super::codec::{Reader, Stored, decode, write_bytes};
use super::db::Db;
use super::keys::{Parts, Table};
use super::{OrderedKv, keys};
use crate::engine::{FEED_TRIM_MAX, decode_events, encode_events};
use crate::error::Result;
use crate::store::{FeedCursor, FeedEntry};
use crate::time::Timestamp;

/// Where the feed begins and ends, and how many events it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeedEnds {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) events: u64,
}

impl FeedEnds {
    pub(super) fn load(db: &mut Db<impl OrderedKv>) -> Result<Self> {
        Ok(db.get(&keys::feed_ends())?.unwrap_or(Self { begin: 1, end: 0, events: 0 }))
    }
}

impl Stored for FeedEnds {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        (self.begin, self.end, self.events).write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        let (begin, end, events) = Stored::read(from)?;
        Ok(Self { begin, end, events })
    }
}

/// An entry as it is kept: how many events it has stands apart, so that an entry may go without being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) at: Timestamp,
    pub(super) count: u64,
    pub(super) events: Vec<u8>,
}

impl Stored for Packed {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        (self.at, self.count).write(to)?;
        write_bytes(&self.events, to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { at: Stored::read(from)?, count: Stored::read(from)?, events: from.bytes()?.to_vec() })
    }
}

pub(super) fn append(db: &mut Db<impl OrderedKv>, ends: FeedEnds, entry: &FeedEntry) -> Result<FeedEnds> {
    let count = entry.events.len() as u64;
    let packed = Packed { at: entry.at, count, events: encode_events(&entry.events)? };
    let number = entry.cursor.0;
    db.put(&keys::feed_entry(number), &packed)?;
    let begin = if ends.end < ends.begin { number } else { ends.begin };
    Ok(FeedEnds { begin, end: number, events: ends.events.saturating_add(count) })
}

/// An entry that cannot be read is shown empty: a reader must get past it.
pub(super) fn read(db: &mut Db<impl OrderedKv>, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
    let entries = db.some(keys::feed().under().above(&keys::feed_entry(after)), limit)?;
    let entry = |(key, value): &super::Entry| {
        let cursor = FeedCursor(Parts::of(Table::Feed, key)?.take()?);
        let packed: Option<Packed> = decode(value).ok();
        let at = packed.as_ref().map_or(Timestamp::from_ms(0), |packed| packed.at);
        let events = packed.and_then(|packed| decode_events(&packed.events).ok()).unwrap_or_default();
        Ok(FeedEntry { cursor, at, events })
    };
    entries.iter().map(entry).collect()
}

/// Forgets the oldest entries, a bounded number, while those that stay hold at least `events_min` events.
pub(super) fn trim(db: &mut Db<impl OrderedKv>, mut ends: FeedEnds, events_min: u64) -> Result<FeedEnds> {
    for _ in 0..FEED_TRIM_MAX {
        if ends.events <= events_min || ends.begin > ends.end {
            break;
        }
        let key = keys::feed_entry(ends.begin);
        // One that cannot be read has lost its count; the feed then goes on as if it had been empty.
        let packed = db.get_bytes(&key)?.and_then(|bytes| decode::<Packed>(&bytes).ok());
        let count = packed.map_or(0, |packed| packed.count);
        let left = ends.events.saturating_sub(count);
        if left < events_min {
            break;
        }
        db.delete(&key)?;
        ends = FeedEnds { begin: ends.begin + 1, events: left, ..ends };
    }
    Ok(ends)
}
