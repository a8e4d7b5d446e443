//! Job records and the queries over their indexes.

use super::limit;
use crate::db::Db;
use crate::values::{Col, Name};
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, Row as SqlRow, params};
use std::borrow::Borrow;
use std::collections::HashMap;
use windlass_core::engine::{GroupId, LaneId, Ord64, Position, QueueId, Record, Row, Walk};
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Held, LastReport, Life, State};
use windlass_core::name::WorkerId;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// The time of a job that waits behind another, so that one index serves both.
const HELD: i64 = i64::MAX;
/// Active jobs that stay in memory, so that their outcome needs no look-up.
const RECENT_MAX: usize = 50_000;

const LIFO: i64 = 1;
const CANCEL: i64 = 2;
const GROUPED: i64 = 4;
const KEEPS_ITSELF: i64 = 8;
const QUARANTINED: i64 = 16;

/// Active jobs as this connection last wrote them.
#[derive(Debug, Default)]
pub(super) struct Recent {
    active: HashMap<JobId, Record>,
    last: Option<Record>,
}

impl Recent {
    fn note(&mut self, record: &Record) {
        if record.state() == State::Active {
            self.active.insert(record.id, record.clone());
        } else {
            self.active.remove(&record.id);
        }
        self.last = Some(record.clone());
    }

    fn drop(&mut self, record: &Record) {
        self.active.remove(&record.id);
        self.last = None;
    }

    pub(super) fn shrink(&mut self) {
        if self.active.len() > RECENT_MAX {
            self.active.clear();
        }
    }

    pub(super) fn find(&self, id: JobId) -> Option<&Record> {
        let last = self.last.as_ref().filter(|record| record.id == id);
        last.or_else(|| self.active.get(&id))
    }

    pub(super) fn last(&self, row: Row) -> Option<&Record> {
        self.last.as_ref().filter(|record| record.row == row)
    }

    fn remember(&mut self, record: &Record) {
        self.last = Some(record.clone());
    }
}

const SELECT: &str = "SELECT row,id,queue,lane,grp,state,ord,priority,flags,attempt,attempts_max,stalls,stalls_max,retries,\
                       due_at,worker,token,expires_at,last_token,last_state,created_at,ready_at,claimed_at,finished_at,\
                       remove_at,fingerprint,dedup FROM windlass_job WHERE row=?1";

fn read(row: &SqlRow<'_>) -> rusqlite::Result<Record> {
    let flags: i64 = row.get(8)?;
    let worker: Option<Name<WorkerId>> = row.get(15)?;
    let token: Option<Col<Token>> = row.get(16)?;
    let expires_at: Option<Col<Timestamp>> = row.get(17)?;
    let held = match (worker, token, expires_at) {
        (Some(Name(worker)), Some(Col(token)), Some(Col(expires_at))) => Some(Held { token, worker, expires_at }),
        _ => None,
    };
    let last_token: Option<Col<Token>> = row.get(18)?;
    let last_state: Option<Col<State>> = row.get(19)?;
    let last_report = last_token.zip(last_state).map(|(Col(token), Col(state))| LastReport { token, state });
    let time =
        |at: usize| -> rusqlite::Result<Option<Timestamp>> { Ok(row.get::<_, Option<Col<_>>>(at)?.map(|at| at.0)) };
    Ok(Record {
        row: Row(row.get::<_, Col<u64>>(0)?.0),
        id: row.get::<_, Col<_>>(1)?.0,
        queue: QueueId(row.get::<_, Col<u64>>(2)?.0),
        lane: LaneId(row.get::<_, Col<u64>>(3)?.0),
        group: row.get::<_, Option<Col<u64>>>(4)?.map(|id| GroupId(id.0)),
        grouped: flags & GROUPED != 0,
        priority: row.get(7)?,
        lifo: flags & LIFO != 0,
        ord: Ord64(row.get(6)?),
        life: Life {
            state: row.get::<_, Col<_>>(5)?.0,
            due_at: time(14)?.filter(|at| at.as_ms() != HELD),
            attempt: row.get(9)?,
            attempts_max: row.get(10)?,
            stalls: row.get(11)?,
            stalls_max: row.get(12)?,
            retries: row.get(13)?,
            held,
            cancel_requested: flags & CANCEL != 0,
            last_report,
            claimed_at: time(22)?,
            finished_at: time(23)?,
        },
        created_at: row.get::<_, Col<_>>(20)?.0,
        ready_at: row.get::<_, Col<_>>(21)?.0,
        remove_at: time(24)?,
        fingerprint: row.get::<_, Col<u64>>(25)?.0,
        dedup: row.get(26)?,
        keeps_itself: flags & KEEPS_ITSELF != 0,
        quarantined: flags & QUARANTINED != 0,
    })
}

/// What can be read of a record, with something harmless in place of the rest.
fn salvage(row: &SqlRow<'_>) -> rusqlite::Result<Record> {
    fn get<T: FromSql>(row: &SqlRow<'_>, at: usize) -> Option<T> {
        row.get_ref(at).ok().filter(|value| *value != ValueRef::Null).and_then(|value| T::column_result(value).ok())
    }
    let number = |at: usize| get::<Col<u64>>(row, at).map_or(0, |number| number.0);
    let place = number(0);
    let state = get::<Col<State>>(row, 5).map_or(State::Failed, |state| state.0);
    let life = Life::new(Some(Timestamp::from_ms(0)), Timestamp::from_ms(0), 1, 0);
    Ok(Record {
        row: Row(place),
        // An id that cannot be read gets one by which the row can be named and removed.
        id: get::<Col<JobId>>(row, 1).map_or(JobId::from_parts(u16::MAX, u128::from(place)), |id| id.0),
        queue: QueueId(number(2)),
        lane: LaneId(number(3)),
        group: get::<Col<u64>>(row, 4).map(|id| GroupId(id.0)),
        grouped: false,
        priority: get(row, 7).unwrap_or(0),
        lifo: false,
        ord: Ord64(get(row, 6).unwrap_or(0)),
        life: Life { state, attempt: get(row, 9).unwrap_or(0), ..life },
        created_at: get::<Col<_>>(row, 20).map_or(Timestamp::from_ms(0), |at| at.0),
        ready_at: Timestamp::from_ms(0),
        remove_at: None,
        fingerprint: number(25),
        dedup: None,
        keeps_itself: false,
        quarantined: false,
    })
}

fn flags(record: &Record) -> i64 {
    let bits = [
        (record.lifo, LIFO),
        (record.life.cancel_requested, CANCEL),
        (record.grouped, GROUPED),
        (record.keeps_itself, KEEPS_ITSELF),
        (record.quarantined, QUARANTINED),
    ];
    bits.into_iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
}

fn due(record: &Record) -> Option<i64> {
    let waits = record.state() == State::Scheduled;
    waits.then(|| record.life.due_at.map_or(HELD, Timestamp::as_ms))
}

/// Jobs, over a connection.
pub(super) struct Jobs<'a, C> {
    pub(super) db: &'a mut Db<C>,
    pub(super) recent: &'a mut Recent,
}

impl<C: Borrow<Connection>> Jobs<'_, C> {
    pub(super) fn find(self, id: JobId) -> Result<Option<Row>> {
        if let Some(record) = self.recent.find(id) {
            let record = record.clone();
            self.recent.remember(&record);
            return Ok(Some(record.row));
        }
        self.db.one("SELECT row FROM windlass_job WHERE id=?1", [Col(id)], read_row)
    }

    pub(super) fn record(self, row: Row) -> Result<Option<Record>> {
        if let Some(record) = self.recent.last(row) {
            return Ok(Some(record.clone()));
        }
        let found = self.db.one(SELECT, [Col(row.0)], read);
        let found = found.map_err(|error| name_row(error, row))?;
        if let Some(record) = &found {
            self.recent.remember(record);
        }
        Ok(found)
    }

    pub(super) fn salvage(self, row: Row) -> Result<Option<Record>> {
        let found = self.db.one(SELECT, [Col(row.0)], salvage)?;
        self.recent.last = None;
        // Its id may have been repaired, and its place in the indexes is about to be left.
        if let Some(record) = &found {
            self.db
                .run("UPDATE windlass_job SET id=?2,dedup=NULL WHERE row=?1", params![Col(row.0), Col(record.id)])?;
        }
        Ok(found)
    }

    pub(super) fn insert(self, record: &Record) -> Result<()> {
        let life = &record.life;
        self.db.run(
            "INSERT INTO windlass_job(row,id,queue,lane,grp,state,ord,priority,flags,attempt,attempts_max,stalls,stalls_max,\
             retries,due_at,created_at,ready_at,fingerprint,dedup) \
             VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19)",
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
                life.attempt,
                life.attempts_max,
                life.stalls,
                life.stalls_max,
                life.retries,
                due(record),
                Col(record.created_at),
                Col(record.ready_at),
                Col(record.fingerprint),
                record.dedup
            ],
        )?;
        Ok(())
    }

    pub(super) fn update(self, after: &Record) -> Result<()> {
        let life = &after.life;
        let held = life.held.as_ref();
        self.db.run(
            "UPDATE windlass_job SET grp=?2,state=?3,ord=?4,priority=?5,flags=?6,attempt=?7,stalls=?8,retries=?9,due_at=?10,\
             worker=?11,token=?12,expires_at=?13,last_token=?14,last_state=?15,ready_at=?16,claimed_at=?17,finished_at=?18,\
             remove_at=?19 WHERE row=?1",
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
                held.map(|held| held.worker.as_str()),
                held.map(|held| Col(held.token)),
                held.map(|held| Col(held.expires_at)),
                life.last_report.map(|last| Col(last.token)),
                life.last_report.map(|last| Col(last.state)),
                Col(after.ready_at),
                life.claimed_at.map(Col),
                life.finished_at.map(Col),
                after.remove_at.map(Col)
            ],
        )?;
        self.recent.note(after);
        Ok(())
    }

    pub(super) fn remove(self, record: &Record) -> Result<()> {
        self.recent.drop(record);
        let row = [Col(record.row.0)];
        self.db.run("DELETE FROM windlass_job WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_spec WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_extra WHERE row=?1", row)?;
        self.db.run("DELETE FROM windlass_log WHERE row=?1", row)?;
        Ok(())
    }

    pub(super) fn ready(self, of: (LaneId, GroupId), after: Option<Ord64>, max: usize) -> Result<Vec<(Ord64, Row)>> {
        let sql =
            "SELECT ord,row FROM windlass_job WHERE state=1 AND lane=?1 AND grp=?2 AND ord>?3 ORDER BY ord LIMIT ?4";
        let after = after.map_or(i64::MIN, |ord| ord.0);
        let read = |row: &SqlRow<'_>| Ok((Ord64(row.get(0)?), Row(row.get::<_, Col<u64>>(1)?.0)));
        self.db.all(sql, params![Col(of.0.0), Col(of.1.0), after, limit(max)], read)
    }

    pub(super) fn due(self, queue: QueueId, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT row FROM windlass_job WHERE state=0 AND queue=?1 AND due_at<=?2 ORDER BY due_at,row LIMIT ?3";
        let until = until.as_ms().min(HELD - 1);
        self.db.all(sql, params![Col(queue.0), until, limit(max)], read_row)
    }

    pub(super) fn next_due(self, queue: QueueId) -> Result<Option<Timestamp>> {
        let sql = "SELECT due_at FROM windlass_job WHERE state=0 AND queue=?1 AND due_at<?2 ORDER BY due_at LIMIT 1";
        self.db.one(sql, params![Col(queue.0), HELD], |row| Ok(row.get::<_, Col<_>>(0)?.0))
    }

    pub(super) fn expired(self, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT row FROM windlass_job WHERE state=2 AND expires_at<=?1 ORDER BY expires_at,row LIMIT ?2";
        self.db.all(sql, params![Col(until), limit(max)], read_row)
    }

    pub(super) fn cancelling(self, worker: &WorkerId) -> Result<Vec<JobId>> {
        let sql = "SELECT id FROM windlass_job WHERE state=2 AND flags&2 AND worker=?1 ORDER BY row";
        self.db.all(sql, [worker.as_str()], |row| Ok(row.get::<_, Col<_>>(0)?.0))
    }

    pub(super) fn removable(self, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT row FROM windlass_job WHERE remove_at<=?1 ORDER BY remove_at,row LIMIT ?2";
        self.db.all(sql, params![Col(until), limit(max)], read_row)
    }

    pub(super) fn ended(self, lanes: &[LaneId], state: State, until: Timestamp, max: usize) -> Result<Vec<Row>> {
        let sql = "SELECT finished_at,row FROM windlass_job WHERE state>2 AND lane=?1 AND state=?2 AND finished_at<=?3 \
                   AND remove_at IS NULL ORDER BY finished_at,row LIMIT ?4";
        let mut found = Vec::new();
        for lane in lanes {
            let read = |row: &SqlRow<'_>| Ok((row.get::<_, i64>(0)?, Row(row.get::<_, Col<u64>>(1)?.0)));
            found.extend(self.db.all(sql, params![Col(lane.0), Col(state), Col(until), limit(max)], read)?);
        }
        found.sort_unstable();
        found.truncate(max);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    /// Positions are compared as row values, so that the index finds where to go on.
    pub(super) fn walk(self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        let mut found = Vec::new();
        match walk.state {
            State::Scheduled => {
                let sql = walk_sql("due_at,row,0", "state=0 AND queue=?1", "due_at,row", walk.descending);
                self.walk_one(&sql, walk, walk.queue.0, 2, &mut found)?;
            }
            State::Active => {
                let sql = walk_sql("row,0,0", "state=2 AND queue=?1", "row", walk.descending);
                self.walk_one(&sql, walk, walk.queue.0, 1, &mut found)?;
            }
            State::Ready => {
                let sql = walk_sql("lane,grp,ord", "state=1 AND lane=?1", "lane,grp,ord", walk.descending);
                let mut jobs = self;
                for lane in walk.lanes {
                    jobs = jobs.walk_one(&sql, walk, lane.0, 3, &mut found)?;
                }
            }
            State::Succeeded | State::Failed | State::Cancelled => {
                let which = format!("state>2 AND lane=?1 AND state={}", walk.state.index());
                let sql = walk_sql("finished_at,row,0", &which, "finished_at,row", walk.descending);
                let mut jobs = self;
                for lane in walk.lanes {
                    jobs = jobs.walk_one(&sql, walk, lane.0, 2, &mut found)?;
                }
            }
        }
        found.sort_unstable_by(|a: &(Position, Row), b| if walk.descending { b.cmp(a) } else { a.cmp(b) });
        found.truncate(walk.limit);
        Ok(found)
    }

    /// Walks through one range of an index; `places` of the position's numbers count.
    fn walk_one(
        self,
        sql: &str,
        walk: Walk<'_>,
        of: u64,
        places: usize,
        found: &mut Vec<(Position, Row)>,
    ) -> Result<Self> {
        let ends = if walk.descending { i64::MAX } else { i64::MIN };
        let mut from = walk.after.unwrap_or([ends; 3]);
        let read = |row: &SqlRow<'_>| {
            let position = [row.get(0)?, row.get(1)?, row.get(2)?];
            Ok((position, Row(row.get::<_, Col<u64>>(3)?.0), LaneId(row.get::<_, Col<u64>>(4)?.0)))
        };
        let (max, start) = (limit(walk.limit), found.len());
        loop {
            let page = match places {
                1 => self.db.all(sql, params![Col(of), from[0], max], read)?,
                2 => self.db.all(sql, params![Col(of), from[0], from[1], max], read)?,
                _ => self.db.all(sql, params![Col(of), from[0], from[1], from[2], max], read)?,
            };
            let last = page.len() < walk.limit;
            from = page.last().map_or(from, |(position, ..)| *position);
            let of_lanes = page.into_iter().filter(|(_, _, lane)| walk.lanes.binary_search(lane).is_ok());
            found.extend(of_lanes.map(|(position, row, _)| (position, row)));
            // A page that other lanes have filled is not the end.
            if last || found.len() - start >= walk.limit {
                return Ok(self);
            }
        }
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
