//! Queues and lanes: few, read and changed by every step, so every embedded store keeps all of them in memory.

use super::numbers::NumberMap;
use super::rows::{Lane, LaneId, Queue, QueueId};
use crate::error::{Error, Result};
use crate::name::{Kind, Labels, QueueName};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// All queues and lanes of a store, by number and by name.
#[derive(Debug, Default)]
pub struct QueueMap {
    queues: NumberMap<QueueId, Queue>,
    names: HashMap<QueueName, QueueId>,
    lanes: NumberMap<LaneId, Lane>,
    queue_lanes: BTreeMap<QueueId, BTreeSet<LaneId>>,
    lane_names: HashMap<(QueueId, Kind, Labels), LaneId>,
    /// `None` when nothing has to be written.
    changed: Option<Changed>,
}

/// What has changed since it was written.
#[derive(Debug, Default)]
struct Changed {
    queues: BTreeSet<QueueId>,
    lanes: BTreeSet<LaneId>,
}

impl QueueMap {
    /// The queues and lanes as they are stored, for a store that writes changes with
    /// [`take_changed`](Self::take_changed).
    pub fn stored(queues: Vec<Queue>, lanes: Vec<Lane>) -> Self {
        let mut map = Self::default();
        queues.into_iter().for_each(|queue| map.insert(queue));
        lanes.into_iter().for_each(|lane| map.insert_lane(lane));
        map.changed = Some(Changed::default());
        map
    }

    /// The queues and lanes that have changed since the last call, by number, to be written.
    pub fn take_changed(&mut self) -> (Vec<&Queue>, Vec<&Lane>) {
        let Changed { queues, lanes } = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        let queues = queues.iter().filter_map(|id| self.queues.get(id)).collect();
        (queues, lanes.iter().filter_map(|id| self.lanes.get(id)).collect())
    }

    fn note_queue(&mut self, id: QueueId) {
        if let Some(changed) = &mut self.changed {
            changed.queues.insert(id);
        }
    }

    fn note_lane(&mut self, id: LaneId) {
        if let Some(changed) = &mut self.changed {
            changed.lanes.insert(id);
        }
    }

    /// Adds a queue.
    pub fn insert(&mut self, queue: Queue) {
        self.note_queue(queue.id);
        self.names.insert(queue.name.clone(), queue.id);
        self.queue_lanes.entry(queue.id).or_default();
        self.queues.insert(queue.id, queue);
    }

    /// Adds a lane.
    pub fn insert_lane(&mut self, lane: Lane) {
        self.note_lane(lane.id);
        self.lane_names.insert((lane.queue, lane.kind.clone(), lane.labels.clone()), lane.id);
        self.queue_lanes.entry(lane.queue).or_default().insert(lane.id);
        self.lanes.insert(lane.id, lane);
    }

    /// Removes a queue and its lanes; answers which lanes these were.
    pub fn remove(&mut self, id: QueueId) -> Vec<LaneId> {
        let lanes = self.lanes(id);
        lanes.iter().for_each(|lane| self.remove_lane(*lane));
        self.queue_lanes.remove(&id);
        if let Some(queue) = self.queues.remove(&id) {
            self.names.remove(&queue.name);
        }
        lanes
    }

    /// Removes a lane.
    pub fn remove_lane(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.remove(&id) {
            self.lane_names.remove(&(lane.queue, lane.kind, lane.labels));
            if let Some(lanes) = self.queue_lanes.get_mut(&lane.queue) {
                lanes.remove(&id);
            }
        }
    }

    /// All queues, by number.
    pub fn all(&self) -> Vec<QueueId> {
        let mut all: Vec<QueueId> = self.queues.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The queue of this name.
    pub fn find(&self, name: &QueueName) -> Option<QueueId> {
        self.names.get(name).copied()
    }

    /// A queue that exists.
    pub fn get(&self, id: QueueId) -> Result<&Queue> {
        self.queues.get(&id).ok_or_else(|| Error::missing_record("queue", id.0))
    }

    /// A queue that exists, to be changed.
    pub fn get_mut(&mut self, id: QueueId) -> Result<&mut Queue> {
        self.note_queue(id);
        self.queues.get_mut(&id).ok_or_else(|| Error::missing_record("queue", id.0))
    }

    /// The lanes of a queue, by number.
    pub fn lanes(&self, queue: QueueId) -> Vec<LaneId> {
        self.queue_lanes.get(&queue).map_or_else(Vec::new, |lanes| lanes.iter().copied().collect())
    }

    /// The lane of this kind and these labels. Their clones are cheap: two counts.
    pub fn find_lane(&self, queue: QueueId, kind: &Kind, labels: &Labels) -> Option<LaneId> {
        self.lane_names.get(&(queue, kind.clone(), labels.clone())).copied()
    }

    /// A lane that exists.
    pub fn lane(&self, id: LaneId) -> Result<&Lane> {
        self.lanes.get(&id).ok_or_else(|| Error::missing_record("lane", id.0))
    }

    /// A lane that exists, to be changed.
    pub fn lane_mut(&mut self, id: LaneId) -> Result<&mut Lane> {
        self.note_lane(id);
        self.lanes.get_mut(&id).ok_or_else(|| Error::missing_record("lane", id.0))
    }
}
