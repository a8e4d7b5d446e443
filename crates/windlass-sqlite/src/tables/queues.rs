//! Queues and lanes: few, read and changed by every step, so all of them are kept in memory.

use super::gone;
use crate::db::{Db, Source};
use crate::values::{Col, Json, Name, json};
use rusqlite::params;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use windlass_core::engine::{GroupId, Lane, LaneId, NumberMap, Ord64, Queue, QueueId};
use windlass_core::name::{Kind, Labels, QueueName};
use windlass_core::{Error, Result};

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
    fn load<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        let sql = "SELECT id,name,plain,settings,vtime,meter,scheduled,ready,active,succeeded,failed,cancelled,named_ready \
                   FROM windlass_queue";
        let damaged = |table: &str, error: Error| match error {
            Error::Corrupt { what } => {
                Error::corrupt(format!("a row of {table}: {what}; mend it with the sqlite3 program"))
            }
            other => other,
        };
        let queues = db.all(sql, [], |row| {
            let mut counts = [0; 6];
            for (i, count) in counts.iter_mut().enumerate() {
                *count = row.get::<_, Col<u64>>(6 + i)?.0;
            }
            Ok(Queue {
                id: QueueId(row.get::<_, Col<u64>>(0)?.0),
                name: row.get::<_, Name<_>>(1)?.0,
                plain: GroupId(row.get::<_, Col<u64>>(2)?.0),
                settings: row.get::<_, Json<_>>(3)?.0,
                vtime: row.get::<_, Col<u64>>(4)?.0,
                meter: row.get::<_, Option<Json<_>>>(5)?.map(|meter| meter.0).unwrap_or_default(),
                named_ready: row.get::<_, Col<u64>>(12)?.0,
                counts,
            })
        });
        let queues = queues.map_err(|error| damaged("windlass_queue", error))?;
        let lanes = db.all("SELECT id,queue,kind,labels,jobs,ready,head FROM windlass_lane", [], |row| {
            Ok(Lane {
                id: LaneId(row.get::<_, Col<u64>>(0)?.0),
                queue: QueueId(row.get::<_, Col<u64>>(1)?.0),
                kind: row.get::<_, Name<_>>(2)?.0,
                labels: row.get::<_, Json<_>>(3)?.0,
                jobs: row.get::<_, Col<u64>>(4)?.0,
                ready: row.get::<_, Col<u64>>(5)?.0,
                head: Ord64(row.get(6)?),
            })
        });
        let lanes = lanes.map_err(|error| damaged("windlass_lane", error))?;
        queues.into_iter().for_each(|queue| self.keep_queue(queue));
        lanes.into_iter().for_each(|lane| self.keep_lane(lane));
        self.loaded = true;
        Ok(())
    }

    fn keep_queue(&mut self, queue: Queue) {
        self.names.insert(queue.name.clone(), queue.id);
        self.queue_lanes.entry(queue.id).or_default();
        self.queues.insert(queue.id, queue);
    }

    fn keep_lane(&mut self, lane: Lane) {
        self.lane_names.insert((lane.queue, lane.kind.clone(), lane.labels.clone()), lane.id);
        self.queue_lanes.entry(lane.queue).or_default().insert(lane.id);
        self.lanes.insert(lane.id, lane);
    }

    pub(super) fn all<C: Source>(&mut self, db: &mut Db<C>) -> Result<Vec<QueueId>> {
        self.load(db)?;
        let mut all: Vec<QueueId> = self.queues.keys().copied().collect();
        all.sort_unstable();
        Ok(all)
    }

    pub(super) fn find<C: Source>(&mut self, db: &mut Db<C>, name: &QueueName) -> Result<Option<QueueId>> {
        self.load(db)?;
        Ok(self.names.get(name).copied())
    }

    pub(super) fn insert<C: Source>(&mut self, db: &mut Db<C>, queue: Queue) -> Result<()> {
        self.load(db)?;
        db.run(
            "INSERT INTO windlass_queue(id,name,plain,settings,vtime,meter,scheduled,ready,active,succeeded,failed,\
             cancelled,named_ready) VALUES(?1,?2,?3,?4,0,NULL,0,0,0,0,0,0,0)",
            params![Col(queue.id.0), queue.name.as_str(), Col(queue.plain.0), json(&queue.settings)?],
        )?;
        self.dirty_queues.insert(queue.id);
        self.keep_queue(queue);
        Ok(())
    }

    pub(super) fn get<C: Source>(&mut self, db: &mut Db<C>, id: QueueId) -> Result<&Queue> {
        self.load(db)?;
        self.queues.get(&id).ok_or_else(|| gone("queue", id.0))
    }

    pub(super) fn get_mut<C: Source>(&mut self, db: &mut Db<C>, id: QueueId) -> Result<&mut Queue> {
        self.load(db)?;
        self.dirty_queues.insert(id);
        self.queues.get_mut(&id).ok_or_else(|| gone("queue", id.0))
    }

    pub(super) fn remove<C: Source>(&mut self, db: &mut Db<C>, id: QueueId) -> Result<()> {
        for lane in self.lanes(db, id)? {
            self.remove_lane(db, lane)?;
        }
        self.queue_lanes.remove(&id);
        self.dirty_queues.remove(&id);
        if let Some(queue) = self.queues.remove(&id) {
            self.names.remove(&queue.name);
        }
        db.run("DELETE FROM windlass_queue WHERE id=?1", [Col(id.0)])?;
        db.run("DELETE FROM windlass_minute WHERE queue=?1", [Col(id.0)])?;
        Ok(())
    }

    pub(super) fn lanes<C: Source>(&mut self, db: &mut Db<C>, queue: QueueId) -> Result<Vec<LaneId>> {
        self.load(db)?;
        Ok(self.queue_lanes.get(&queue).map_or_else(Vec::new, |lanes| lanes.iter().copied().collect()))
    }

    pub(super) fn find_lane<C: Source>(
        &mut self,
        db: &mut Db<C>,
        key: &(QueueId, Kind, Labels),
    ) -> Result<Option<LaneId>> {
        self.load(db)?;
        Ok(self.lane_names.get(key).copied())
    }

    pub(super) fn insert_lane<C: Source>(&mut self, db: &mut Db<C>, lane: Lane) -> Result<()> {
        self.load(db)?;
        db.run(
            "INSERT INTO windlass_lane(id,queue,kind,labels,jobs,ready,head) VALUES(?1,?2,?3,?4,0,0,0)",
            params![Col(lane.id.0), Col(lane.queue.0), lane.kind.as_str(), json(&lane.labels)?],
        )?;
        self.dirty_lanes.insert(lane.id);
        self.keep_lane(lane);
        Ok(())
    }

    pub(super) fn lane<C: Source>(&mut self, db: &mut Db<C>, id: LaneId) -> Result<&Lane> {
        self.load(db)?;
        self.lanes.get(&id).ok_or_else(|| gone("lane", id.0))
    }

    pub(super) fn lane_mut<C: Source>(&mut self, db: &mut Db<C>, id: LaneId) -> Result<&mut Lane> {
        self.load(db)?;
        self.dirty_lanes.insert(id);
        self.lanes.get_mut(&id).ok_or_else(|| gone("lane", id.0))
    }

    pub(super) fn remove_lane<C: Source>(&mut self, db: &mut Db<C>, id: LaneId) -> Result<()> {
        self.load(db)?;
        self.dirty_lanes.remove(&id);
        if let Some(lane) = self.lanes.remove(&id) {
            self.lane_names.remove(&(lane.queue, lane.kind, lane.labels));
            if let Some(lanes) = self.queue_lanes.get_mut(&lane.queue) {
                lanes.remove(&id);
            }
        }
        db.run("DELETE FROM windlass_lane WHERE id=?1", [Col(id.0)])?;
        Ok(())
    }

    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        for id in std::mem::take(&mut self.dirty_queues) {
            let Some(queue) = self.queues.get(&id) else {
                continue;
            };
            let [scheduled, ready, active, succeeded, failed, cancelled] = queue.counts.map(Col);
            db.run(
                "UPDATE windlass_queue SET settings=?2,vtime=?3,meter=?4,scheduled=?5,ready=?6,active=?7,succeeded=?8,\
                 failed=?9,cancelled=?10,named_ready=?11 WHERE id=?1",
                params![
                    Col(id.0),
                    json(&queue.settings)?,
                    Col(queue.vtime),
                    Some(&queue.meter).filter(|meter| !meter.is_empty()).map(json).transpose()?,
                    scheduled,
                    ready,
                    active,
                    succeeded,
                    failed,
                    cancelled,
                    Col(queue.named_ready)
                ],
            )?;
        }
        for id in std::mem::take(&mut self.dirty_lanes) {
            let Some(lane) = self.lanes.get(&id) else {
                continue;
            };
            db.run(
                "UPDATE windlass_lane SET jobs=?2,ready=?3,head=?4 WHERE id=?1",
                params![Col(id.0), Col(lane.jobs), Col(lane.ready), lane.head.0],
            )?;
        }
        Ok(())
    }
}
