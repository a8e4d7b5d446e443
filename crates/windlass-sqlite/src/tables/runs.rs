//! Runs: their texts, their histories, their inboxes.
//!
//! They are kept under the number of their run, which is short and stands in the order of creation. What steps add to
//! histories is only ever added at the end of its table, one row for a step: runs take turns, and rows in the order of runs
//! would be spread over as many pages.

use super::moves::{many, put_rows};
use super::places::bind;
use super::run_rows::read_id;
use super::{SqliteTables, limit};
use crate::db::{Db, Source};
use crate::values::Col;
use bytes::Bytes;
use rusqlite::{Row as SqlRow, params};
use std::sync::LazyLock;
use windlass_core::engine::{RunRow, RunTables, RunValue, RunWalk};
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::RunItem;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

const PUT_STEP: &str = "INSERT OR REPLACE INTO windlass_history(run,first,entries) VALUES(?,?,?)";
static PUT_STEPS: LazyLock<String> = LazyLock::new(|| many(PUT_STEP));

/// What steps have added to histories and is not written yet: those of one transaction share their statements.
#[derive(Debug, Default)]
pub(super) struct Histories {
    added: Vec<Added>,
}

#[derive(Debug)]
struct Added {
    run: u64,
    first: u64,
    entries: Vec<u8>,
}

/// Entries in one value, each behind its length.
fn pack(entries: &[Bytes]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(entries.iter().map(|entry| entry.len() + 4).sum());
    for entry in entries {
        // An entry has 4 MiB at most.
        packed.extend(u32::try_from(entry.len()).unwrap_or(u32::MAX).to_le_bytes());
        packed.extend_from_slice(entry);
    }
    packed
}

/// The entries that [`pack`] has put together, as far as they can be read.
fn unpack(packed: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (len, behind) = rest.split_first_chunk::<4>()?;
        let (entry, behind) = behind.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        rest = behind;
        Some(entry)
    })
}

impl Histories {
    /// Writes what was added.
    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        put_rows(db, (PUT_STEP, &PUT_STEPS), &self.added, |statement, at, Added { run, first, entries }| {
            bind(statement, at, &[&Col(*run), &Col(*first), &entries.as_slice()])
        })?;
        self.added.clear();
        Ok(())
    }

    /// Entries from `from` on. What comes behind one that is not there or cannot be read is not told.
    fn read<C: Source>(&mut self, db: &mut Db<C>, run: u64, from: u64, max: usize) -> Result<Vec<Bytes>> {
        self.flush(db)?;
        let sql = "SELECT first,entries FROM windlass_history WHERE run=?1 AND first>=coalesce((SELECT first FROM \
                   windlass_history WHERE run=?1 AND first<=?2 ORDER BY first DESC LIMIT 1),0) ORDER BY first";
        let Ok(start) = i64::try_from(from) else { return Ok(Vec::new()) };
        let (mut found, mut next) = (Vec::new(), None);
        db.each(sql, params![Col(run), start], |row| {
            let (Ok(Col(first)), Ok(packed)) = (row.get::<_, Col<u64>>(0), row.get_ref(1)?.as_bytes()) else {
                return Ok(false);
            };
            if next.map_or(first > from, |next| next != first) {
                return Ok(false);
            }
            let mut number = first;
            for entry in unpack(packed) {
                if number >= from && found.len() < max {
                    found.push(Bytes::copy_from_slice(entry));
                }
                number += 1;
            }
            next = Some(number);
            Ok(found.len() < max)
        })?;
        Ok(found)
    }
}

fn bytes(row: &SqlRow<'_>) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_bytes_or_null()?.unwrap_or_default()))
}

impl<C: Source> SqliteTables<C> {
    /// The number of a run, under which everything of it is kept.
    fn number(&mut self, id: RunId) -> Result<u64> {
        self.run_rows.number(self.db.others(), id)?.ok_or_else(|| Error::run_not_found(id))
    }

    /// The connection, for the table of runs: everything that has changed there is written.
    fn run_db(&mut self) -> Result<&mut Db<C>> {
        self.run_rows.flush(self.db.others())?;
        Ok(self.db.others())
    }
}

impl<C: Source> RunTables for SqliteTables<C> {
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        self.run_rows.get(self.db.others(), id)
    }

    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()> {
        let is_over = |row: &RunRow| row.state.is_terminal() && !row.has_items();
        if is_over(after) && !before.is_some_and(is_over) {
            self.inboxes.clear(after.seq, after.inbox_next);
        }
        self.run_rows.put(before, after);
        Ok(())
    }

    fn remove_run(&mut self, id: RunId) -> Result<()> {
        let Some(number) = self.run_rows.number(self.db.others(), id)? else { return Ok(()) };
        self.histories.flush(self.db.others())?;
        self.inboxes.remove(self.db.others(), number)?;
        for sql in [
            "DELETE FROM windlass_history WHERE run=?1",
            "DELETE FROM windlass_run_input WHERE run=?1",
            "DELETE FROM windlass_run_value WHERE run=?1",
            "DELETE FROM windlass_run_message_id WHERE run=?1",
        ] {
            self.db.others().run(sql, [Col(number)])?;
        }
        self.run_rows.remove(self.db.others(), id)
    }

    fn set_run_aside(&mut self, id: RunId) -> Result<()> {
        let sql = "UPDATE windlass_run SET ready=NULL,look_at=NULL WHERE id=?1";
        self.db.others().run(sql, [Col(id)])
    }

    fn put_run_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) -> Result<()> {
        self.run_rows.put_definition(self.db.others(), id, &definition)?;
        self.put_run_input(id, input)
    }

    fn put_run_input(&mut self, id: RunId, input: Bytes) -> Result<()> {
        let number = self.number(id)?;
        let sql = "INSERT OR REPLACE INTO windlass_run_input(run,input) VALUES(?1,?2)";
        self.db.others().run(sql, params![Col(number), input.as_ref()])
    }

    fn put_run_value(&mut self, id: RunId, value: RunValue, bytes: Option<Bytes>) -> Result<()> {
        let number = self.number(id)?;
        match bytes {
            Some(bytes) => {
                let sql = "INSERT OR REPLACE INTO windlass_run_value(run,part,value) VALUES(?1,?2,?3)";
                self.db.others().run(sql, params![Col(number), value as u8, bytes.as_ref()])
            }
            None => {
                let sql = "DELETE FROM windlass_run_value WHERE run=?1 AND part=?2";
                self.db.others().run(sql, params![Col(number), value as u8])
            }
        }
    }

    fn run_value(&mut self, id: RunId, value: RunValue) -> Result<Option<Bytes>> {
        let number = self.number(id)?;
        let sql = "SELECT value FROM windlass_run_value WHERE run=?1 AND part=?2";
        self.db.others().one(sql, params![Col(number), value as u8], bytes)
    }

    fn put_message_id(&mut self, id: RunId, slot: u64, hash: [u8; 16]) -> Result<()> {
        let number = self.number(id)?;
        let sql = "INSERT OR REPLACE INTO windlass_run_message_id(run,slot,hash) VALUES(?1,?2,?3)";
        self.db.others().run(sql, params![Col(number), Col(slot), hash])
    }

    fn has_message_id(&mut self, id: RunId, hash: [u8; 16]) -> Result<bool> {
        let number = self.number(id)?;
        let sql = "SELECT 1 FROM windlass_run_message_id WHERE run=?1 AND hash=?2";
        Ok(self.db.others().one(sql, params![Col(number), hash], |_| Ok(()))?.is_some())
    }

    fn run_definition(&mut self, id: RunId) -> Result<Option<Bytes>> {
        let sql = "SELECT d.definition FROM windlass_run r JOIN windlass_definition d ON d.hash=r.definition_hash \
                   WHERE r.id=?1";
        self.run_db()?.one(sql, [Col(id)], bytes)
    }

    fn run_input(&mut self, id: RunId) -> Result<Option<Bytes>> {
        let number = self.number(id)?;
        self.db.others().one("SELECT input FROM windlass_run_input WHERE run=?1", [Col(number)], bytes)
    }

    fn append_history(&mut self, id: RunId, first: u64, entries: Vec<Bytes>) -> Result<()> {
        if !entries.is_empty() {
            let run = self.number(id)?;
            self.histories.added.push(Added { run, first, entries: pack(&entries) });
        }
        Ok(())
    }

    fn history(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<Bytes>> {
        let number = self.number(id)?;
        self.histories.read(self.db.others(), number, from, limit)
    }

    fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) -> Result<()> {
        let run = self.number(id)?;
        self.inboxes.append(run, number, item)
    }

    fn inbox(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<(u64, Option<RunItem>)>> {
        let run = self.number(id)?;
        self.inboxes.read(self.db.others(), run, from, limit)
    }

    fn trim_inbox(&mut self, id: RunId, from: u64, to: u64) -> Result<()> {
        let run = self.number(id)?;
        self.inboxes.trim(run, from, to);
        Ok(())
    }

    fn remove_inbox_items(&mut self, id: RunId, numbers: &[u64]) -> Result<()> {
        let run = self.number(id)?;
        self.inboxes.remove_items(self.db.others(), run, numbers)
    }

    fn ready_runs(&mut self, kind: &Kind, max: usize) -> Result<Vec<RunId>> {
        let sql = "SELECT id FROM windlass_run WHERE kind=?1 AND ready IS NOT NULL ORDER BY ready LIMIT ?2";
        self.run_db()?.all_readable(sql, params![kind.as_str(), limit(max)], read_id)
    }

    fn waking_runs(&mut self, until: Timestamp, max: usize) -> Result<Vec<RunId>> {
        let sql = "SELECT id FROM windlass_run WHERE look_at IS NOT NULL AND look_at<=?1 ORDER BY look_at LIMIT ?2";
        self.run_db()?.all_readable(sql, params![Col(until), limit(max)], read_id)
    }

    fn next_run_wake(&mut self) -> Result<Option<Timestamp>> {
        let sql = "SELECT look_at FROM windlass_run WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1";
        self.run_db()?.one(sql, [], |row| Ok(row.get::<_, Col<Timestamp>>(0)?.0))
    }

    fn removable_runs(&mut self, until: Timestamp, max: usize) -> Result<Vec<RunId>> {
        let sql =
            "SELECT id FROM windlass_run WHERE remove_at IS NOT NULL AND remove_at<=?1 ORDER BY remove_at LIMIT ?2";
        self.run_db()?.all_readable(sql, params![Col(until), limit(max)], read_id)
    }

    fn runs(&mut self, walk: RunWalk) -> Result<Vec<(u64, RunId)>> {
        let db = self.run_db()?;
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
}

#[cfg(test)]
mod tests {
    use crate::tables::SqliteTables;
    use bytes::Bytes;
    use rusqlite::Connection;
    use windlass_core::engine::{PreparedCommit, PreparedRun, RunTables, Step};
    use windlass_core::id::RunId;
    use windlass_core::name::{Kind, WorkerId};
    use windlass_core::random::StrongRandom;
    use windlass_core::store::{NewRun, RunClaim, RunCommit, RunMessage, RunState, RunStep};
    use windlass_core::time::Timestamp;

    fn id(n: u128) -> RunId {
        RunId::from_parts(0, n)
    }

    fn entries(numbers: std::ops::Range<u64>) -> Vec<Bytes> {
        numbers.map(|n| Bytes::from(format!("entry {n}"))).collect()
    }

    fn step<R>(
        tables: &mut SqliteTables<&Connection>,
        work: impl FnOnce(&mut Step<'_, SqliteTables<&Connection>>) -> R,
    ) -> R {
        let random = StrongRandom::seeded(1);
        let mut step = Step::new(tables, &random, Timestamp::from_ms(1));
        let answer = work(&mut step);
        step.finish().unwrap();
        tables.flush().unwrap();
        answer
    }

    fn opened(conn: &Connection) -> SqliteTables<&Connection> {
        for migration in crate::schema::MIGRATIONS {
            conn.execute_batch(migration).unwrap();
        }
        let mut tables = SqliteTables::new(conn);
        tables.db.others().begin("BEGIN").unwrap();
        tables
    }

    fn create(tables: &mut SqliteTables<&Connection>, n: u128, definition: &'static [u8]) {
        let (definition, input) = (Bytes::from_static(definition), Bytes::from_static(b"{}"));
        let step_of = RunStep { history: entries(0..2), ..RunStep::nothing() };
        let kind = Kind::new("graph").unwrap();
        let run = NewRun { name: "a".into(), definition, input, step: step_of, ..NewRun::new(id(n), kind) };
        let answers = step(tables, |step| step.create_runs(PreparedRun::batch(vec![run]).unwrap()).unwrap());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }

    /// Says something to a run, and lets it handle that and add entries.
    fn advance(tables: &mut SqliteTables<&Connection>, n: u128, history: Vec<Bytes>, state: RunState) {
        let message = RunMessage::new(id(n), "go");
        let claim = RunClaim {
            run: Some(id(n)),
            lease_ms: 1_000,
            ..RunClaim::new(WorkerId::new("e").unwrap(), vec![Kind::new("graph").unwrap()])
        };
        step(tables, |step| step.send_to_runs(vec![message]).unwrap().remove(0).unwrap());
        let claimed = step(tables, |step| step.claim_runs(&claim).unwrap()).runs.remove(0);
        let (lease, history_len, inbox_to) = (claimed.lease, claimed.history_len, claimed.inbox_to);
        assert_eq!(claimed.inbox.len(), 1, "what was handled before is not told again");
        let done = RunStep { history, state, ..RunStep::nothing() };
        let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, done) };
        let commits = PreparedCommit::batch(vec![commit]).unwrap();
        step(tables, |step| step.commit_runs(commits).unwrap().remove(0).unwrap());
    }

    fn count(conn: &Connection, table: &str) -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM windlass_{table}"), [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn histories_are_read_from_within_a_step_and_across_steps_and_not_beyond_a_gap() {
        let conn = Connection::open_in_memory().unwrap();
        let mut tables = opened(&conn);
        create(&mut tables, 1, b"d");
        advance(&mut tables, 1, entries(2..5), RunState::Running);
        advance(&mut tables, 1, entries(5..6), RunState::Running);
        assert_eq!(count(&conn, "history"), 3, "one row for a step");
        for (from, max) in [(0, 10), (1, 3), (2, 1), (3, 2), (4, 9), (5, 9), (6, 9)] {
            let to = (from + max as u64).min(6).max(from);
            assert_eq!(tables.history(id(1), from, max).unwrap(), entries(from..to), "{from} {max}");
        }
        for damage in
            ["UPDATE windlass_history SET entries=7 WHERE first=2", "DELETE FROM windlass_history WHERE first=2"]
        {
            conn.execute(damage, []).unwrap();
            assert_eq!(tables.history(id(1), 0, 10).unwrap(), entries(0..2), "{damage}");
            assert_eq!(tables.history(id(1), 3, 10).unwrap(), entries(0..0), "{damage}");
            assert_eq!(tables.history(id(1), 5, 10).unwrap(), entries(5..6), "{damage}");
        }
    }

    #[test]
    fn what_was_handled_goes_at_the_latest_with_the_end_of_the_run() {
        let conn = Connection::open_in_memory().unwrap();
        let mut tables = opened(&conn);
        create(&mut tables, 1, b"d");
        for n in 0..200 {
            if n % 7 == 0 {
                // As if somebody else had written: nothing is known.
                tables.forget();
            }
            advance(&mut tables, 1, Vec::new(), RunState::Running);
            assert!(count(&conn, "inbox") <= 64, "{n}");
        }
        advance(&mut tables, 1, entries(0..1), RunState::Succeeded);
        assert_eq!(count(&conn, "inbox"), 0);
    }

    #[test]
    fn runs_share_a_definition_and_the_last_one_takes_it_along() {
        let conn = Connection::open_in_memory().unwrap();
        let mut tables = opened(&conn);
        for (n, definition) in [(1, b"one"), (2, b"one"), (3, b"two")] {
            create(&mut tables, n, definition);
            advance(&mut tables, n, entries(0..1), RunState::Succeeded);
        }
        assert_eq!(count(&conn, "definition"), 2);
        let mut remove = |n| step(&mut tables, |step| step.remove_runs(&[id(n)]).unwrap().remove(0).unwrap());
        remove(1);
        remove(3);
        assert_eq!((count(&conn, "definition"), count(&conn, "run_input"), count(&conn, "history")), (1, 1, 2));
        assert_eq!(tables.run_definition(id(2)).unwrap().unwrap(), "one");
        create(&mut tables, 4, b"two");
        assert_eq!(tables.run_definition(id(4)).unwrap().unwrap(), "two");
        create(&mut tables, 5, b"one");
        step(&mut tables, |step| step.remove_runs(&[id(2)]).unwrap().remove(0).unwrap());
        assert_eq!(tables.run_definition(id(5)).unwrap().unwrap(), "one");
    }
}
