//! The minutes that are being counted: kept in memory until the step ends or somebody reads a range of them.

use super::db::Db;
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{MetricTables, QueueId, QueueTables};
use crate::error::Result;
use crate::store::MinuteMetrics;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Minutes that stay in memory between steps.
const KEPT_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Minutes {
    open: BTreeMap<(QueueId, i64), MinuteMetrics>,
    dirty: BTreeSet<(QueueId, i64)>,
}

impl Minutes {
    pub(super) fn remove_of(&mut self, db: &mut Db<impl OrderedKv>, queue: QueueId) -> Result<()> {
        self.open.retain(|(of, _), _| *of != queue);
        self.dirty.retain(|(of, _)| *of != queue);
        db.clear(keys::minutes(queue).under())
    }

    pub(super) fn flush(&mut self, db: &mut Db<impl OrderedKv>) -> Result<()> {
        for (queue, minute) in std::mem::take(&mut self.dirty) {
            if let Some(metrics) = self.open.get(&(queue, minute)) {
                db.put(&keys::minute(queue, minute), metrics)?;
            }
        }
        if self.open.len() > KEPT_MAX {
            self.open.clear();
        }
        Ok(())
    }
}

impl<K: OrderedKv> MetricTables for KvTables<K> {
    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics> {
        self.minutes.dirty.insert((queue, minute));
        match self.minutes.open.entry((queue, minute)) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let stored = self.db.get(&keys::minute(queue, minute))?;
                Ok(place.insert(stored.unwrap_or_else(|| MinuteMetrics::begin(minute))))
            }
        }
    }

    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>> {
        self.minutes.flush(&mut self.db)?;
        let minutes = keys::minutes(queue).under().from(&keys::minute(queue, from)).through(&keys::minute(queue, to));
        self.db.values(minutes, usize::MAX)
    }

    fn prune_minutes(&mut self, before: i64, limit: usize) -> Result<u64> {
        self.minutes.flush(&mut self.db)?;
        self.minutes.open.clear();
        let mut pruned = 0;
        for queue in self.queues()? {
            let old = keys::minutes(queue).under().below(&keys::minute(queue, before));
            for (key, _) in self.db.some(old, limit - pruned)? {
                self.db.delete_bytes(&key)?;
                pruned += 1;
            }
        }
        Ok(pruned as u64)
    }
}
