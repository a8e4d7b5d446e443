//! The sequence, queues and lanes.

use super::SqliteTables;
use crate::db::{Db, Source};
use crate::values::{Col, Json, Name, json};
use rusqlite::params;
use windlass_core::engine::{GroupId, Lane, LaneId, Ord64, Queue, QueueId, QueueMap, QueueTables};
use windlass_core::{Error, Result};

fn load<C: Source>(db: &mut Db<C>) -> Result<QueueMap> {
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
    Ok(QueueMap::stored(queues, lanes))
}

/// Writes what has changed.
pub(super) fn flush<C: Source>(map: &mut QueueMap, db: &mut Db<C>) -> Result<()> {
    let (queues, lanes) = map.take_changed();
    for queue in queues {
        let [scheduled, ready, active, succeeded, failed, cancelled] = queue.counts.map(Col);
        db.run(
            "UPDATE windlass_queue SET settings=?2,vtime=?3,meter=?4,scheduled=?5,ready=?6,active=?7,succeeded=?8,\
             failed=?9,cancelled=?10,named_ready=?11 WHERE id=?1",
            params![
                Col(queue.id.0),
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
    for lane in lanes {
        db.run(
            "UPDATE windlass_lane SET jobs=?2,ready=?3,head=?4 WHERE id=?1",
            params![Col(lane.id.0), Col(lane.jobs), Col(lane.ready), lane.head.0],
        )?;
    }
    Ok(())
}

impl<C: Source> QueueTables for SqliteTables<C> {
    fn next_seq(&mut self) -> Result<u64> {
        self.meta.next_seq(self.db.others())
    }

    fn queue_map(&mut self) -> Result<&mut QueueMap> {
        match &mut self.queues {
            Some(map) => Ok(map),
            unread => Ok(unread.insert(load(self.db.others())?)),
        }
    }

    fn insert_queue(&mut self, queue: Queue) -> Result<()> {
        self.db.others().run(
            "INSERT INTO windlass_queue(id,name,plain,settings,vtime,meter,scheduled,ready,active,succeeded,failed,\
             cancelled,named_ready) VALUES(?1,?2,?3,?4,0,NULL,0,0,0,0,0,0,0)",
            params![Col(queue.id.0), queue.name.as_str(), Col(queue.plain.0), json(&queue.settings)?],
        )?;
        self.queue_map()?.insert(queue);
        Ok(())
    }

    fn insert_lane(&mut self, lane: Lane) -> Result<()> {
        self.db.others().run(
            "INSERT INTO windlass_lane(id,queue,kind,labels,jobs,ready,head) VALUES(?1,?2,?3,?4,0,0,0)",
            params![Col(lane.id.0), Col(lane.queue.0), lane.kind.as_str(), json(&lane.labels)?],
        )?;
        self.queue_map()?.insert_lane(lane);
        Ok(())
    }

    fn remove_queue(&mut self, id: QueueId) -> Result<()> {
        self.groups.remove_of_queue(self.db.others(), id)?;
        self.minutes.forget_queue(id);
        self.queue_map()?.remove(id);
        let db = self.db.others();
        db.run("DELETE FROM windlass_lane WHERE queue=?1", [Col(id.0)])?;
        db.run("DELETE FROM windlass_queue WHERE id=?1", [Col(id.0)])?;
        db.run("DELETE FROM windlass_minute WHERE queue=?1", [Col(id.0)])
    }

    fn remove_lane(&mut self, id: LaneId) -> Result<()> {
        self.queue_map()?.remove_lane(id);
        self.db.others().run("DELETE FROM windlass_lane WHERE id=?1", [Col(id.0)])
    }
}
