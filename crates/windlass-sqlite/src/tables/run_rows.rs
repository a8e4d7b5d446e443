//! The rows of runs. A run changes several times in one transaction, and again in the next: those in use are kept in memory
//! and written once per transaction.

use crate::db::{Db, Source};
use crate::values::{Col, Json, Name, json};
use rusqlite::{Row as SqlRow, ToSql, params};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::engine::{NumberMap, RunRow};
use windlass_core::id::{RunId, Token};
use windlass_core::job::Held;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::RunState;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

const SELECT: &str = "SELECT seq,kind,name,definition_hash,fingerprint,state,stuck,summary,history_len,inbox_first,\
                      inbox_next,engine,token,expires_at,last_token,ready,wake_at,created_at,changed_at,finished_at,keep_ms,\
                      parent,labels,job_results,error,segment_from,segment_bytes,stall_count,unread_messages,inbox_holes,\
                      message_ids,committed_by FROM windlass_run WHERE id=?1";
const PUT: &str = "INSERT INTO windlass_run(seq,id,kind,name,definition_hash,fingerprint,state,stuck,summary,history_len,\
                   inbox_first,inbox_next,engine,token,expires_at,last_token,ready,wake_at,created_at,changed_at,finished_at,\
                   keep_ms,look_at,remove_at,parent,labels,job_results,segment_bytes,committed_by) \
                   VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,?26,\
                   ?27,?28,?29)";

/// What never changes is left alone, and so is an index whose columns have not changed: SQLite writes to every index that a
/// statement names a column of.
macro_rules! update {
    ($more:literal) => {
        concat!(
            "UPDATE windlass_run SET stuck=?2,summary=?3,history_len=?4,inbox_first=?5,inbox_next=?6,engine=?7,token=?8,\
             expires_at=?9,last_token=?10,wake_at=?11,changed_at=?12,finished_at=?13,segment_bytes=?14,committed_by=?15",
            $more,
            " WHERE seq=?1"
        )
    };
}
const UPDATE: &str = update!("");
const UPDATE_PLACE: &str = update!(",ready=?16,look_at=?17");
const UPDATE_ALL: &str = update!(",ready=?16,look_at=?17,state=?18,remove_at=?19");
/// What seldom changes.
const UPDATE_RARE: &str = "UPDATE windlass_run SET labels=?2,error=?3,segment_from=?4,stall_count=?5,unread_messages=?6,\
                           inbox_holes=?7,message_ids=?8 WHERE seq=?1";
/// What only a new segment or a new start changes.
const UPDATE_IDENTITY: &str = "UPDATE windlass_run SET kind=?2,name=?3,definition_hash=?4,fingerprint=?5,keep_ms=?6,parent=?7,\
                               job_results=?8 WHERE seq=?1";
/// What a claim does, and the end of a job: most of all changes.
const HOLD: &str = "UPDATE windlass_run SET engine=?2,token=?3,expires_at=?4,ready=NULL,look_at=?4 WHERE seq=?1";
const TELL: &str = "UPDATE windlass_run SET inbox_next=?2,changed_at=?3,ready=?4 WHERE seq=?1";

/// The last run of a definition takes it along.
const DROP_DEFINITION: &str = "DELETE FROM windlass_definition WHERE hash=?1 \
                               AND NOT EXISTS (SELECT 1 FROM windlass_run WHERE definition_hash=?1)";

/// Runs that stay in memory between transactions.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct RunRows {
    rows: NumberMap<RunId, RunRow>,
    /// What is not written, by number, and what the file says of it; nothing when it is not in the file yet.
    dirty: BTreeMap<u64, (RunId, Option<RunRow>)>,
    /// Definitions that are in the file.
    defined: BTreeSet<[u8; 16]>,
    /// Definitions that a run had before it was started again.
    replaced: Vec<[u8; 16]>,
}

/// What stands in indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    state: RunState,
    ready: Option<u64>,
    look_at: Option<Timestamp>,
    remove_at: Option<Timestamp>,
}

impl Places {
    fn of(row: &RunRow) -> Self {
        Self { state: row.state, ready: row.ready, look_at: row.look_at(), remove_at: row.remove_at() }
    }
}

fn read(id: RunId, row: &SqlRow<'_>) -> rusqlite::Result<RunRow> {
    let number = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, Col<u64>>(at)?.0) };
    let time = |at: usize| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<Col<Timestamp>>>(at)?.map(|at| at.0))
    };
    let engine: Option<Name<WorkerId>> = row.get(11)?;
    let token: Option<Col<Token>> = row.get(12)?;
    let held = match (engine, token, time(13)?) {
        (Some(Name(worker)), Some(Col(token)), Some(expires_at)) => Some(Held { token, worker, expires_at }),
        _ => None,
    };
    Ok(RunRow {
        id,
        seq: number(0)?,
        kind: row.get::<_, Name<Kind>>(1)?.0,
        name: row.get(2)?,
        definition_hash: row.get(3)?,
        fingerprint: number(4)?,
        state: row.get::<_, Col<_>>(5)?.0,
        stuck: row.get(6)?,
        summary: row.get(7)?,
        history_len: number(8)?,
        inbox_first: number(9)?,
        inbox_next: number(10)?,
        held,
        last_token: row.get::<_, Option<Col<Token>>>(14)?.map(|token| token.0),
        ready: row.get::<_, Option<Col<u64>>>(15)?.map(|place| place.0),
        wake_at: time(16)?,
        created_at: row.get::<_, Col<_>>(17)?.0,
        changed_at: row.get::<_, Col<_>>(18)?.0,
        finished_at: time(19)?,
        keep_ms: number(20)?,
        parent: row.get::<_, Option<Col<RunId>>>(21)?.map(|parent| parent.0),
        labels: row.get::<_, Option<Json<_>>>(22)?.map(|labels| labels.0).unwrap_or_default(),
        job_results: row.get(23)?,
        error: row.get(24)?,
        segment_from: number(25)?,
        segment_bytes: number(26)?,
        stall_count: row.get(27)?,
        unread_messages: number(28)?,
        inbox_holes: number(29)?,
        message_ids: number(30)?,
        committed_by: row.get::<_, Option<Name<WorkerId>>>(31)?.map(|engine| engine.0),
    })
}

pub(super) fn read_id(row: &SqlRow<'_>) -> rusqlite::Result<RunId> {
    Ok(row.get::<_, Col<RunId>>(0)?.0)
}

impl RunRows {
    pub(super) fn get<C: Source>(&mut self, db: &mut Db<C>, id: RunId) -> Result<Option<RunRow>> {
        if let Some(row) = self.rows.get(&id) {
            return Ok(Some(row.clone()));
        }
        let found = db.one(SELECT, [Col(id)], |row| read(id, row)).map_err(|error| match error {
            Error::Corrupt { what } if !what.starts_with("the database file") => {
                Error::corrupt(format!("run {id}: {what}"))
            }
            other => other,
        })?;
        // Listings come across more than there is room for.
        if let Some(row) = found.as_ref().filter(|_| self.rows.len() < KEPT_MAX) {
            self.rows.insert(id, row.clone());
        }
        Ok(found)
    }

    /// The number of a run, whether or not the rest of it can be read.
    pub(super) fn number<C: Source>(&mut self, db: &mut Db<C>, id: RunId) -> Result<Option<u64>> {
        match self.rows.get(&id) {
            Some(row) => Ok(Some(row.seq)),
            None => {
                db.one("SELECT seq FROM windlass_run WHERE id=?1", [Col(id)], |row| Ok(row.get::<_, Col<u64>>(0)?.0))
            }
        }
    }

    /// Keeps the definition of a run, if no other run has brought it.
    pub(super) fn put_definition<C: Source>(&mut self, db: &mut Db<C>, id: RunId, definition: &[u8]) -> Result<()> {
        let row = self.rows.get(&id).ok_or_else(|| Error::run_not_found(id))?;
        let hash = row.definition_hash;
        if self.defined.insert(hash) {
            let sql = "INSERT OR IGNORE INTO windlass_definition(hash,definition) VALUES(?1,?2)";
            db.run(sql, params![hash, definition])?;
        }
        Ok(())
    }

    /// Written with the next flush: most have changed again by then.
    pub(super) fn put(&mut self, before: Option<&RunRow>, row: &RunRow) {
        self.dirty.entry(row.seq).or_insert_with(|| (row.id, before.cloned()));
        let replaced = before.map(|before| before.definition_hash).filter(|hash| *hash != row.definition_hash);
        self.replaced.extend(replaced);
        self.rows.insert(row.id, row.clone());
    }

    pub(super) fn remove<C: Source>(&mut self, db: &mut Db<C>, id: RunId) -> Result<()> {
        self.flush(db)?;
        self.rows.remove(&id);
        let sql = "SELECT definition_hash FROM windlass_run WHERE id=?1";
        let hash: Option<Vec<u8>> = db.one_readable(sql, [Col(id)], |row| row.get(0))?;
        db.run("DELETE FROM windlass_run WHERE id=?1", [Col(id)])?;
        // The last one takes the definition along.
        self.defined.clear();
        db.run(DROP_DEFINITION, [hash])
    }

    /// Writes what has changed.
    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        for (id, before) in std::mem::take(&mut self.dirty).into_values() {
            match (self.rows.get(&id), before) {
                (Some(row), Some(before)) => update(db, &before, row)?,
                (Some(row), None) => insert(db, row)?,
                (None, _) => {}
            }
        }
        for hash in std::mem::take(&mut self.replaced) {
            self.defined.remove(&hash);
            db.run(DROP_DEFINITION, [hash])?;
        }
        Ok(())
    }

    /// To be called when everything is written. Runs that rest are seldom asked for again.
    pub(super) fn shrink(&mut self) {
        if self.rows.len() > KEPT_MAX {
            self.rows.retain(|_, row| !row.rests());
        }
        if self.rows.len() > KEPT_MAX {
            self.rows.clear();
        }
        if self.defined.len() > KEPT_MAX {
            self.defined.clear();
        }
    }
}

/// Writes a change, in the shortest way that says all of it.
fn update<C: Source>(db: &mut Db<C>, before: &RunRow, row: &RunRow) -> Result<()> {
    let held = row.held.as_ref();
    let changed = if let Some(held) = held.filter(|_| row.ready.is_none() && *row == but(before, |is| hold(is, row))) {
        db.run_counted(HOLD, params![Col(row.seq), held.worker.as_str(), Col(held.token), Col(held.expires_at)])?
    } else if row.look_at() == before.look_at() && *row == but(before, |is| tell(is, row)) {
        db.run_counted(TELL, params![Col(row.seq), Col(row.inbox_next), Col(row.changed_at), row.ready.map(Col)])?
    } else {
        update_all(db, before, row)?
    };
    debug_assert_eq!(changed, 1, "a run is written once");
    Ok(())
}

fn but(row: &RunRow, change: impl FnOnce(&mut RunRow)) -> RunRow {
    let mut row = row.clone();
    change(&mut row);
    row
}

fn hold(row: &mut RunRow, like: &RunRow) {
    (row.held, row.ready) = (like.held.clone(), like.ready);
}

fn tell(row: &mut RunRow, like: &RunRow) {
    (row.inbox_next, row.changed_at, row.ready) = (like.inbox_next, like.changed_at, like.ready);
}

fn update_all<C: Source>(db: &mut Db<C>, before: &RunRow, row: &RunRow) -> Result<usize> {
    if identity(before) != identity(row) {
        update_identity(db, row)?;
    }
    if rare(before) != rare(row) {
        update_rare(db, row)?;
    }
    let (held, before, places) = (row.held.as_ref(), Places::of(before), Places::of(row));
    let values: [&dyn ToSql; 19] = [
        &Col(row.seq),
        &row.stuck,
        &row.summary,
        &Col(row.history_len),
        &Col(row.inbox_first),
        &Col(row.inbox_next),
        &held.map(|held| held.worker.as_str()),
        &held.map(|held| Col(held.token)),
        &held.map(|held| Col(held.expires_at)),
        &row.last_token.map(Col),
        &row.wake_at.map(Col),
        &Col(row.changed_at),
        &row.finished_at.map(Col),
        &Col(row.segment_bytes),
        &row.committed_by.as_ref().map(WorkerId::as_str),
        &places.ready.map(Col),
        &places.look_at.map(Col),
        &Col(row.state),
        &places.remove_at.map(Col),
    ];
    let (sql, count) = if before == places {
        (UPDATE, 15)
    } else if (before.state, before.remove_at) == (places.state, places.remove_at) {
        (UPDATE_PLACE, 17)
    } else {
        (UPDATE_ALL, 19)
    };
    db.run_counted(sql, &values[..count])
}

fn insert<C: Source>(db: &mut Db<C>, row: &RunRow) -> Result<()> {
    let held = row.held.as_ref();
    db.run(
        PUT,
        params![
            Col(row.seq),
            Col(row.id),
            row.kind.as_str(),
            row.name,
            row.definition_hash,
            Col(row.fingerprint),
            Col(row.state),
            row.stuck,
            row.summary,
            Col(row.history_len),
            Col(row.inbox_first),
            Col(row.inbox_next),
            held.map(|held| held.worker.as_str()),
            held.map(|held| Col(held.token)),
            held.map(|held| Col(held.expires_at)),
            row.last_token.map(Col),
            row.ready.map(Col),
            row.wake_at.map(Col),
            Col(row.created_at),
            Col(row.changed_at),
            row.finished_at.map(Col),
            Col(row.keep_ms),
            row.look_at().map(Col),
            row.remove_at().map(Col),
            row.parent.map(Col),
            labels_text(row)?,
            row.job_results,
            Col(row.segment_bytes),
            row.committed_by.as_ref().map(WorkerId::as_str)
        ],
    )?;
    // A row that is inserted may have changed since it was created.
    if rare(row) != (&Arc::default(), &None, [0; 5]) { update_rare(db, row).map(drop) } else { Ok(()) }
}

/// Labels as JSON; `NULL` if there are none.
fn labels_text(row: &RunRow) -> Result<Option<String>> {
    if row.labels.is_empty() { Ok(None) } else { json(&row.labels).map(Some) }
}

/// The columns of [`UPDATE_RARE`].
fn rare(row: &RunRow) -> (&Arc<BTreeMap<String, String>>, &Option<String>, [u64; 5]) {
    let numbers = [row.segment_from, u64::from(row.stall_count), row.unread_messages, row.inbox_holes, row.message_ids];
    (&row.labels, &row.error, numbers)
}

fn update_rare<C: Source>(db: &mut Db<C>, row: &RunRow) -> Result<()> {
    let (_, error, [segment_from, stalls, unread, holes, ids]) = rare(row);
    let labels = labels_text(row)?;
    db.run(
        UPDATE_RARE,
        params![Col(row.seq), labels, error, Col(segment_from), Col(stalls), Col(unread), Col(holes), Col(ids)],
    )
}

/// The columns of [`UPDATE_IDENTITY`].
fn identity(row: &RunRow) -> (&Kind, &str, [u8; 16], u64, u64, Option<RunId>, bool) {
    let RunRow { kind, name, definition_hash, fingerprint, keep_ms, parent, job_results, .. } = row;
    (kind, name, *definition_hash, *fingerprint, *keep_ms, *parent, *job_results)
}

fn update_identity<C: Source>(db: &mut Db<C>, row: &RunRow) -> Result<()> {
    let (kind, name, hash, fingerprint, keep_ms, parent, job_results) = identity(row);
    db.run(
        UPDATE_IDENTITY,
        params![Col(row.seq), kind.as_str(), name, hash, Col(fingerprint), Col(keep_ms), parent.map(Col), job_results],
    )
}
