//! The tables of the SQLite store.
//!
//! Queues, lanes, groups, rings, minutes and runs at work are few and change with every job, so they are kept in memory while
//! nobody else writes to the file (its `data_version` tells) and written once per transaction. Queries over ranges of them
//! write first what has changed.

mod groups;
mod ids;
mod inboxes;
mod jobs;
mod meta;
mod moves;
mod places;
mod queues;
mod recent;
mod records;
mod rest;
mod run_rows;
mod runs;
mod specs;

use crate::db::{Kept, Source};
use groups::Groups;
use ids::Ids;
use inboxes::Inboxes;
use meta::Meta;
use moves::JobDb;
use recent::Recent;
use rest::Minutes;
use run_rows::RunRows;
use runs::Histories;

use windlass_core::Result;
use windlass_core::engine::{FeedTables, QueueMap};

/// The tables, over a connection of one's own or of the caller's.
#[derive(Debug)]
pub struct SqliteTables<C = Kept> {
    pub(crate) db: JobDb<C>,
    meta: Meta,
    /// `None` until they were read.
    queues: Option<QueueMap>,
    groups: Groups,
    minutes: Minutes,
    recent: Recent,
    ids: Ids,
    run_rows: RunRows,
    histories: Histories,
    inboxes: Inboxes,
    /// The version of the file that the cache belongs to.
    data_version: i64,
}

impl<C: Source> SqliteTables<C> {
    pub(crate) fn new(conn: C) -> Self {
        Self {
            db: JobDb::new(conn),
            meta: Meta::default(),
            queues: None,
            groups: Groups::default(),
            minutes: Minutes::default(),
            recent: Recent::default(),
            ids: Ids::default(),
            run_rows: RunRows::default(),
            histories: Histories::default(),
            inboxes: Inboxes::default(),
            data_version: -1,
        }
    }

    /// To be called when a transaction has begun: forgets what somebody else may have changed. Answers whether somebody
    /// has.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let version = self.db.others().one("PRAGMA data_version", [], |row| row.get(0))?.unwrap_or(-1);
        let changed = version != self.data_version;
        if changed {
            self.forget();
            self.data_version = version;
        }
        Ok(changed)
    }

    /// Forgets everything that is not written, and everything else.
    pub(crate) fn forget(&mut self) {
        self.meta = Meta::default();
        self.queues = None;
        self.groups = Groups::default();
        self.minutes = Minutes::default();
        self.recent = Recent::default();
        self.ids = Ids::default();
        self.db.forget();
        self.run_rows = RunRows::default();
        self.histories = Histories::default();
        self.inboxes = Inboxes::default();
        self.data_version = -1;
    }

    /// To be called before a transaction ends: writes what has changed.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.db.states()?;
        let db = self.db.others();
        self.run_rows.flush(db)?;
        self.histories.flush(db)?;
        self.inboxes.flush(db)?;
        if let Some(map) = &mut self.queues {
            queues::flush(map, db)?;
        }
        self.groups.flush(db)?;
        self.minutes.flush(db)?;
        self.meta.flush(db)?;
        self.groups.shrink();
        self.recent.shrink();
        self.run_rows.shrink();
        self.inboxes.shrink();
        self.ids.end_transaction();
        Ok(())
    }

    /// The number of the feed's last entry, read in a transaction of its own.
    pub(crate) fn stored_feed_end(&mut self) -> Result<u64> {
        self.db.others().begin("BEGIN")?;
        let end = self.feed_end();
        self.db.others().roll_back();
        end
    }
}

/// A limit as a number for SQL.
fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
