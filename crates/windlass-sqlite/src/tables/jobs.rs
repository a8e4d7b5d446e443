//! Job records and the queries over their indexes.

use super::limit;
use super::recent::Recent;
use super::records::{HELD, NAMELESS, SELECT, SELECT_DAMAGED, SELECT_READY, due, flags, outcome, read, salvage};
use super::specs;
use crate::db::Db;
use crate::values::Col;
use rusqlite::{Connection, Row as SqlRow, params};
use std::borrow::Borrow;
use windlass_core::engine::{GroupId, LaneId, Ord64, Position, QueueId, Record, Row, Walk};
use windlass_core::id::JobId;
use windlass_core::job::{JobSpec, State};
use windlass_core::name::WorkerId;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// Jobs, over a connection.
pub(super) struct Jobs<'a, C> {
    pub(super) db: &'a mut Db<C>,
    pub(super) recent: &'a mut Recent,
}

impl<C: Borrow<Connection>> Jobs<'_, C> {
    pub(super) fn find(self, id: JobId) -> Result<Option<Row>> {
        if let Some(row) = self.recent.find(id) {
            return Ok(Some(row));
        }
        match self.db.one("SELECT row FROM windlass_job WHERE id=?1", [Col(id)], read_row)? {
            None if id.partition() == NAMELESS => self.find_nameless(id),
            found => Ok(found),
        }
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

    pub(super) fn record(self, row: Row) -> Result<Option<Record>> {
        if let Some(record) = self.recent.record(row) {
            return Ok(Some(record.clone()));
        }
        let found = self.db.one(SELECT, [Col(row.0)], read).map_err(|error| name_row(error, row))?;
        if let Some(record) = &found {
            self.recent.note_read(record);
        }
        Ok(found)
    }

    pub(super) fn salvage(self, row: Row) -> Result<Option<Record>> {
        self.db.one(SELECT_DAMAGED, [Col(row.0)], salvage)
    }

    /// Writes the columns that [`update`] leaves alone; the others are written when the record next changes.
    pub(super) fn mend(self, record: &Record) -> Result<()> {
        self.recent.forget(record.row);
        let (attempts_max, stalls_max) = (record.life.attempts_max, record.life.stalls_max);
        self.db.run(
            "UPDATE windlass_job SET id=?2,queue=?3,lane=?4,attempts_max=?5,stalls_max=?6,created_at=?7,fingerprint=?8,\
             dedup=?9 WHERE row=?1",
            params![
                Col(record.row.0),
                Col(record.id),
                Col(record.queue.0),
                Col(record.lane.0),
                attempts_max,
                stalls_max,
                Col(record.created_at),
                Col(record.fingerprint),
                record.dedup
            ],
        )?;
        Ok(())
    }

    pub(super) fn insert(self, record: &Record, spec: &JobSpec) -> Result<()> {
        let life = &record.life;
        let specs::Columns { payload, content_type, rest } = specs::columns(spec)?;
        self.db.run(
            "INSERT INTO windlass_job(row,id,queue,lane,grp,state,ord,priority,flags,attempt,attempts_max,stalls,stalls_max,\
             retries,due_at,created_at,ready_at,fingerprint,dedup,rdy,payload,content_type,rest) \
             VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,0,?10,0,?11,0,?12,?13,?14,?15,?16,?17,?18,?19,?20)",
            params![
                Col(record.row.0),
                Col(record.id),
                Col(record.queue.0),
                Col(record.lane.0),
                record.group.map(|id| Col(id.0)),
                Col(life.state),
                record.ord.0,
                record.priority,
                flags(record),
                life.attempts_max,
                life.stalls_max,
                due(record),
                Col(record.created_at),
                Col(record.ready_at),
                Col(record.fingerprint),
                record.dedup,
                ready_lane(record),
                payload,
                content_type,
                rest
            ],
        )?;
        if payload.is_none() {
            specs::put_payload(self.db, record.row, &spec.payload.bytes)?;
        }
        Ok(())
    }

    /// Writes what has changed. The two transitions that every job makes have statements of their own, which touch only
    /// the indexes that they concern.
    pub(super) fn update(self, before: &Record, after: &Record) -> Result<()> {
        match (before.state(), after.state()) {
            (State::Ready, State::Active) => claim(self.db, after)?,
            (State::Active, State::Succeeded) if after.remove_at.is_none() => succeed(self.db, after)?,
            (State::Active, State::Active) if only_renewed(before, after) => renew(self.db, after)?,
            _ => update(self.db, after)?,
        };
        self.recent.note_written(after);
        Ok(())
    }

    pub(super) fn remove(self, record: &Record) -> Result<()> {
        self.recent.forget(record.row);
        let row = [Col(record.row.0)];
        self.db.run("DELETE FROM windlass_job WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_payload WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_extra WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_log WHERE row=?1", row)?;
        Ok(())
    }

    /// Ready jobs in order; their records and specs are read along, because whoever asks is about to claim them.
    pub(super) fn ready(self, of: (LaneId, GroupId), after: Option<Ord64>, max: usize) -> Result<Vec<(Ord64, Row)>> {
        let after = after.map_or(i64::MIN, |ord| ord.0);
        let recent = self.recent;
        self.db.all(SELECT_READY, params![Col(of.0.0), Col(of.1.0), after, limit(max)], |row| {
            let place = (Ord64(number(row, 0)), Row(row.get::<_, Col<u64>>(1)?.0));
            // What cannot be read is found out when it is asked for.
            if let (Ok(record), Ok(spec)) = (read(row), specs::read_at(row, 27)) {
                recent.note_ahead(record, spec);
            }
            Ok(place)
        })
    }

    pub(super) fn due(self, queue: QueueId, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT row FROM windlass_job WHERE due_at IS NOT NULL AND queue=?1 AND due_at<=?2 ORDER BY due_at,row LIMIT ?3";
        let until = until.as_ms().min(HELD - 1);
        self.db.all(sql, params![Col(queue.0), until, limit(max)], read_row)
    }

    pub(super) fn next_due(self, queue: QueueId) -> Result<Option<Timestamp>> {
        let sql = "SELECT due_at FROM windlass_job WHERE due_at IS NOT NULL AND queue=?1 AND due_at<?2 ORDER BY due_at LIMIT 1";
        self.db.one(sql, params![Col(queue.0), HELD], |row| Ok(Timestamp::from_ms(number(row, 0))))
    }

    pub(super) fn expired(self, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT row FROM windlass_job WHERE expires_at IS NOT NULL AND expires_at<=?1 ORDER BY expires_at,row LIMIT ?2";
        self.db.all(sql, params![Col(until), limit(max)], read_row)
    }

    pub(super) fn cancelling(self, worker: &WorkerId) -> Result<Vec<JobId>> {
        let sql = "SELECT id FROM windlass_job WHERE told IS NOT NULL AND told=?1 ORDER BY row";
        // One whose id cannot be read is left to whoever reads its job.
        let ids = self.db.all(sql, [worker.as_str()], |row| Ok(row.get::<_, Col<_>>(0).ok().map(|id| id.0)))?;
        Ok(ids.into_iter().flatten().collect())
    }

    pub(super) fn removable(self, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT row FROM windlass_job WHERE remove_at IS NOT NULL AND remove_at<=?1 ORDER BY remove_at,row LIMIT ?2";
        self.db.all(sql, params![Col(until), limit(max)], read_row)
    }

    pub(super) fn ended(self, lanes: &[LaneId], state: State, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT finished_at,row FROM windlass_job WHERE outcome IS NOT NULL AND lane=?1 AND outcome=?2 AND finished_at<=?3 \
                   AND remove_at IS NULL ORDER BY finished_at,row LIMIT ?4";
        let mut found = Vec::new();
        for lane in lanes {
            let read = |row: &SqlRow<'_>| Ok((number(row, 0), Row(row.get::<_, Col<u64>>(1)?.0)));
            found.extend(self.db.all(sql, params![Col(lane.0), Col(state), Col(until), limit(max)], read)?);
        }
        found.sort_unstable();
        found.truncate(max);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    /// Positions are compared as row values, so that the index finds where to go on.
    pub(super) fn walk(self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        let range = Range::new(walk);
        let mut jobs = self;
        let mut found = match walk.state {
            State::Scheduled | State::Active => jobs.walk_one(&range, walk, walk.queue.0)?,
            State::Ready | State::Succeeded | State::Failed | State::Cancelled => {
                let mut found = Vec::new();
                for lane in walk.lanes {
                    found.extend(jobs.walk_one(&range, walk, lane.0)?);
                }
                found
            }
        };
        found.sort_unstable_by(|a: &(Position, Row), b| if walk.descending { b.cmp(a) } else { a.cmp(b) });
        found.truncate(walk.limit);
        Ok(found)
    }

    /// Walks through one range of an index, that of the queue or lane `of`.
    fn walk_one(&mut self, range: &Range, walk: Walk<'_>, of: u64) -> Result<Vec<(Position, Row)>> {
        let ends = if walk.descending { i64::MAX } else { i64::MIN };
        let mut from = walk.after.unwrap_or([ends; 3]);
        let read = |row: &SqlRow<'_>| {
            let position = [number(row, 0), number(row, 1), number(row, 2)];
            Ok((position, Row(row.get::<_, Col<u64>>(3)?.0), LaneId(number(row, 4).cast_unsigned())))
        };
        let (sql, max) = (&range.sql, limit(walk.limit));
        let mut found = Vec::new();
        loop {
            let page = match range.places {
                1 => self.db.all(sql, params![Col(of), from[0], max], read)?,
                2 => self.db.all(sql, params![Col(of), from[0], from[1], max], read)?,
                _ => self.db.all(sql, params![Col(of), from[0], from[1], from[2], max], read)?,
            };
            let next = page.last().map_or(from, |(position, ..)| *position);
            // Places that cannot be read are all the same one, beyond which there is nothing.
            let last = page.len() < walk.limit || next == from;
            from = next;
            let of_lanes = page.into_iter().filter(|(_, _, lane)| walk.lanes.binary_search(lane).is_ok());
            found.extend(of_lanes.map(|(position, row, _)| (position, row)));
            // A page that other lanes have filled is not the end.
            if last || found.len() >= walk.limit {
                return Ok(found);
            }
        }
    }
}

fn ready_lane(record: &Record) -> Option<Col<u64>> {
    (record.state() == State::Ready).then_some(Col(record.lane.0))
}

fn claim<C: Borrow<Connection>>(db: &mut Db<C>, after: &Record) -> Result<usize> {
    let life = &after.life;
    let held = life.held.as_ref();
    db.run(
        "UPDATE windlass_job SET state=2,rdy=NULL,attempt=?2,worker=?3,token=?4,expires_at=?5,claimed_at=?6 WHERE row=?1",
        params![
            Col(after.row.0),
            life.attempt,
            held.map(|held| held.worker.as_str()),
            held.map(|held| Col(held.token)),
            held.map(|held| Col(held.expires_at)),
            life.claimed_at.map(Col)
        ],
    )
}

fn succeed<C: Borrow<Connection>>(db: &mut Db<C>, after: &Record) -> Result<usize> {
    let last = after.life.last_report;
    db.run(
        "UPDATE windlass_job SET state=3,outcome=3,grp=NULL,worker=NULL,token=NULL,expires_at=NULL,last_token=?2,\
         last_state=?3,finished_at=?4 WHERE row=?1",
        params![
            Col(after.row.0),
            last.map(|last| Col(last.token)),
            last.map(|last| Col(last.state)),
            after.life.finished_at.map(Col)
        ],
    )
}

/// True when nothing but the end of the lease differs.
fn only_renewed(before: &Record, after: &Record) -> bool {
    let mut same = before.clone();
    same.life.held.clone_from(&after.life.held);
    same == *after
}

fn renew<C: Borrow<Connection>>(db: &mut Db<C>, after: &Record) -> Result<usize> {
    let expires_at = after.life.held.as_ref().map(|held| Col(held.expires_at));
    db.run("UPDATE windlass_job SET expires_at=?2 WHERE row=?1", params![Col(after.row.0), expires_at])
}

fn update<C: Borrow<Connection>>(db: &mut Db<C>, after: &Record) -> Result<usize> {
    let life = &after.life;
    let held = life.held.as_ref();
    let worker = held.map(|held| held.worker.as_str());
    db.run(
        "UPDATE windlass_job SET grp=?2,state=?3,ord=?4,priority=?5,flags=?6,attempt=?7,stalls=?8,retries=?9,due_at=?10,\
         worker=?11,token=?12,expires_at=?13,last_token=?14,last_state=?15,ready_at=?16,claimed_at=?17,finished_at=?18,\
         remove_at=?19,rdy=?20,outcome=?21,told=?22 WHERE row=?1",
        params![
            Col(after.row.0),
            after.group.map(|id| Col(id.0)),
            Col(life.state),
            after.ord.0,
            after.priority,
            flags(after),
            life.attempt,
            life.stalls,
            life.retries,
            due(after),
            worker,
            held.map(|held| Col(held.token)),
            held.map(|held| Col(held.expires_at)),
            life.last_report.map(|last| Col(last.token)),
            life.last_report.map(|last| Col(last.state)),
            Col(after.ready_at),
            life.claimed_at.map(Col),
            life.finished_at.map(Col),
            after.remove_at.map(Col),
            ready_lane(after),
            outcome(after),
            worker.filter(|_| life.cancel_requested)
        ],
    )
}

/// How to walk through a range of an index.
struct Range {
    sql: String,
    /// How many of a position's numbers count.
    places: usize,
}

impl Range {
    fn new(walk: Walk<'_>) -> Self {
        let (position, which, key) = match walk.state {
            State::Scheduled => ("due_at,row,0", "due_at IS NOT NULL AND queue=?1".to_owned(), "due_at,row"),
            State::Ready => ("rdy,grp,ord", "rdy IS NOT NULL AND rdy=?1".to_owned(), "rdy,grp,ord"),
            State::Active => ("row,0,0", "expires_at IS NOT NULL AND queue=?1".to_owned(), "row"),
            ended => {
                let which = format!("outcome IS NOT NULL AND lane=?1 AND outcome={}", ended.index());
                ("finished_at,row,0", which, "finished_at,row")
            }
        };
        Self { sql: walk_sql(position, &which, key, walk.descending), places: key.split(',').count() }
    }
}

fn walk_sql(position: &str, which: &str, key: &str, descending: bool) -> String {
    let (beyond, order) = if descending { ("<", " DESC") } else { (">", "") };
    let columns: Vec<&str> = key.split(',').collect();
    let marks: Vec<String> = (0..columns.len()).map(|i| format!("?{}", i + 2)).collect();
    let by: Vec<String> = columns.iter().map(|column| format!("{column}{order}")).collect();
    format!(
        "SELECT {position},row,lane FROM windlass_job WHERE {which} AND ({key}){beyond}({}) ORDER BY {} LIMIT ?{}",
        marks.join(","),
        by.join(","),
        columns.len() + 2
    )
}

/// A number by which something is sorted. One that is damaged comes last; whoever reads its job finds out.
fn number(row: &SqlRow<'_>, at: usize) -> i64 {
    row.get(at).unwrap_or(i64::MAX)
}

fn read_row(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    Ok(Row(row.get::<_, Col<u64>>(0)?.0))
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
