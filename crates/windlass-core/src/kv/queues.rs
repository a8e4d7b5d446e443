//! The sequence, queues and lanes.

use super::db::Db;
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{GroupTables, LaneId, QueueId, QueueMap, QueueTables};
use crate::error::{Error, Result};

impl<K: OrderedKv> QueueTables for KvTables<K> {
    fn next_seq(&mut self) -> Result<u64> {
        let last = match self.seq {
            Some((last, _)) => last,
            None => self.db.get(&keys::sequence())?.unwrap_or(0),
        };
        let next = last.checked_add(1).ok_or_else(|| Error::corrupt("the sequence is at its end"))?;
        self.seq = Some((next, true));
        Ok(next)
    }

    fn queue_map(&mut self) -> Result<&mut QueueMap> {
        match &mut self.queues {
            Some(map) => Ok(map),
            unread => {
                let queues = self.db.values(keys::queues().under(), usize::MAX)?;
                Ok(unread.insert(QueueMap::stored(queues, self.db.values(keys::lanes().under(), usize::MAX)?)))
            }
        }
    }

    fn remove_queue(&mut self, id: QueueId) -> Result<()> {
        let plain = self.queue(id)?.plain;
        for group in self.groups(id, None, usize::MAX)?.into_iter().chain([plain]) {
            self.remove_group(group)?;
        }
        self.minutes.remove_of(&mut self.db, id)?;
        for lane in self.queue_map()?.remove(id) {
            self.db.delete(&keys::lane(lane))?;
        }
        self.db.delete(&keys::queue(id))
    }

    fn remove_lane(&mut self, id: LaneId) -> Result<()> {
        self.queue_map()?.remove_lane(id);
        self.db.delete(&keys::lane(id))
    }
}

/// Writes what has changed.
pub(super) fn flush(map: &mut QueueMap, db: &mut Db<impl OrderedKv>) -> Result<()> {
    let (queues, lanes) = map.take_changed();
    queues.into_iter().try_for_each(|queue| db.put(&keys::queue(queue.id), queue))?;
    lanes.into_iter().try_for_each(|lane| db.put(&keys::lane(lane.id), lane))
}
