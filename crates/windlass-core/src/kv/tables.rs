//! The tables: the engine, and what is kept of it in memory.

use super::db::Db;
use super::feed::FeedEnds;
use super::groups::Groups;
use super::minutes::Minutes;
use super::{OrderedKv, keys, queues};
use crate::engine::QueueMap;
use crate::error::{Error, Result};

/// The layout that this version reads and writes.
const LAYOUT: u64 = 2;

/// The tables of a store over an ordered key-value engine.
#[derive(Debug)]
pub struct KvTables<K> {
    pub(super) db: Db<K>,
    /// `None` until they were read.
    pub(super) queues: Option<QueueMap>,
    pub(super) groups: Groups,
    pub(super) minutes: Minutes,
    /// The last number of the sequence, and whether it is to be written.
    pub(super) seq: Option<(u64, bool)>,
    /// The ends of the feed, and whether they are to be written.
    pub(super) feed: Option<(FeedEnds, bool)>,
    /// The stored length of the feed, once it was read: `Some(None)` when there is none.
    pub(super) feed_events: Option<Option<u64>>,
}

impl<K: OrderedKv> KvTables<K> {
    /// Over an engine, which is empty or was written by these tables. An empty one is marked by the first step.
    pub fn open(kv: K) -> Result<Self> {
        let mut db = Db::new(kv);
        match db.get(&keys::layout())? {
            None => db.put(&keys::layout(), &LAYOUT)?,
            Some(LAYOUT) => {}
            Some(other) => {
                let what = format!("it has layout {other}, this version knows {LAYOUT}; use the version that wrote it");
                return Err(Error::Incompatible { what });
            }
        }
        Ok(Self {
            db,
            queues: None,
            groups: Groups::default(),
            minutes: Minutes::default(),
            seq: None,
            feed: None,
            feed_events: None,
        })
    }

    /// To be called when a step has ended and before the engine commits: writes what has changed. An error means that
    /// the step must not be committed; that of an earlier call of the engine counts, too.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(error) = self.db.take_failure() {
            return Err(error);
        }
        if let Some(map) = &mut self.queues {
            queues::flush(map, &mut self.db)?;
        }
        self.groups.flush(&mut self.db)?;
        self.minutes.flush(&mut self.db)?;
        if let Some((seq, dirty @ true)) = &mut self.seq {
            self.db.put(&keys::sequence(), seq)?;
            *dirty = false;
        }
        if let Some((ends, dirty @ true)) = &mut self.feed {
            self.db.put(&keys::feed_ends(), ends)?;
            *dirty = false;
        }
        Ok(())
    }

    /// Forgets what was not written, and everything that was read: to be called when the engine has taken a step back,
    /// or when somebody else may have written.
    pub fn forget(&mut self) {
        self.queues = None;
        self.groups = Groups::default();
        self.minutes = Minutes::default();
        self.seq = None;
        self.feed = None;
        self.feed_events = None;
        self.db.take_failure();
    }

    /// The engine, to commit or to roll back.
    pub fn kv_mut(&mut self) -> &mut K {
        &mut self.db.kv
    }

    /// The engine. What was not flushed is lost.
    pub fn into_kv(self) -> K {
        self.db.kv
    }
}
