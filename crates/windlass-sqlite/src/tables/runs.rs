//! Runs.

use super::{SqliteTables, limit};
use crate::db::{Db, Source};
use crate::values::{Col, Json, Name, json};
use bytes::Bytes;
use rusqlite::{Row as SqlRow, params};
use windlass_core::engine::{RunRow, RunTables, RunWalk};
use windlass_core::id::{RunId, Token};
use windlass_core::job::Held;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::RunItem;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

const SELECT: &str = "SELECT seq,kind,name,definition_hash,fingerprint,state,stuck,summary,history_len,inbox_first,\
                      inbox_next,engine,token,expires_at,last_token,ready,wake_at,created_at,changed_at,finished_at,keep_ms \
                      FROM windlass_run WHERE id=?1";
const PUT: &str = "INSERT INTO windlass_run(seq,id,kind,name,definition_hash,fingerprint,state,stuck,summary,history_len,\
                   inbox_first,inbox_next,engine,token,expires_at,last_token,ready,wake_at,created_at,changed_at,finished_at,\
                   keep_ms,look_at,remove_at) \
                   VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24)";
/// What never changes is left alone.
const UPDATE: &str = "UPDATE windlass_run SET state=?2,stuck=?3,summary=?4,history_len=?5,inbox_first=?6,inbox_next=?7,\
                      engine=?8,token=?9,expires_at=?10,last_token=?11,ready=?12,wake_at=?13,changed_at=?14,finished_at=?15,\
                      look_at=?16,remove_at=?17 WHERE id=?1";

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
    })
}

fn get<C: Source>(db: &mut Db<C>, id: RunId) -> Result<Option<RunRow>> {
    db.one(SELECT, [Col(id)], |row| read(id, row)).map_err(|error| match error {
        Error::Corrupt { what } if !what.starts_with("the database file") => {
            Error::corrupt(format!("run {id}: {what}"))
        }
        other => other,
    })
}

fn put<C: Source>(db: &mut Db<C>, before: Option<&RunRow>, row: &RunRow) -> Result<()> {
    let held = row.held.as_ref();
    let (engine, token) = (held.map(|held| held.worker.as_str()), held.map(|held| Col(held.token)));
    let (expires_at, last_token) = (held.map(|held| Col(held.expires_at)), row.last_token.map(Col));
    let (ready, wake_at, finished_at) = (row.ready.map(Col), row.wake_at.map(Col), row.finished_at.map(Col));
    let (look_at, remove_at) = (row.look_at().map(Col), row.remove_at().map(Col));
    let (len, first, next) = (Col(row.history_len), Col(row.inbox_first), Col(row.inbox_next));
    let changed = match before {
        Some(_) => db.run(
            UPDATE,
            params![
                Col(row.id),
                Col(row.state),
                row.stuck,
                row.summary,
                len,
                first,
                next,
                engine,
                token,
                expires_at,
                last_token,
                ready,
                wake_at,
                Col(row.changed_at),
                finished_at,
                look_at,
                remove_at
            ],
        )?,
        None => db.run(
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
                len,
                first,
                next,
                engine,
                token,
                expires_at,
                last_token,
                ready,
                wake_at,
                Col(row.created_at),
                Col(row.changed_at),
                finished_at,
                Col(row.keep_ms),
                look_at,
                remove_at
            ],
        )?,
    };
    debug_assert_eq!(changed, 1, "a run is written once");
    Ok(())
}

fn remove<C: Source>(db: &mut Db<C>, id: RunId) -> Result<()> {
    db.run("DELETE FROM windlass_run WHERE id=?1", [Col(id)])?;
    db.run("DELETE FROM windlass_run_text WHERE run=?1", [Col(id)])?;
    db.run("DELETE FROM windlass_history WHERE run=?1", [Col(id)])?;
    db.run("DELETE FROM windlass_inbox WHERE run=?1", [Col(id)])?;
    Ok(())
}

fn set_aside<C: Source>(db: &mut Db<C>, id: RunId) -> Result<()> {
    db.run("UPDATE windlass_run SET ready=NULL,look_at=NULL WHERE id=?1", [Col(id)])?;
    Ok(())
}

fn put_texts<C: Source>(db: &mut Db<C>, id: RunId, definition: &[u8], input: &[u8]) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO windlass_run_text(run,definition,input) VALUES(?1,?2,?3)";
    db.run(sql, params![Col(id), definition, input])?;
    Ok(())
}

fn bytes(row: &SqlRow<'_>) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_bytes_or_null()?.unwrap_or_default()))
}

fn definition<C: Source>(db: &mut Db<C>, id: RunId) -> Result<Option<Bytes>> {
    db.one("SELECT definition FROM windlass_run_text WHERE run=?1", [Col(id)], bytes)
}

fn input<C: Source>(db: &mut Db<C>, id: RunId) -> Result<Option<Bytes>> {
    db.one("SELECT input FROM windlass_run_text WHERE run=?1", [Col(id)], bytes)
}

fn append_history<C: Source>(db: &mut Db<C>, id: RunId, first: u64, entries: &[Bytes]) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO windlass_history(run,number,entry) VALUES(?1,?2,?3)";
    for (number, entry) in (first..).zip(entries) {
        db.run(sql, params![Col(id), Col(number), entry.as_ref()])?;
    }
    Ok(())
}

fn history<C: Source>(db: &mut Db<C>, id: RunId, from: u64, max: usize) -> Result<Vec<Bytes>> {
    let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
    let sql = "SELECT entry FROM windlass_history WHERE run=?1 AND number>=?2 ORDER BY number LIMIT ?3";
    db.all(sql, params![Col(id), from, limit(max)], bytes)
}

fn append_inbox<C: Source>(db: &mut Db<C>, id: RunId, number: u64, item: &RunItem) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO windlass_inbox(run,number,item) VALUES(?1,?2,?3)";
    db.run(sql, params![Col(id), Col(number), json(item)?])?;
    Ok(())
}

fn inbox<C: Source>(db: &mut Db<C>, id: RunId, from: u64, max: usize) -> Result<Vec<(u64, RunItem)>> {
    let sql = "SELECT number,item FROM windlass_inbox WHERE run=?1 AND number>=?2 ORDER BY number LIMIT ?3";
    db.all_readable(sql, params![Col(id), Col(from), limit(max)], |row| {
        Ok((row.get::<_, Col<u64>>(0)?.0, row.get::<_, Json<RunItem>>(1)?.0))
    })
}

fn trim_inbox<C: Source>(db: &mut Db<C>, id: RunId, from: u64, to: u64) -> Result<()> {
    if from < to {
        db.run("DELETE FROM windlass_inbox WHERE run=?1 AND number<?2", params![Col(id), Col(to)])?;
    }
    Ok(())
}

fn id(row: &SqlRow<'_>) -> rusqlite::Result<RunId> {
    Ok(row.get::<_, Col<RunId>>(0)?.0)
}

fn ready<C: Source>(db: &mut Db<C>, kind: &Kind, max: usize) -> Result<Vec<RunId>> {
    let sql = "SELECT id FROM windlass_run WHERE kind=?1 AND ready IS NOT NULL ORDER BY ready LIMIT ?2";
    db.all_readable(sql, params![kind.as_str(), limit(max)], id)
}

fn waking<C: Source>(db: &mut Db<C>, until: Timestamp, max: usize) -> Result<Vec<RunId>> {
    let sql = "SELECT id FROM windlass_run WHERE look_at IS NOT NULL AND look_at<=?1 ORDER BY look_at LIMIT ?2";
    db.all_readable(sql, params![Col(until), limit(max)], id)
}

fn next_wake<C: Source>(db: &mut Db<C>) -> Result<Option<Timestamp>> {
    let sql = "SELECT look_at FROM windlass_run WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1";
    db.one(sql, [], |row| Ok(row.get::<_, Col<Timestamp>>(0)?.0))
}

fn removable<C: Source>(db: &mut Db<C>, until: Timestamp, max: usize) -> Result<Vec<RunId>> {
    let sql = "SELECT id FROM windlass_run WHERE remove_at IS NOT NULL AND remove_at<=?1 ORDER BY remove_at LIMIT ?2";
    db.all_readable(sql, params![Col(until), limit(max)], id)
}

fn walk<C: Source>(db: &mut Db<C>, walk: RunWalk) -> Result<Vec<(u64, RunId)>> {
    let place = |row: &SqlRow<'_>| Ok((row.get::<_, Col<u64>>(0)?.0, row.get::<_, Col<RunId>>(1)?.0));
    let end = if walk.descending { i64::MAX } else { -1 };
    let after = walk.after.map_or(end, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let max = limit(walk.limit);
    match (walk.state, walk.descending) {
        (None, false) => {
            let sql = "SELECT seq,id FROM windlass_run WHERE seq>?1 ORDER BY seq LIMIT ?2";
            db.all_readable(sql, params![after, max], place)
        }
        (None, true) => {
            let sql = "SELECT seq,id FROM windlass_run WHERE seq<?1 ORDER BY seq DESC LIMIT ?2";
            db.all_readable(sql, params![after, max], place)
        }
        (Some(state), false) => {
            let sql = "SELECT seq,id FROM windlass_run WHERE state=?1 AND seq>?2 ORDER BY seq LIMIT ?3";
            db.all_readable(sql, params![Col(state), after, max], place)
        }
        (Some(state), true) => {
            let sql = "SELECT seq,id FROM windlass_run WHERE state=?1 AND seq<?2 ORDER BY seq DESC LIMIT ?3";
            db.all_readable(sql, params![Col(state), after, max], place)
        }
    }
}

impl<C: Source> RunTables for SqliteTables<C> {
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        get(&mut self.db, id)
    }

    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()> {
        put(&mut self.db, before, after)
    }

    fn remove_run(&mut self, id: RunId) -> Result<()> {
        remove(&mut self.db, id)
    }

    fn set_run_aside(&mut self, id: RunId) -> Result<()> {
        set_aside(&mut self.db, id)
    }

    fn put_run_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) -> Result<()> {
        put_texts(&mut self.db, id, &definition, &input)
    }

    fn run_definition(&mut self, id: RunId) -> Result<Option<Bytes>> {
        definition(&mut self.db, id)
    }

    fn run_input(&mut self, id: RunId) -> Result<Option<Bytes>> {
        input(&mut self.db, id)
    }

    fn append_history(&mut self, id: RunId, first: u64, entries: Vec<Bytes>) -> Result<()> {
        append_history(&mut self.db, id, first, &entries)
    }

    fn history(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<Bytes>> {
        history(&mut self.db, id, from, limit)
    }

    fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) -> Result<()> {
        append_inbox(&mut self.db, id, number, &item)
    }

    fn inbox(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<(u64, RunItem)>> {
        inbox(&mut self.db, id, from, limit)
    }

    fn trim_inbox(&mut self, id: RunId, from: u64, to: u64) -> Result<()> {
        trim_inbox(&mut self.db, id, from, to)
    }

    fn ready_runs(&mut self, kind: &Kind, limit: usize) -> Result<Vec<RunId>> {
        ready(&mut self.db, kind, limit)
    }

    fn waking_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        waking(&mut self.db, until, limit)
    }

    fn next_run_wake(&mut self) -> Result<Option<Timestamp>> {
        next_wake(&mut self.db)
    }

    fn runs(&mut self, wanted: RunWalk) -> Result<Vec<(u64, RunId)>> {
        walk(&mut self.db, wanted)
    }

    fn removable_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        removable(&mut self.db, until, limit)
    }
}
