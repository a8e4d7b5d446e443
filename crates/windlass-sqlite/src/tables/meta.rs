//! The sequence and the ends of the feed.

use super::SqliteTables;
use crate::db::{Db, Source};
use crate::values::Col;
use rusqlite::params;

use windlass_core::engine::{FEED_TRIM_MAX, FeedTables, decode_events, encode_events};
use windlass_core::store::{FeedCursor, FeedEntry, check_feed_events};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// The first entry of a row; where that is damaged, its last one stands for it.
macro_rules! first {
    () => {
        "CASE WHEN typeof(first)='integer' AND first BETWEEN 1 AND number THEN first ELSE number END"
    };
}

#[derive(Debug, Default)]
pub(super) struct Meta {
    seq: Option<u64>,
    seq_written: u64,
    feed: Option<FeedEnds>,
    /// The stored length of the feed, once it was read: `Some(None)` when there is none.
    feed_events: Option<Option<u64>>,
    unwritten: Unwritten,
}

/// The entries of this transaction.
#[derive(Debug, Default)]
struct Unwritten {
    first: Option<u64>,
    entries: Vec<u8>,
    events_min: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct FeedEnds {
    /// The first entry that is kept, and how many events came up to and with it.
    begin: u64,
    begin_total: u64,
    end: u64,
    end_total: u64,
}

impl Meta {
    pub(super) fn next_seq<C: Source>(&mut self, db: &mut Db<C>) -> Result<u64> {
        let last = match self.seq {
            Some(last) => last,
            None => {
                let missing = || Error::corrupt("windlass_meta has no sequence");
                let stored = db.one("SELECT value FROM windlass_meta WHERE key='seq'", [], |row| row.get(0))?;
                let Col(last) = stored.ok_or_else(missing)?;
                self.seq_written = last;
                last
            }
        };
        let next = last.checked_add(1).ok_or_else(|| Error::corrupt("the sequence in windlass_meta is at its end"))?;
        self.seq = Some(next);
        Ok(next)
    }

    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        if let Some(seq) = self.seq
            && seq != self.seq_written
        {
            db.run("UPDATE windlass_meta SET value=?1 WHERE key='seq'", [Col(seq)])?;
            self.seq_written = seq;
        }
        self.flush_feed(db)
    }

    /// Writes the entries of this transaction as one row, and lets go of the oldest.
    fn flush_feed<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        let Some(first) = self.unwritten.first.take() else { return Ok(()) };
        let feed = self.feed(db)?;
        let entries = std::mem::take(&mut self.unwritten.entries);
        db.run(
            "INSERT INTO windlass_feed(number,first,total,events) VALUES(?1,?2,?3,?4)",
            params![Col(feed.end), Col(first), Col(feed.end_total), entries],
        )?;
        match self.unwritten.events_min.take() {
            Some(events_min) => self.trim_rows(db, events_min),
            None => Ok(()),
        }
    }

    fn feed<C: Source>(&mut self, db: &mut Db<C>) -> Result<FeedEnds> {
        if let Some(feed) = self.feed {
            return Ok(feed);
        }
        let first =
            db.one(concat!("SELECT ", first!(), ",total FROM windlass_feed ORDER BY number LIMIT 1"), [], read_end)?;
        let last = db.one("SELECT number,total FROM windlass_feed ORDER BY number DESC LIMIT 1", [], read_end)?;
        let (begin, begin_total) = first.unwrap_or((1, 0));
        let (end, end_total) = last.unwrap_or((0, 0));
        Ok(*self.feed.insert(FeedEnds { begin, begin_total, end, end_total }))
    }

    fn append<C: Source>(&mut self, db: &mut Db<C>, entry: &FeedEntry) -> Result<()> {
        let feed = self.feed(db)?;
        let events = encode_events(&entry.events)?;
        let total = feed.end_total.saturating_add(entry.events.len() as u64);
        let number = entry.cursor.0;
        self.unwritten.first.get_or_insert(number);
        self.unwritten.entries.extend(entry.at.as_ms().to_le_bytes());
        self.unwritten.entries.extend((events.len() as u64).to_le_bytes());
        self.unwritten.entries.extend(events);
        let first = feed.end < feed.begin;
        let (begin, begin_total) = if first { (number, total) } else { (feed.begin, feed.begin_total) };
        self.feed = Some(FeedEnds { begin, begin_total, end: number, end_total: total });
        if self.unwritten.entries.len() > ROW_BYTES_MAX { self.flush_feed(db) } else { Ok(()) }
    }

    fn read<C: Source>(&mut self, db: &mut Db<C>, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        self.flush_feed(db)?;
        let sql = "SELECT number,first,events FROM windlass_feed WHERE number>?1 ORDER BY number LIMIT 1";
        let mut entries: Vec<FeedEntry> = Vec::new();
        let mut reached = after;
        // Row by row: a row may hold more than is asked for.
        while entries.len() < limit {
            let row = db.one(sql, [Col(reached)], |row| {
                let last = row.get::<_, Col<u64>>(0)?.0;
                let first = row.get::<_, Col<u64>>(1).map_or(last, |first| first.0.min(last));
                Ok((first, last, row.get::<_, Vec<u8>>(2).unwrap_or_default()))
            })?;
            let Some((first, last, bytes)) = row else { break };
            reached = last;
            let mut rest = bytes.as_slice();
            for number in first.max(last.saturating_sub(ENTRIES_MAX))..=last {
                // An entry that cannot be read is shown empty: a reader must get past it.
                let (at, events) = split_entry(&mut rest).unwrap_or_default();
                if number > after && entries.len() < limit {
                    let events = decode_events(events).unwrap_or_default();
                    entries.push(FeedEntry { cursor: FeedCursor(number), at, events });
                }
            }
        }
        Ok(entries)
    }

    /// Deletes the oldest rows, a bounded number, while those that stay hold at least `events_min` events.
    fn trim_rows<C: Source>(&mut self, db: &mut Db<C>, events_min: u64) -> Result<()> {
        let feed = self.feed(db)?;
        if feed.end_total.saturating_sub(feed.begin_total) < events_min {
            return Ok(());
        }
        let keep_from = feed.end_total - events_min;
        // Totals rise with the numbers, so the first row that stays is found from the front.
        let sql =
            concat!("SELECT ", first!(), ",total,number FROM windlass_feed WHERE number>=?1 ORDER BY number LIMIT ?2");
        let mut oldest = None;
        db.each(sql, params![Col(feed.begin), Col(FEED_TRIM_MAX as u64 + 1)], |row| {
            let (begin, begin_total) = read_end(row)?;
            oldest = Some((begin, begin_total, row.get::<_, Col<u64>>(2)?));
            Ok(begin_total <= keep_from)
        })?;
        if let Some((begin, begin_total, number)) = oldest {
            db.run("DELETE FROM windlass_feed WHERE number<?1", [number])?;
            self.feed = Some(FeedEnds { begin, begin_total, ..feed });
        }
        Ok(())
    }
}

/// Entries of one row, at most: what a damaged `first` may claim.
const ENTRIES_MAX: u64 = 100_000;
/// A row that has grown beyond this is written, and another one begun.
const ROW_BYTES_MAX: usize = 64 << 10;

/// The time of the next entry and its events, packed.
fn split_entry<'b>(rest: &mut &'b [u8]) -> Option<(Timestamp, &'b [u8])> {
    let (at, tail) = rest.split_first_chunk::<8>()?;
    let (len, tail) = tail.split_first_chunk::<8>()?;
    let (events, tail) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    *rest = tail;
    Some((Timestamp::from_ms(i64::from_le_bytes(*at)), events))
}

/// The number of an entry and its total. A total that cannot be read only lets the feed keep more or less than it would.
fn read_end(row: &rusqlite::Row<'_>) -> rusqlite::Result<(u64, u64)> {
    Ok((row.get::<_, Col<u64>>(0)?.0, row.get::<_, Col<u64>>(1).map_or(0, |total| total.0)))
}

impl<C: Source> FeedTables for SqliteTables<C> {
    fn feed_end(&mut self) -> Result<u64> {
        Ok(self.meta.feed(self.db.others())?.end)
    }

    fn feed_begin(&mut self) -> Result<u64> {
        Ok(self.meta.feed(self.db.others())?.begin)
    }

    fn append_feed(&mut self, entry: FeedEntry) -> Result<()> {
        self.meta.append(self.db.others(), &entry)
    }

    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        self.meta.read(self.db.others(), after, limit)
    }

    // Noted, and done when the entries are written.
    fn trim_feed(&mut self, events_min: u64) -> Result<()> {
        self.meta.unwritten.events_min = Some(events_min);
        Ok(())
    }

    fn feed_events(&mut self) -> Result<Option<u64>> {
        if let Some(known) = self.meta.feed_events {
            return Ok(known);
        }
        let sql = "SELECT value FROM windlass_meta WHERE key='feed_events'";
        let stored = self.db.others().one_readable(sql, [], |row| row.get::<_, Col<u64>>(0))?;
        let events = stored.map(|events| events.0).filter(|events| check_feed_events(*events).is_ok());
        Ok(*self.meta.feed_events.insert(events))
    }

    fn set_feed_events(&mut self, events: u64) -> Result<()> {
        let sql = "INSERT INTO windlass_meta(key,value) VALUES('feed_events',?1) \
                   ON CONFLICT(key) DO UPDATE SET value=excluded.value";
        self.db.others().run(sql, [Col(events)])?;
        self.meta.feed_events = Some(Some(events));
        Ok(())
    }
}
