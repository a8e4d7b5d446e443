//! Queues and lanes: few, read and changed by every step, so all of them are kept in memory.

use super::codec::decode;
use super::db::Db;
use super::tables::gone;
use super::{OrderedKv, keys};
use crate::engine::{Lane, LaneId, NumberMap, Queue, QueueId};
use crate::error::Result;
use crate::name::{Kind, Labels, QueueName};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Everything is loaded at once, when it is first asked for.
    loaded: bool,
    queues: NumberMap<QueueId, Queue>,
    names: HashMap<QueueName, QueueId>,
    lanes: NumberMap<LaneId, Lane>,
    queue_lanes: BTreeMap<QueueId, BTreeSet<LaneId>>,
    lane_names: HashMap<(QueueId, Kind, Labels), LaneId>,
    dirty_queues: BTreeSet<QueueId>,
    dirty_lanes: BTreeSet<LaneId>,
}

impl Queues {
    fn load(&mut self, db: &mut Db<impl OrderedKv>) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let queues = db.all(keys::queues().under())?;
        let queues: Vec<Queue> = queues.iter().map(|(_, value)| decode(value)).collect::<Result<_>>()?;
        let lanes = db.all(keys::lanes().under())?;
        let lanes: Vec<Lane> = lanes.iter().map(|(_, value)| decode(value)).collect::<Result<_>>()?;
        queues.into_iter().for_each(|queue| self.keep(queue));
        lanes.into_iter().for_each(|lane| self.keep_lane(lane));
        self.loaded = true;
        Ok(())
    }

    fn keep(&mut self, queue: Queue) {
        self.names.insert(queue.name.clone(), queue.id);
        self.queue_lanes.entry(queue.id).or_default();
        self.queues.insert(queue.id, queue);
    }

    fn keep_lane(&mut self, lane: Lane) {
        self.lane_names.insert((lane.queue, lane.kind.clone(), lane.labels.clone()), lane.id);
        self.queue_lanes.entry(lane.queue).or_default().insert(lane.id);
        self.lanes.insert(lane.id, lane);
    }

    pub(super) fn all(&mut self, db: &mut Db<impl OrderedKv>) -> Result<Vec<QueueId>> {
        self.load(db)?;
        Ok(self.queue_lanes.keys().copied().collect())
    }

    pub(super) fn find(&mut self, db: &mut Db<impl OrderedKv>, name: &QueueName) -> Result<Option<QueueId>> {
        self.load(db)?;
        Ok(self.names.get(name).copied())
    }

    pub(super) fn insert(&mut self, db: &mut Db<impl OrderedKv>, queue: Queue) -> Result<()> {
        self.load(db)?;
        self.dirty_queues.insert(queue.id);
        self.keep(queue);
        Ok(())
    }

    pub(super) fn get(&mut self, db: &mut Db<impl OrderedKv>, id: QueueId) -> Result<&Queue> {
        self.load(db)?;
        self.queues.get(&id).ok_or_else(|| gone("queue", id.0))
    }

    pub(super) fn get_mut(&mut self, db: &mut Db<impl OrderedKv>, id: QueueId) -> Result<&mut Queue> {
        self.load(db)?;
        self.dirty_queues.insert(id);
        self.queues.get_mut(&id).ok_or_else(|| gone("queue", id.0))
    }

    pub(super) fn remove(&mut self, db: &mut Db<impl OrderedKv>, id: QueueId) -> Result<()> {
        for lane in self.lanes(db, id)? {
            self.remove_lane(db, lane)?;
        }
        self.queue_lanes.remove(&id);
        self.dirty_queues.remove(&id);
        if let Some(queue) = self.queues.remove(&id) {
            self.names.remove(&queue.name);
        }
        db.delete(&keys::queue(id))
    }

    pub(super) fn lanes(&mut self, db: &mut Db<impl OrderedKv>, queue: QueueId) -> Result<Vec<LaneId>> {
        self.load(db)?;
        Ok(self.queue_lanes.get(&queue).map_or_else(Vec::new, |lanes| lanes.iter().copied().collect()))
    }

    pub(super) fn find_lane(
        &mut self,
        db: &mut Db<impl OrderedKv>,
        key: &(QueueId, Kind, Labels),
    ) -> Result<Option<LaneId>> {
        self.load(db)?;
        Ok(self.lane_names.get(key).copied())
    }

    pub(super) fn insert_lane(&mut self, db: &mut Db<impl OrderedKv>, lane: Lane) -> Result<()> {
        self.load(db)?;
        self.dirty_lanes.insert(lane.id);
        self.keep_lane(lane);
        Ok(())
    }

    pub(super) fn lane(&mut self, db: &mut Db<impl OrderedKv>, id: LaneId) -> Result<&Lane> {
        self.load(db)?;
        self.lanes.get(&id).ok_or_else(|| gone("lane", id.0))
    }

    pub(super) fn lane_mut(&mut self, db: &mut Db<impl OrderedKv>, id: LaneId) -> Result<&mut Lane> {
        self.load(db)?;
        self.dirty_lanes.insert(id);
        self.lanes.get_mut(&id).ok_or_else(|| gone("lane", id.0))
    }

    pub(super) fn remove_lane(&mut self, db: &mut Db<impl OrderedKv>, id: LaneId) -> Result<()> {
        self.load(db)?;
        self.dirty_lanes.remove(&id);
        if let Some(lane) = self.lanes.remove(&id) {
            self.lane_names.remove(&(lane.queue, lane.kind, lane.labels));
            if let Some(lanes) = self.queue_lanes.get_mut(&lane.queue) {
                lanes.remove(&id);
            }
        }
        db.delete(&keys::lane(id))
    }

    pub(super) fn flush(&mut self, db: &mut Db<impl OrderedKv>) -> Result<()> {
        for id in std::mem::take(&mut self.dirty_queues) {
            if let Some(queue) = self.queues.get(&id) {
                db.put(&keys::queue(id), queue)?;
            }
        }
        for id in std::mem::take(&mut self.dirty_lanes) {
            if let Some(lane) = self.lanes.get(&id) {
                db.put(&keys::lane(id), lane)?;
            }
        }
        Ok(())
    }
}
