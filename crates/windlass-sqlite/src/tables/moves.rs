//! New jobs, and the two moves that every job makes, to active and from there to its end, written many at a time: a
//! statement costs more than a row, so those of one transaction share theirs.
//!
//! They are written before anything else reads or writes the tables of jobs and states, and at the end of the transaction.
//! [`JobDb`] owns both the connection and the moves that are not written, and gives the connection for these tables only
//! inside of a guard: [`Settled`] to read, [`States`] to write. Getting a guard writes what is pending.
//!
//! Jobs that were ready one behind the other are deleted as a range. A job that becomes ready in between would be deleted
//! with them; so neighbours are noted under [`Settled`] only, and getting [`States`] forgets them.

use super::places::{self, bind};
use super::records::flags;
use super::specs;
use crate::db::{Db, Source};
use crate::values::Col;
use rusqlite::{Params, Row as SqlRow, Statement, params};
use std::borrow::Borrow;
use std::sync::LazyLock;
use windlass_core::engine::{Fresh, GroupId, LaneId, NumberMap, Ord64, Record, Row};
use windlass_core::id::JobId;
use windlass_core::job::State;
use windlass_core::{Error, Result};

/// Rows of one statement.
pub(super) const ROWS: usize = 16;

const PUT_JOB: &str = "INSERT OR IGNORE INTO windlass_job(row,id,queue,lane,grp,ord,priority,flags,attempts_max,stalls_max,\
                       created_at,fingerprint,dedup,run,payload,content_type,rest) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

static PUT_JOBS: LazyLock<String> = LazyLock::new(|| many(PUT_JOB));
static PUT_FRESH: LazyLock<String> = LazyLock::new(|| many(places::PUT_FRESH));
static TAKE_ACTIVE: LazyLock<String> =
    LazyLock::new(|| format!("DELETE FROM windlass_active WHERE row IN ({})", marks(ROWS)));
static PUT_ACTIVE: LazyLock<String> = LazyLock::new(|| many(places::PUT_ACTIVE));
static PUT_ENDED: LazyLock<String> = LazyLock::new(|| many(places::PUT_ENDED));

fn marks(n: usize) -> String {
    vec!["?"; n].join(",")
}

/// `INSERT INTO … VALUES(…)` for many rows.
pub(super) fn many(one: &str) -> String {
    let row = one.rsplit_once("VALUES").map_or("", |(_, row)| row);
    format!("{one}{}", format!(",{row}").repeat(ROWS - 1))
}

/// Puts rows: `ROWS` with each statement `many`, and those that are left one by one.
pub(super) fn put_rows<C: Source, T>(
    db: &mut Db<C>,
    (one, many): (&'static str, &'static str),
    rows: &[T],
    bind: impl Fn(&mut Statement<'_>, usize, &T) -> rusqlite::Result<usize>,
) -> Result<()> {
    let mut put = |sql, rows: &[T]| {
        let bind_all =
            |statement: &mut Statement<'_>| rows.iter().try_fold(1, |at, row| bind(statement, at, row)).map(drop);
        db.run_bound(sql, bind_all).map(drop)
    };
    let (chunks, rest) = rows.as_chunks::<ROWS>();
    chunks.iter().try_for_each(|rows| put(many, rows))?;
    rest.iter().try_for_each(|row| put(one, std::slice::from_ref(row)))
}

/// Neighbours among the ready jobs of a group in a lane: all between the first and the last.
#[derive(Clone, Copy, Debug)]
struct Streak {
    of: (LaneId, GroupId),
    first: (Ord64, Row),
    last: (Ord64, Row),
}

/// Ready jobs, and the one just before each: as they were read, and nothing was written to the states since.
#[derive(Debug, Default)]
pub(super) struct Neighbours(NumberMap<Row, Row>);

impl Neighbours {
    /// A ready job was read, and the one just before it in the same group and lane, if that is sure.
    pub(super) fn note(&mut self, row: Row, before: Option<Row>) {
        match before {
            Some(before) => self.0.insert(row, before),
            None => self.0.remove(&row),
        };
    }
}

/// The tables of jobs and states, to be read: nothing waits to be written there.
pub(super) struct Settled<'d, C> {
    db: &'d mut Db<C>,
    neighbours: &'d mut Neighbours,
}

impl<C: Source> Settled<'_, C> {
    /// The first row of a query.
    pub(super) fn one<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&SqlRow<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>> {
        self.db.one(sql, params, read)
    }

    /// All rows of a query.
    pub(super) fn all<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        read: impl FnMut(&SqlRow<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        self.db.all(sql, params, read)
    }

    /// The same, for a query over ready jobs in order, whose neighbours are noted.
    pub(super) fn all_ready<R>(
        &mut self,
        sql: &'static str,
        params: impl Params,
        mut read: impl FnMut(&SqlRow<'_>, &mut Neighbours) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        self.db.all(sql, params, |row| read(row, self.neighbours))
    }

    /// All rows of a query that was put together.
    pub(super) fn all_of<R>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&SqlRow<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        self.db.all_of(sql, params, read)
    }
}

/// The tables of jobs and states, to be written to: nothing waits to be written there, and no two jobs count as neighbours.
pub(super) struct States<'d, C> {
    db: &'d mut Db<C>,
}

impl<C> States<'_, C> {
    pub(super) fn db(&mut self) -> &mut Db<C> {
        self.db
    }
}

#[derive(Debug, Default)]
struct Moves {
    added: Vec<Fresh>,
    from_ready: Vec<Streak>,
    from_active: Vec<Row>,
    to_active: Vec<Record>,
    to_ended: Vec<Record>,
    neighbours: Neighbours,
}

/// The connection of the tables, and the jobs and moves that are not written yet.
#[derive(Debug)]
pub(crate) struct JobDb<C> {
    db: Db<C>,
    moves: Moves,
}

impl<C: Source> JobDb<C> {
    pub(super) fn new(conn: C) -> Self {
        Self { db: Db::new(conn), moves: Moves::default() }
    }

    /// Forgets what is not written.
    pub(super) fn forget(&mut self) {
        self.moves = Moves::default();
    }

    /// The connection, for all tables but those of jobs, their payloads and their states.
    pub(crate) fn others(&mut self) -> &mut Db<C> {
        &mut self.db
    }

    /// Writes what was kept, so that the tables of jobs and states can be read.
    pub(super) fn settled(&mut self) -> Result<Settled<'_, C>> {
        if !self.moves.is_empty() {
            self.moves.write(&mut self.db)?;
        }
        Ok(Settled { db: &mut self.db, neighbours: &mut self.moves.neighbours })
    }

    /// Writes what was kept, so that the tables of jobs and states can be written to.
    pub(super) fn states(&mut self) -> Result<States<'_, C>> {
        self.moves.write(&mut self.db)
    }

    /// The first job at or behind an id, among those that are written: the row, and the id unless it is damaged. The tables'
    /// `Ids` hold the others, so that an enqueue of many jobs looks their ids up without a write in between.
    pub(super) fn first_written(&mut self, id: JobId) -> Result<Option<(Row, Option<JobId>)>> {
        let sql = "SELECT row,id FROM windlass_job WHERE id>=?1 ORDER BY id LIMIT 1";
        self.db.one(sql, [Col(id)], |row| {
            Ok((Row(row.get::<_, Col<u64>>(0)?.0), row.get::<_, Col<JobId>>(1).ok().map(|id| id.0)))
        })
    }

    /// Keeps a new job for later.
    pub(super) fn add(&mut self, fresh: Fresh) {
        self.moves.added.push(fresh);
    }

    /// Keeps a move for later, if it is one of the two.
    pub(super) fn keep(&mut self, before: &Record, after: &Record) -> bool {
        self.moves.keep(before, after)
    }
}

impl Moves {
    fn keep(&mut self, before: &Record, after: &Record) -> bool {
        match (before.state(), after.state(), before.group) {
            (State::Ready, State::Active, Some(group)) => {
                let (of, place) = ((before.lane, group), (before.ord, before.row));
                let neighbour = self.neighbours.0.get(&before.row).copied();
                match self.from_ready.last_mut() {
                    Some(streak) if streak.of == of && Some(streak.last.1) == neighbour => streak.last = place,
                    _ => self.from_ready.push(Streak { of, first: place, last: place }),
                }
                self.to_active.push(after.clone());
                true
            }
            // One that has only just become active has to be written as that first.
            (State::Active, to, _) if to.is_terminal() && self.to_active.is_empty() => {
                self.from_active.push(before.row);
                self.to_ended.push(after.clone());
                true
            }
            _ => false,
        }
    }

    fn is_empty(&self) -> bool {
        // What goes into a state has come from another, so these two tell of all four.
        self.added.is_empty() && self.to_active.is_empty() && self.to_ended.is_empty()
    }

    fn write<'d, C: Source>(&mut self, db: &'d mut Db<C>) -> Result<States<'d, C>> {
        self.neighbours.0.clear();
        let mut states = States { db };
        // The ranges go first: what was added since they were read may stand within them.
        for Streak { of: (lane, group), first, last } in self.from_ready.drain(..) {
            // With the row: two jobs may stand in one place when the sequence was damaged.
            let sql = "DELETE FROM windlass_ready \
                       WHERE lane=?1 AND grp=?2 AND (ord,row)>=(?3,?4) AND (ord,row)<=(?5,?6)";
            let (from, to) = ((first.0.0, Col(first.1.0)), (last.0.0, Col(last.1.0)));
            states.db.run(sql, params![Col(lane.0), Col(group.0), from.0, from.1, to.0, to.1])?;
        }
        put_jobs(&mut states, &self.added)?;
        self.added.clear();
        let (many, rest) = self.from_active.as_chunks::<ROWS>();
        for rows in many {
            states.db.run(&TAKE_ACTIVE, rows.map(|row| Col(row.0)))?;
        }
        for row in rest {
            places::take_active(&mut states, *row)?;
        }
        self.from_active.clear();
        put_all(&mut states, &PUT_ACTIVE, &self.to_active, places::bind_active)?;
        self.to_active.clear();
        put_all(&mut states, &PUT_ENDED, &self.to_ended, places::bind_ended)?;
        self.to_ended.clear();
        Ok(states)
    }
}

/// Adds jobs.
fn put_jobs<C: Source>(states: &mut States<'_, C>, added: &[Fresh]) -> Result<()> {
    let (many, rest) = added.as_chunks::<ROWS>();
    for added in many {
        put_some_jobs(states.db, &PUT_JOBS, added)?;
    }
    for added in rest {
        put_some_jobs(states.db, PUT_JOB, std::slice::from_ref(added))?;
    }
    let (fresh, others): (Vec<&Record>, Vec<&Record>) =
        added.iter().map(|fresh| &fresh.record).partition(|record| places::is_fresh(record));
    put_all(states, &PUT_FRESH, &fresh, places::bind_fresh)?;
    others.into_iter().try_for_each(|record| places::put(states, record))
}

fn put_some_jobs<C: Source>(db: &mut Db<C>, sql: &'static str, added: &[Fresh]) -> Result<()> {
    let columns: Vec<specs::Columns<'_>> =
        added.iter().map(|fresh| specs::columns(&fresh.spec)).collect::<Result<_>>()?;
    let put = db.run_bound(sql, |statement| {
        let mut at = 1;
        for (Fresh { record, .. }, columns) in added.iter().zip(&columns) {
            at = bind_job(statement, at, record, columns)?;
        }
        Ok(())
    })?;
    if put < added.len() {
        return Err(db.fail(Error::corrupt("a new job's number was taken before; the store's sequence is damaged")));
    }
    for (Fresh { record, spec }, _) in added.iter().zip(&columns).filter(|(_, columns)| columns.payload.is_none()) {
        specs::put_payload(db, record.row, &spec.payload.bytes)?;
    }
    Ok(())
}

fn bind_job(
    statement: &mut Statement<'_>,
    at: usize,
    record: &Record,
    columns: &specs::Columns<'_>,
) -> rusqlite::Result<usize> {
    let group = record.group.map(|id| Col(id.0));
    let at =
        bind(statement, at, &[&Col(record.row.0), &Col(record.id), &Col(record.queue.0), &Col(record.lane.0), &group])?;
    let (attempts_max, stalls_max) = (record.life.attempts_max, record.life.stalls_max);
    let at = bind(statement, at, &[&record.ord.0, &record.priority, &flags(record), &attempts_max, &stalls_max])?;
    let at =
        bind(statement, at, &[&Col(record.created_at), &Col(record.fingerprint), &record.dedup, &record.run.map(Col)])?;
    bind(statement, at, &[&columns.payload, &columns.content_type, &columns.rest])
}

/// Puts jobs into their states, `ROWS` at a time.
fn put_all<C: Source, R: Borrow<Record>>(
    states: &mut States<'_, C>,
    sql: &'static str,
    records: &[R],
    bind: fn(&mut Statement<'_>, usize, &Record) -> rusqlite::Result<usize>,
) -> Result<()> {
    let (many, rest) = records.as_chunks::<ROWS>();
    for records in many {
        let put = states.db.run_bound(sql, |statement| {
            let mut at = 1;
            for record in records {
                at = bind(statement, at, record.borrow())?;
            }
            Ok(())
        })?;
        if put < ROWS {
            // A damaged row says to be one of these jobs'.
            for record in records {
                places::take_everywhere(states, record.borrow().row)?;
                places::put(states, record.borrow())?;
            }
        }
    }
    rest.iter().try_for_each(|record| places::put(states, record.borrow()))
}

#[cfg(test)]
mod tests {
    use crate::tables::SqliteTables;
    use crate::values::Col;
    use rusqlite::Connection;
    use windlass_core::engine::{Fresh, JobTables, Record, Step};
    use windlass_core::id::{JobId, Token};
    use windlass_core::job::{Event, JobSpec, NewJob, Next, next};
    use windlass_core::payload::Payload;
    use windlass_core::random::StrongRandom;
    use windlass_core::store::EnqueueRequest;
    use windlass_core::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

    /// Tables with so many ready jobs, and their records in order.
    fn filled(conn: &Connection, count: u128) -> (SqliteTables<&Connection>, Vec<Record>) {
        conn.execute_batch(include_str!("../../migrations/1.sql")).unwrap();
        conn.execute_batch(include_str!("../../migrations/2.sql")).unwrap();
        let mut tables = SqliteTables::new(conn);
        tables.db.others().begin("BEGIN").unwrap();
        let spec = JobSpec::new("q".try_into().unwrap(), "work".try_into().unwrap(), Payload::default());
        let jobs = (1..=count).map(|n| NewJob::new(JobId::from_parts(0, n), spec.clone())).collect();
        let random = StrongRandom::seeded(1);
        let mut step = Step::new(&mut tables, &random, NOW);
        step.enqueue(EnqueueRequest::new(jobs)).unwrap();
        step.finish().unwrap();
        tables.flush().unwrap();
        let record = |n: u128| {
            let row = tables.find_job(JobId::from_parts(0, n)).unwrap().unwrap();
            tables.record(row).unwrap().unwrap()
        };
        let records = (1..=count).map(record).collect();
        (tables, records)
    }

    const TOKEN: Token = Token::from_bits(1);

    fn change(tables: &mut SqliteTables<&Connection>, before: &Record, event: &Event) -> Record {
        let Next::Becomes(life, _) = next(&before.life, event, NOW).unwrap() else { panic!("it is gone") };
        let group = before.group.filter(|_| !life.state.is_terminal());
        let after = Record { life, group, ..before.clone() };
        tables.update_job(before, &after).unwrap();
        after
    }

    fn lease(tables: &mut SqliteTables<&Connection>, before: &Record) -> Record {
        let event = Event::Claim { worker: "w".try_into().unwrap(), token: TOKEN, lease_ms: 60_000 };
        change(tables, before, &event)
    }

    fn rows(conn: &Connection, table: &str) -> Vec<u64> {
        let mut ask = conn.prepare(&format!("SELECT row FROM windlass_{table} ORDER BY row")).unwrap();
        ask.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(|row| row.unwrap().cast_unsigned()).collect()
    }

    /// Reads eight ready jobs, leases some of them, and looks at who is where.
    fn check_leased(leased: &[usize], damage: Option<&str>) {
        let conn = Connection::open_in_memory().unwrap();
        let (mut tables, jobs) = filled(&conn, 8);
        if let Some(damage) = damage {
            conn.execute(damage, [Col(jobs[3].row.0)]).unwrap();
        }
        tables.ready(jobs[0].lane, jobs[0].group.unwrap(), None, 8).unwrap();
        leased.iter().for_each(|at| drop(lease(&mut tables, &jobs[*at])));
        tables.flush().unwrap();
        let those = |active: bool| {
            let mine = jobs.iter().enumerate().filter(|(at, _)| leased.contains(at) == active);
            mine.map(|(_, job)| job.row.0).collect::<Vec<_>>()
        };
        assert_eq!((rows(&conn, "ready"), rows(&conn, "active")), (those(false), those(true)), "{leased:?} {damage:?}");
    }

    #[test]
    fn only_those_that_were_leased_leave_the_ready_ones() {
        for leased in [&[0, 1, 2][..], &[0, 2], &[0, 1, 4, 5, 7], &[1, 6], &[7], &[2, 1], &[5, 6, 0, 1]] {
            check_leased(leased, None);
        }
    }

    #[test]
    fn a_damaged_job_is_no_neighbour() {
        for damage in [
            "UPDATE windlass_job SET flags=x'01' WHERE row=?1",
            "UPDATE windlass_job SET rest='{' WHERE row=?1",
            "UPDATE windlass_job SET ord=4711 WHERE row=?1",
        ] {
            check_leased(&[1, 2, 4, 5], Some(damage));
        }
    }

    #[test]
    fn one_that_is_leased_and_ends_before_anything_is_written_stands_in_one_place() {
        let conn = Connection::open_in_memory().unwrap();
        let (mut tables, jobs) = filled(&conn, 3);
        let active: Vec<_> = jobs.iter().map(|job| lease(&mut tables, job)).collect();
        change(&mut tables, &active[1], &Event::Complete { token: TOKEN });
        tables.flush().unwrap();
        let row = |at: usize| jobs[at].row.0;
        assert_eq!((rows(&conn, "active"), rows(&conn, "ended")), (vec![row(0), row(2)], vec![row(1)]));
    }

    #[test]
    fn a_job_that_comes_back_between_two_that_were_read_as_neighbours_stays_ready() {
        let conn = Connection::open_in_memory().unwrap();
        let (mut tables, jobs) = filled(&conn, 3);
        let between = lease(&mut tables, &jobs[1]);
        tables.ready(jobs[0].lane, jobs[0].group.unwrap(), None, 8).unwrap();
        change(&mut tables, &between, &Event::Release { token: TOKEN, started: false });
        lease(&mut tables, &jobs[0]);
        lease(&mut tables, &jobs[2]);
        tables.flush().unwrap();
        assert_eq!(rows(&conn, "ready"), vec![between.row.0]);
    }

    #[test]
    fn a_job_that_is_added_between_two_that_were_leased_as_neighbours_stays_ready() {
        let conn = Connection::open_in_memory().unwrap();
        let (mut tables, jobs) = filled(&conn, 3);
        let spec = tables.spec(jobs[1].row).unwrap();
        tables.remove_job(&jobs[1]).unwrap();
        tables.ready(jobs[0].lane, jobs[0].group.unwrap(), None, 8).unwrap();
        lease(&mut tables, &jobs[0]);
        lease(&mut tables, &jobs[2]);
        tables.insert_job(Fresh { record: jobs[1].clone(), spec }).unwrap();
        tables.flush().unwrap();
        assert_eq!(rows(&conn, "ready"), vec![jobs[1].row.0]);
    }
}
