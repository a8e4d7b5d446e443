//! Where jobs stand: a table for each state (one for all three ends), and the queries over them.

use super::moves::{Settled, States};
use super::records::{BEHIND_READY, HELD, SELECT_READY, read};
use super::{SqliteTables, limit, specs};
use crate::db::Source;
use crate::values::Col;
use rusqlite::types::{ToSql, Value};
use rusqlite::{Row as SqlRow, Statement, params};
use windlass_core::engine::{GroupId, JobTables, LaneId, Ord64, Position, Record, Row, Walk};
use windlass_core::job::State;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// Takes a job from where it stood to where it stands now.
pub(super) fn move_to<C: Source>(states: &mut States<'_, C>, before: &Record, after: &Record) -> Result<()> {
    if only_renewed(before, after) {
        return renew(states, after);
    }
    take(states, before)?;
    put(states, after)
}

/// True when nothing but the end of the lease differs.
fn only_renewed(before: &Record, after: &Record) -> bool {
    if before.state() != State::Active || after.state() != State::Active {
        return false;
    }
    let mut same = before.clone();
    same.life.held.clone_from(&after.life.held);
    same == *after
}

fn renew<C: Source>(states: &mut States<'_, C>, after: &Record) -> Result<()> {
    let expires_at = after.life.held.as_ref().map(|held| Col(held.expires_at));
    states.db().run("UPDATE windlass_active SET expires_at=?2 WHERE row=?1", params![Col(after.row.0), expires_at])
}

/// Takes a job out of its state.
pub(super) fn take<C: Source>(states: &mut States<'_, C>, record: &Record) -> Result<()> {
    let row = Col(record.row.0);
    match record.state() {
        State::Scheduled => states.db().run("DELETE FROM windlass_scheduled WHERE row=?1", [row]),
        State::Ready => {
            let group = record.group.map(|id| Col(id.0));
            let sql = "DELETE FROM windlass_ready WHERE lane=?1 AND grp=?2 AND ord=?3 AND row=?4";
            states.db().run(sql, params![Col(record.lane.0), group, record.ord.0, row])
        }
        State::Active => take_active(states, record.row),
        State::Succeeded | State::Failed | State::Cancelled => {
            states.db().run("DELETE FROM windlass_ended WHERE row=?1", [row])
        }
    }
}

pub(super) fn take_active<C: Source>(states: &mut States<'_, C>, row: Row) -> Result<()> {
    states.db().run("DELETE FROM windlass_active WHERE row=?1", [Col(row.0)])
}

/// Takes a job out of every state, wherever a damaged row may say that it is. Looks through all ready jobs.
pub(super) fn take_everywhere<C: Source>(states: &mut States<'_, C>, row: Row) -> Result<()> {
    let row = [Col(row.0)];
    states.db().run("DELETE FROM windlass_scheduled WHERE row=?1", row)?;
    states.db().run("DELETE FROM windlass_ready WHERE row=?1", row)?;
    states.db().run("DELETE FROM windlass_active WHERE row=?1", row)?;
    states.db().run("DELETE FROM windlass_ended WHERE row=?1", row)
}

/// Puts a job into its state.
pub(super) fn put<C: Source>(states: &mut States<'_, C>, record: &Record) -> Result<()> {
    if insert(states, record)? == 0 {
        // A damaged row says to be this job's.
        take_everywhere(states, record.row)?;
        insert(states, record)?;
    }
    Ok(())
}

fn insert<C: Source>(states: &mut States<'_, C>, record: &Record) -> Result<usize> {
    let (sql, bind): (_, fn(&mut Statement<'_>, usize, &Record) -> _) = match record.state() {
        State::Scheduled => (PUT_SCHEDULED, bind_scheduled),
        State::Ready if is_fresh(record) => (PUT_FRESH, bind_fresh),
        State::Ready => (PUT_READY, bind_ready),
        State::Active => (PUT_ACTIVE, bind_active),
        State::Succeeded | State::Failed | State::Cancelled => (PUT_ENDED, bind_ended),
    };
    states.db().run_bound(sql, |statement| bind(statement, 1, record).map(drop))
}

// What can be in the way of these is a damaged row, which must not fail the transaction of others: hence the `IGNORE`.

const PUT_SCHEDULED: &str = "INSERT OR IGNORE INTO windlass_scheduled(row,queue,lane,due_at,attempt,stalls,retries,\
                             ready_at,claimed_at,last_token,last_state) VALUES(?,?,?,?,?,?,?,?,?,?,?)";

fn bind_scheduled(statement: &mut Statement<'_>, at: usize, record: &Record) -> rusqlite::Result<usize> {
    let due_at = record.life.due_at.map_or(HELD, Timestamp::as_ms);
    let at = bind(statement, at, &[&Col(record.row.0), &Col(record.queue.0), &Col(record.lane.0), &due_at])?;
    bind_life(statement, at, record)
}

const PUT_READY: &str = "INSERT OR IGNORE INTO windlass_ready(lane,grp,ord,row,attempt,stalls,retries,ready_at,\
                         claimed_at,last_token,last_state) VALUES(?,?,?,?,?,?,?,?,?,?,?)";

fn bind_ready(statement: &mut Statement<'_>, at: usize, record: &Record) -> rusqlite::Result<usize> {
    let group = record.group.map(|id| Col(id.0));
    let at = bind(statement, at, &[&Col(record.lane.0), &group, &record.ord.0, &Col(record.row.0)])?;
    bind_life(statement, at, record)
}

/// A job that was never claimed.
pub(super) const PUT_FRESH: &str = "INSERT OR IGNORE INTO windlass_ready(lane,grp,ord,row,ready_at,attempt,stalls,retries) \
                         VALUES(?,?,?,?,?,0,0,0)";

pub(super) fn is_fresh(record: &Record) -> bool {
    let life = &record.life;
    life.state == State::Ready
        && life.attempt == 0
        && life.stalls == 0
        && life.retries == 0
        && life.claimed_at.is_none()
        && life.last_report.is_none()
}

pub(super) fn bind_fresh(statement: &mut Statement<'_>, at: usize, record: &Record) -> rusqlite::Result<usize> {
    let group = record.group.map(|id| Col(id.0));
    let ready_at = Col(record.ready_at);
    bind(statement, at, &[&Col(record.lane.0), &group, &record.ord.0, &Col(record.row.0), &ready_at])
}

pub(super) const PUT_ACTIVE: &str = "INSERT OR IGNORE INTO windlass_active(row,queue,lane,worker,token,expires_at,told,\
                                     attempt,stalls,retries,ready_at,claimed_at,last_token,last_state) \
                                     VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

pub(super) fn bind_active(statement: &mut Statement<'_>, at: usize, record: &Record) -> rusqlite::Result<usize> {
    let at = bind(statement, at, &[&Col(record.row.0), &Col(record.queue.0), &Col(record.lane.0)])?;
    let held = record.life.held.as_ref();
    let worker = held.map(|held| held.worker.as_str());
    let (token, expires_at) = (held.map(|held| Col(held.token)), held.map(|held| Col(held.expires_at)));
    let told = worker.filter(|_| record.life.cancel_requested);
    let at = bind(statement, at, &[&worker, &token, &expires_at, &told])?;
    bind_life(statement, at, record)
}

pub(super) const PUT_ENDED: &str = "INSERT OR IGNORE INTO windlass_ended(row,lane,state,finished_at,remove_at,attempt,\
                                    stalls,retries,ready_at,claimed_at,last_token,last_state) \
                                    VALUES(?,?,?,?,?,?,?,?,?,?,?,?)";

pub(super) fn bind_ended(statement: &mut Statement<'_>, at: usize, record: &Record) -> rusqlite::Result<usize> {
    let at = bind(statement, at, &[&Col(record.row.0), &Col(record.lane.0), &Col(record.life.state)])?;
    let at = bind(statement, at, &[&record.life.finished_at.map(Col), &record.remove_at.map(Col)])?;
    bind_life(statement, at, record)
}

/// What a job keeps in every state.
fn bind_life(statement: &mut Statement<'_>, at: usize, record: &Record) -> rusqlite::Result<usize> {
    let life = &record.life;
    let at = bind(statement, at, &[&life.attempt, &life.stalls, &life.retries, &Col(record.ready_at)])?;
    let token = life.last_report.map(|last| Col(last.token));
    let state = life.last_report.map(|last| Col(last.state));
    bind(statement, at, &[&life.claimed_at.map(Col), &token, &state])
}

/// Binds values from parameter `at` on; answers which one comes next.
pub(super) fn bind(statement: &mut Statement<'_>, at: usize, values: &[&dyn ToSql]) -> rusqlite::Result<usize> {
    for (place, value) in (at..).zip(values) {
        statement.raw_bind_parameter(place, value)?;
    }
    Ok(at + values.len())
}

/// A row of the ready ones, as a claim meets it.
enum Met {
    /// The job is where it says that it is.
    Ready(Ord64, Row),
    /// It is not, or cannot be read.
    Doubtful { ord: Value, row: Value },
}

impl<C: Source> SqliteTables<C> {
    /// Ready jobs in order; their records and specs are read along, because whoever asks is about to claim them.
    pub(super) fn read_ready(
        &mut self,
        of: (LaneId, GroupId),
        after: Option<Ord64>,
        max: usize,
    ) -> Result<Vec<(Ord64, Row)>> {
        let after = after.map_or(i64::MIN, |ord| ord.0);
        loop {
            let recent = &mut self.recent;
            let mut last = None;
            let params = params![Col(of.0.0), Col(of.1.0), after, limit(max)];
            let met = self.db.settled()?.all_ready(SELECT_READY, params, |row, neighbours| {
                let known: Option<Ord64> = row.get(BEHIND_READY).ok().map(Ord64);
                match read(row) {
                    Ok(record) if (record.lane, record.group) == (of.0, Some(of.1)) && known == Some(record.ord) => {
                        let (ord, at) = (record.ord, record.row);
                        neighbours.note(at, last);
                        if let Ok(spec) = specs::read_at(row, BEHIND_READY + 1) {
                            recent.note_ahead(record, spec);
                        }
                        last = Some(at);
                        Ok(Met::Ready(ord, at))
                    }
                    _ => {
                        last = None;
                        Ok(Met::Doubtful { ord: row.get(0)?, row: row.get(1)? })
                    }
                }
            })?;
            let mut found = Vec::with_capacity(met.len());
            let mut strays = false;
            for met in met {
                match met {
                    Met::Ready(ord, row) => found.push((ord, row)),
                    Met::Doubtful { ord, row } => match self.doubtful(of, &ord, &row)? {
                        Some(place) => found.push(place),
                        None => strays = true,
                    },
                }
            }
            // What was in the way of others is gone now.
            if !strays {
                return Ok(found);
            }
        }
    }

    /// A ready row whose job says otherwise: a stray goes, and a job that is damaged is left to whoever claims it.
    fn doubtful(&mut self, of: (LaneId, GroupId), ord: &Value, row: &Value) -> Result<Option<(Ord64, Row)>> {
        if let Value::Integer(row) = *row {
            let row = Row(row.cast_unsigned());
            if matches!(self.record(row), Err(Error::Corrupt { .. })) {
                let ord = if let Value::Integer(ord) = *ord { ord } else { i64::MAX };
                return Ok(Some((Ord64(ord), row)));
            }
        }
        let sql = "DELETE FROM windlass_ready WHERE lane=?1 AND grp=?2 AND ord IS ?3 AND row IS ?4";
        self.db.states()?.db().run(sql, params![Col(of.0.0), Col(of.1.0), ord, row])?;
        Ok(None)
    }
}

impl<C: Source> Settled<'_, C> {
    /// Positions are compared as row values, so that the index finds where to go on.
    pub(super) fn walk(&mut self, walk: Walk<'_>) -> Result<Vec<(Position, Row)>> {
        let range = Range::new(walk);
        let mut found = match walk.state {
            State::Scheduled | State::Active => self.walk_one(&range, walk, walk.queue.0)?,
            State::Ready | State::Succeeded | State::Failed | State::Cancelled => {
                let mut found = Vec::new();
                for lane in walk.lanes {
                    found.extend(self.walk_one(&range, walk, lane.0)?);
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
                1 => self.all_of(sql, params![Col(of), from[0], max], read)?,
                2 => self.all_of(sql, params![Col(of), from[0], from[1], max], read)?,
                _ => self.all_of(sql, params![Col(of), from[0], from[1], from[2], max], read)?,
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

/// How to walk through a range of an index.
struct Range {
    sql: String,
    /// How many of a position's numbers count.
    places: usize,
}

impl Range {
    fn new(walk: Walk<'_>) -> Self {
        let (table, which, key) = match walk.state {
            State::Scheduled => ("scheduled", "queue=?1".to_owned(), "due_at,row"),
            State::Ready => ("ready", "lane=?1".to_owned(), "lane,grp,ord"),
            State::Active => ("active", "queue=?1".to_owned(), "row"),
            ended => ("ended", format!("lane=?1 AND state={}", ended.index()), "finished_at,row"),
        };
        Self { sql: walk_sql(table, &which, key, walk.descending), places: key.split(',').count() }
    }
}

fn walk_sql(table: &str, which: &str, key: &str, descending: bool) -> String {
    let (beyond, order) = if descending { ("<", " DESC") } else { (">", "") };
    let columns: Vec<&str> = key.split(',').collect();
    let marks: Vec<String> = (0..columns.len()).map(|i| format!("?{}", i + 2)).collect();
    let by: Vec<String> = columns.iter().map(|column| format!("{column}{order}")).collect();
    format!(
        "SELECT {key}{},row,lane FROM windlass_{table} WHERE {which} AND ({key}){beyond}({}) ORDER BY {} LIMIT ?{}",
        ",0".repeat(3 - columns.len()),
        marks.join(","),
        by.join(","),
        columns.len() + 2
    )
}

/// A number by which something is sorted. One that is damaged comes last; whoever reads its job finds out.
pub(super) fn number(row: &SqlRow<'_>, at: usize) -> i64 {
    row.get(at).unwrap_or(i64::MAX)
}

pub(super) fn read_row(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    Ok(Row(row.get::<_, Col<u64>>(0)?.0))
}
