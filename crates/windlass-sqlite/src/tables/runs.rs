//! Runs: their texts, their histories, their inboxes.

use super::{SqliteTables, limit};
use crate::db::{Db, Source};
use crate::values::{Col, Json, json};
use bytes::Bytes;
use rusqlite::{Row as SqlRow, params};
use windlass_core::Result;
use windlass_core::engine::{RunRow, RunTables, RunWalk};
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::RunItem;
use windlass_core::time::Timestamp;

/// Removes all of them.
fn remove<C: Source>(db: &mut Db<C>, id: RunId) -> Result<()> {
    db.run("DELETE FROM windlass_run_text WHERE run=?1", [Col(id)])?;
    db.run("DELETE FROM windlass_history WHERE run=?1", [Col(id)])?;
    db.run("DELETE FROM windlass_inbox WHERE run=?1", [Col(id)])?;
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

impl<C: Source> RunTables for SqliteTables<C> {
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        self.run_rows.get(&mut self.db, id)
    }

    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()> {
        self.run_rows.put(before, after);
        Ok(())
    }

    fn remove_run(&mut self, id: RunId) -> Result<()> {
        self.run_rows.remove(&mut self.db, id)?;
        remove(&mut self.db, id)
    }

    fn set_run_aside(&mut self, id: RunId) -> Result<()> {
        self.run_rows.set_aside(&mut self.db, id)
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
        self.run_rows.ready(&mut self.db, kind, limit)
    }

    fn waking_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        self.run_rows.waking(&mut self.db, until, limit)
    }

    fn next_run_wake(&mut self) -> Result<Option<Timestamp>> {
        self.run_rows.next_wake(&mut self.db)
    }

    fn runs(&mut self, wanted: RunWalk) -> Result<Vec<(u64, RunId)>> {
        self.run_rows.walk(&mut self.db, wanted)
    }

    fn removable_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        self.run_rows.removable(&mut self.db, until, limit)
    }
}
