//! Job records: what a job is in one table, where it stands in one of four others.

use super::ids::{Ids, Known};
use super::places::{self, number, read_row};
use super::records::{HELD, NAMELESS, SELECT, SELECT_DAMAGED, flags, read, salvage};
use super::{SqliteTables, limit, specs};
use crate::db::Source;
use crate::values::Col;
use rusqlite::{Row as SqlRow, params};
use std::sync::Arc;
use windlass_core::engine::{
    Extra, Fresh, GroupId, JobTables, LaneId, Ord64, Position, QueueId, QueueTables, Record, Row, Walk,
};
use windlass_core::id::JobId;
use windlass_core::job::{JobSpec, State};
use windlass_core::name::WorkerId;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

impl<C: Source> SqliteTables<C> {
    /// A row whose id cannot be read, by the id that stands in for it.
    fn find_nameless(&mut self, id: JobId) -> Result<Option<Row>> {
        let Ok(row) = i64::try_from(id.bits()) else { return Ok(None) };
        let sql = "SELECT id FROM windlass_job WHERE row=?1";
        match self.db.settled()?.one(sql, [row], |row| row.get::<_, Col<JobId>>(0)) {
            Err(Error::Corrupt { .. }) => Ok(Some(Row(row.cast_unsigned()))),
            other => other.map(|_| None),
        }
    }
}

impl<C: Source> JobTables for SqliteTables<C> {
    fn find_job(&mut self, id: JobId) -> Result<Option<Row>> {
        if let Some(row) = self.recent.find(id) {
            return Ok(Some(row));
        }
        match self.ids.find(id) {
            Known::At(row) => return Ok(Some(row)),
            // The ids that stand in for unreadable ones are in no index.
            Known::Free if id.partition() != NAMELESS => return Ok(None),
            Known::Free | Known::No => {}
        }
        // The one that follows tells at the same price where others are free.
        match self.db.first_written(id)? {
            Some((row, Some(next))) if next == id => return Ok(Some(row)),
            Some((_, Some(next))) => self.ids.learn(id, Some(next)),
            Some((_, None)) => {}
            None => self.ids.learn(id, None),
        }
        if id.partition() == NAMELESS { self.find_nameless(id) } else { Ok(None) }
    }

    fn record(&mut self, row: Row) -> Result<Option<Record>> {
        if let Some(record) = self.recent.record(row) {
            return Ok(Some(record.clone()));
        }
        let found = self.db.settled()?.one(SELECT, [Col(row.0)], read).map_err(|error| name_row(error, row))?;
        if let Some(record) = &found {
            self.recent.note_read(record);
        }
        Ok(found)
    }

    fn salvage(&mut self, row: Row) -> Result<Option<Record>> {
        self.db.settled()?.one(SELECT_DAMAGED, [Col(row.0)], salvage)
    }

    // Writes what `update_job` leaves alone and takes the job out of every state; it is put into one when the record next
    // changes.
    fn mend(&mut self, record: &Record) -> Result<()> {
        self.recent.forget(record.row);
        // It may get another id.
        self.ids = Ids::default();
        let mut states = self.db.states()?;
        places::take_everywhere(&mut states, record.row)?;
        let (attempts_max, stalls_max) = (record.life.attempts_max, record.life.stalls_max);
        states.db().run(
            "UPDATE windlass_job SET id=?2,queue=?3,lane=?4,grp=?5,ord=?6,priority=?7,flags=?8,attempts_max=?9,\
             stalls_max=?10,created_at=?11,fingerprint=?12,dedup=?13,run=?14 WHERE row=?1",
            params![
                Col(record.row.0),
                Col(record.id),
                Col(record.queue.0),
                Col(record.lane.0),
                record.group.map(|id| Col(id.0)),
                record.ord.0,
                record.priority,
                flags(record),
                attempts_max,
                stalls_max,
                Col(record.created_at),
                Col(record.fingerprint),
                record.dedup,
                record.run.map(Col)
            ],
        )
    }

    fn spec(&mut self, row: Row) -> Result<Arc<JobSpec>> {
        specs::get(self, row)
    }

    fn extra(&mut self, row: Row) -> Result<Extra> {
        specs::extra(self.db.others(), row)
    }

    fn insert_job(&mut self, fresh: Fresh) -> Result<()> {
        self.ids.note_added(fresh.record.id, fresh.record.row);
        self.db.add(fresh);
        Ok(())
    }

    // Writes what has changed: the job itself only when it has to be.
    fn update_job(&mut self, before: &Record, after: &Record) -> Result<()> {
        if is_another(before, after) {
            let group = after.group.or(before.group).map(|id| Col(id.0));
            self.db.states()?.db().run(
                "UPDATE windlass_job SET grp=?2,ord=?3,priority=?4,flags=?5 WHERE row=?1",
                params![Col(after.row.0), group, after.ord.0, after.priority, flags(after)],
            )?;
        }
        if !self.db.keep(before, after) {
            places::move_to(&mut self.db.states()?, before, after)?;
        }
        self.recent.note_written(after);
        Ok(())
    }

    fn put_spec(&mut self, row: Row, spec: Arc<JobSpec>) -> Result<()> {
        self.recent.forget_spec(row);
        specs::replace(&mut self.db.states()?, row, &spec)
    }

    fn put_extra(&mut self, row: Row, extra: Extra) -> Result<()> {
        specs::put_extra(self.db.others(), row, &extra)
    }

    fn remove_job(&mut self, record: &Record) -> Result<()> {
        self.ids.note_removed(record.id);
        self.recent.forget(record.row);
        let mut states = self.db.states()?;
        places::take(&mut states, record)?;
        let row = [Col(record.row.0)];
        states.db().run("DELETE FROM windlass_job WHERE row=?1", row)?;
        states.db().run("DELETE FROM windlass_payload WHERE row=?1", row)?;
        states.db().run("DELETE FROM windlass_extra WHERE row=?1", row)?;
        states.db().run("DELETE FROM windlass_log WHERE row=?1", row)
    }

    fn ready(&mut self, lane: LaneId, group: GroupId, after: Option<Ord64>, limit: usize) -> Result<Vec<(Ord64, Row)>> {
        self.read_ready((lane, group), after, limit)
    }

    // A row whose job is not there must not take the place of one that is: all of these ask for the job, too.

    fn due(&mut self, queue: QueueId, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT s.row FROM windlass_scheduled s JOIN windlass_job j ON j.row=s.row \
                   WHERE s.queue=?1 AND s.due_at<=?2 ORDER BY s.due_at,s.row LIMIT ?3";
        let until = until.as_ms().min(HELD - 1);
        self.db.settled()?.all(sql, params![Col(queue.0), until, limit(max)], read_row)
    }

    fn next_due(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        let sql = "SELECT s.due_at FROM windlass_scheduled s JOIN windlass_job j ON j.row=s.row \
                   WHERE s.queue=?1 AND s.due_at<?2 ORDER BY s.due_at LIMIT 1";
        self.db.settled()?.one(sql, params![Col(queue.0), HELD], |row| Ok(Timestamp::from_ms(number(row, 0))))
    }

    fn expired(&mut self, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT a.row FROM windlass_active a JOIN windlass_job j ON j.row=a.row \
                   WHERE a.expires_at<=?1 ORDER BY a.expires_at,a.row LIMIT ?2";
        self.db.settled()?.all(sql, params![Col(until), limit(max)], read_row)
    }

    // Looks through the active jobs, like `expired`.
    fn next_expiry(&mut self) -> Result<Option<Timestamp>> {
        let sql = "SELECT min(a.expires_at) FROM windlass_active a JOIN windlass_job j ON j.row=a.row";
        let next = self.db.settled()?.one(sql, [], |row| Ok(row.get::<_, Option<i64>>(0).ok().flatten()))?;
        Ok(next.flatten().map(Timestamp::from_ms))
    }

    fn cancelling(&mut self, worker: &WorkerId) -> Result<Vec<JobId>> {
        let sql = "SELECT j.id FROM windlass_active a JOIN windlass_job j ON j.row=a.row \
                   WHERE a.told IS NOT NULL AND a.told=?1 ORDER BY a.row";
        // One whose id cannot be read is left to whoever reads its job.
        let ids =
            self.db.settled()?.all(sql, [worker.as_str()], |row| Ok(row.get::<_, Col<_>>(0).ok().map(|id| id.0)))?;
        Ok(ids.into_iter().flatten().collect())
    }

    fn removable(&mut self, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT e.row FROM windlass_ended e JOIN windlass_job j ON j.row=e.row \
                   WHERE e.remove_at IS NOT NULL AND e.remove_at<=?1 ORDER BY e.remove_at,e.row LIMIT ?2";
        self.db.settled()?.all(sql, params![Col(until), limit(max)], read_row)
    }

    fn ended(&mut self, queue: QueueId, state: State, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT e.finished_at,e.row FROM windlass_ended e JOIN windlass_job j ON j.row=e.row \
                   WHERE e.lane=?1 AND e.state=?2 AND e.finished_at<=?3 AND e.remove_at IS NULL \
                   ORDER BY e.finished_at,e.row LIMIT ?4";
        let mut found = Vec::new();
        for lane in self.lanes(queue)? {
            let read = |row: &SqlRow<'_>| Ok((number(row, 0), Row(row.get::<_, Col<u64>>(1)?.0)));
            found.extend(self.db.settled()?.all(
                sql,
                params![Col(lane.0), Col(state), Col(until), limit(max)],
                read,
            )?);
        }
        found.sort_unstable();
        found.truncate(max);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        self.db.settled()?.walk(walk)
    }
}

/// True when something differs that stands with the job itself.
fn is_another(before: &Record, after: &Record) -> bool {
    let moved = after.group.is_some() && after.group != before.group;
    moved || after.ord != before.ord || after.priority != before.priority || flags(after) != flags(before)
}

/// Says which row it is that cannot be read.
fn name_row(error: Error, row: Row) -> Error {
    match error {
        Error::Corrupt { what } if !what.starts_with("the database file") => {
            Error::corrupt(format!("job row {}: {what}", row.0))
        }
        other => other,
    }
}
