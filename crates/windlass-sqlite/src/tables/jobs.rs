//! Job records: what a job is in one table, where it stands in one of four others.

use super::ids::{Ids, Known};
use super::moves::Moves;
use super::places;
use super::recent::Recent;
use super::records::{NAMELESS, SELECT, SELECT_DAMAGED, flags, read, salvage};
use crate::db::{Db, Source};
use crate::values::Col;
use rusqlite::params;

use windlass_core::engine::{Fresh, Record, Row};
use windlass_core::id::JobId;
use windlass_core::{Error, Result};

/// Jobs, over a connection.
pub(super) struct Jobs<'a, C> {
    pub(super) db: &'a mut Db<C>,
    pub(super) recent: &'a mut Recent,
    pub(super) ids: &'a mut Ids,
    pub(super) moves: &'a mut Moves,
}

impl<C: Source> Jobs<'_, C> {
    pub(super) fn find(self, id: JobId) -> Result<Option<Row>> {
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
        let sql = "SELECT row,id FROM windlass_job WHERE id>=?1 ORDER BY id LIMIT 1";
        let next = self.db.one(sql, [Col(id)], |row| {
            Ok((Row(row.get::<_, Col<u64>>(0)?.0), row.get::<_, Col<JobId>>(1).ok().map(|id| id.0)))
        })?;
        match next {
            Some((row, Some(next))) if next == id => return Ok(Some(row)),
            Some((_, Some(next))) => self.ids.learn(id, Some(next)),
            Some((_, None)) => {}
            None => self.ids.learn(id, None),
        }
        if id.partition() == NAMELESS { self.find_nameless(id) } else { Ok(None) }
    }

    /// A row whose id cannot be read, by the id that stands in for it.
    fn find_nameless(self, id: JobId) -> Result<Option<Row>> {
        let Ok(row) = i64::try_from(id.bits()) else { return Ok(None) };
        let found = self.db.one("SELECT id FROM windlass_job WHERE row=?1", [row], |row| row.get::<_, Col<JobId>>(0));
        match found {
            Err(Error::Corrupt { .. }) => Ok(Some(Row(row.cast_unsigned()))),
            other => other.map(|_| None),
        }
    }

    pub(super) fn record(&mut self, row: Row) -> Result<Option<Record>> {
        if let Some(record) = self.recent.record(row) {
            return Ok(Some(record.clone()));
        }
        self.moves.settle(self.db)?;
        let found = self.db.one(SELECT, [Col(row.0)], read).map_err(|error| name_row(error, row))?;
        if let Some(record) = &found {
            self.recent.note_read(record);
        }
        Ok(found)
    }

    pub(super) fn salvage(self, row: Row) -> Result<Option<Record>> {
        self.moves.settle(self.db)?;
        self.db.one(SELECT_DAMAGED, [Col(row.0)], salvage)
    }

    /// Writes what [`update`](Self::update) leaves alone and takes the job out of every state; it is put into one when
    /// the record next changes.
    pub(super) fn mend(self, record: &Record) -> Result<()> {
        self.recent.forget(record.row);
        // It may get another id.
        *self.ids = Ids::default();
        places::take_everywhere(&mut self.moves.states(self.db)?, record.row)?;
        let (attempts_max, stalls_max) = (record.life.attempts_max, record.life.stalls_max);
        self.db.run(
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
        )?;
        Ok(())
    }

    pub(super) fn insert(self, fresh: Fresh) {
        self.ids.note_added(fresh.record.id, fresh.record.row);
        self.moves.add(fresh);
    }

    /// Writes what has changed: the job itself only when it has to be.
    pub(super) fn update(self, before: &Record, after: &Record) -> Result<()> {
        if is_another(before, after) {
            let group = after.group.or(before.group).map(|id| Col(id.0));
            self.db.run(
                "UPDATE windlass_job SET grp=?2,ord=?3,priority=?4,flags=?5 WHERE row=?1",
                params![Col(after.row.0), group, after.ord.0, after.priority, flags(after)],
            )?;
        }
        if !self.moves.keep(before, after) {
            places::move_to(&mut self.moves.states(self.db)?, before, after)?;
        }
        self.recent.note_written(after);
        Ok(())
    }

    pub(super) fn remove(self, record: &Record) -> Result<()> {
        self.ids.note_removed(record.id);
        self.recent.forget(record.row);
        places::take(&mut self.moves.states(self.db)?, record)?;
        let row = [Col(record.row.0)];
        self.db.run("DELETE FROM windlass_job WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_payload WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_extra WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_log WHERE row=?1", row)?;
        Ok(())
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
