//! The sequence and the ends of the feed.

use crate::db::Db;
use crate::values::Col;
use rusqlite::{Connection, params};
use std::borrow::Borrow;
use windlass_core::engine::{decode_events, encode_events};
use windlass_core::store::{FeedCursor, FeedEntry};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

#[derive(Debug, Default)]
pub(super) struct Meta {
    seq: Option<u64>,
    seq_written: u64,
    feed: Option<FeedEnds>,
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
    pub(super) fn next_seq<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<u64> {
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

    pub(super) fn flush<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<()> {
        if let Some(seq) = self.seq
            && seq != self.seq_written
        {
            db.run("UPDATE windlass_meta SET value=?1 WHERE key='seq'", [Col(seq)])?;
            self.seq_written = seq;
        }
        Ok(())
    }

    fn feed<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<FeedEnds> {
        if let Some(feed) = self.feed {
            return Ok(feed);
        }
        let first = db.one("SELECT number,total FROM windlass_feed ORDER BY number LIMIT 1", [], read_end)?;
        let last = db.one("SELECT number,total FROM windlass_feed ORDER BY number DESC LIMIT 1", [], read_end)?;
        let (begin, begin_total) = first.unwrap_or((1, 0));
        let (end, end_total) = last.unwrap_or((0, 0));
        Ok(*self.feed.insert(FeedEnds { begin, begin_total, end, end_total }))
    }

    pub(super) fn feed_end<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<u64> {
        Ok(self.feed(db)?.end)
    }

    pub(super) fn feed_begin<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<u64> {
        Ok(self.feed(db)?.begin)
    }

    pub(super) fn append<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, entry: &FeedEntry) -> Result<()> {
        let feed = self.feed(db)?;
        let events = encode_events(&entry.events)?;
        let total = feed.end_total.saturating_add(entry.events.len() as u64);
        let number = entry.cursor.0;
        db.run(
            "INSERT INTO windlass_feed(number,at,total,events) VALUES(?1,?2,?3,?4)",
            params![Col(number), Col(entry.at), Col(total), events],
        )?;
        let first = feed.end < feed.begin;
        let (begin, begin_total) = if first { (number, total) } else { (feed.begin, feed.begin_total) };
        self.feed = Some(FeedEnds { begin, begin_total, end: number, end_total: total });
        Ok(())
    }

    pub(super) fn read<C: Borrow<Connection>>(db: &mut Db<C>, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        let sql = "SELECT number,at,events FROM windlass_feed WHERE number>?1 ORDER BY number LIMIT ?2";
        let rows = db.all(sql, params![Col(after), super::limit(limit)], |row| {
            let at = Timestamp::from_ms(row.get(1).unwrap_or_default());
            Ok((row.get::<_, Col<u64>>(0)?.0, at, row.get::<_, Vec<u8>>(2).unwrap_or_default()))
        })?;
        let entry = |(number, at, events): (u64, _, Vec<u8>)| {
            // An entry that cannot be read is shown empty: a reader must get past it.
            let events = decode_events(&events).unwrap_or_default();
            FeedEntry { cursor: FeedCursor(number), at, events }
        };
        Ok(rows.into_iter().map(entry).collect())
    }

    pub(super) fn trim<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, events_max: u64) -> Result<()> {
        let feed = self.feed(db)?;
        if feed.end_total.saturating_sub(feed.begin_total) <= events_max {
            return Ok(());
        }
        let keep_from = feed.end_total - events_max;
        // Totals rise with the numbers, so the first one that stays is found from the front.
        let sql = "SELECT number,total FROM windlass_feed WHERE number>=?1 AND total>=?2 ORDER BY number LIMIT 1";
        if let Some((begin, begin_total)) = db.one(sql, params![Col(feed.begin), Col(keep_from)], read_end)? {
            db.run("DELETE FROM windlass_feed WHERE number<?1", [Col(begin)])?;
            self.feed = Some(FeedEnds { begin, begin_total, ..feed });
        }
        Ok(())
    }
}

/// The number of an entry and its total. A total that cannot be read only lets the feed keep more or less than it would.
fn read_end(row: &rusqlite::Row<'_>) -> rusqlite::Result<(u64, u64)> {
    Ok((row.get::<_, Col<u64>>(0)?.0, row.get::<_, Col<u64>>(1).map_or(0, |total| total.0)))
}
