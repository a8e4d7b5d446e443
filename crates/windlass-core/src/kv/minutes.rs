//! The minutes that are being counted: kept in memory until the step ends or somebody reads a range of them.

use super::codec::decode;
use super::db::Db;
use super::{OrderedKv, keys};
use crate::engine::QueueId;
use crate::error::Result;
use crate::store::MinuteMetrics;
use crate::time::Timestamp;
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
    pub(super) fn get_mut(
        &mut self,
        db: &mut Db<impl OrderedKv>,
        queue: QueueId,
        minute: i64,
    ) -> Result<&mut MinuteMetrics> {
        let metrics = match self.open.entry((queue, minute)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let start = Timestamp::from_ms(minute.saturating_mul(60_000));
                let stored = db.get(&keys::minute(queue, minute))?;
                place.insert(stored.unwrap_or(MinuteMetrics { minute: start, ..MinuteMetrics::default() }))
            }
        };
        self.dirty.insert((queue, minute));
        Ok(metrics)
    }

    pub(super) fn range(
        &mut self,
        db: &mut Db<impl OrderedKv>,
        queue: QueueId,
        (from, to): (i64, i64),
    ) -> Result<Vec<MinuteMetrics>> {
        self.flush(db)?;
        let minutes = keys::minutes(queue).under().from(&keys::minute(queue, from)).through(&keys::minute(queue, to));
        db.all(minutes)?.iter().map(|(_, value)| decode(value)).collect()
    }

    /// Forgets minutes before `before`; answers how many.
    pub(super) fn prune(
        &mut self,
        db: &mut Db<impl OrderedKv>,
        queues: &[QueueId],
        before: i64,
        limit: usize,
    ) -> Result<u64> {
        self.flush(db)?;
        self.open.clear();
        let mut pruned = 0;
        for queue in queues {
            let old = keys::minutes(*queue).under().below(&keys::minute(*queue, before));
            for (key, _) in db.some(old, limit - pruned)? {
                db.delete_bytes(&key)?;
                pruned += 1;
            }
        }
        Ok(pruned as u64)
    }

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
