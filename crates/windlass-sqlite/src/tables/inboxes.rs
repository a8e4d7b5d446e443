//! Inboxes of runs. What happens to a run is written at once and mostly read by the next claim: until then it is kept in
//! memory, too. What was handled goes later, many items at a time; the run says where its inbox begins.

use super::limit;
use super::moves::{many, put_rows};
use super::places::bind;
use crate::db::{Db, Source};
use crate::values::{Col, Json, json};
use rusqlite::params;
use std::collections::VecDeque;
use std::sync::LazyLock;
use windlass_core::Result;
use windlass_core::engine::NumberMap;
use windlass_core::store::RunItem;

const PUT: &str = "INSERT OR REPLACE INTO windlass_inbox(run,number,item) VALUES(?,?,?)";
static PUT_MANY: LazyLock<String> = LazyLock::new(|| many(PUT));

/// Items that stay in memory.
const KEPT_MAX: usize = 30_000;
/// The largest of them, in bytes.
const SMALL: usize = 1_024;
/// Items that are handled before they go.
const TRIMMED: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct Inboxes {
    /// What is not written yet.
    added: Vec<(u64, u64, String)>,
    /// Up to where runs have handled what is in the file.
    handled: Vec<(u64, u64)>,
    /// The last items of runs.
    ends: NumberMap<u64, End>,
    kept: usize,
}

/// All items of a run from a number on.
#[derive(Debug, Default)]
struct End {
    first: u64,
    items: VecDeque<RunItem>,
}

impl Inboxes {
    pub(super) fn append(&mut self, run: u64, number: u64, item: RunItem) -> Result<()> {
        let text = json(&item)?;
        let is_small = text.len() <= SMALL;
        self.added.push((run, number, text));
        if !is_small {
            self.forget(run);
            return Ok(());
        }
        let end = self.ends.entry(run).or_default();
        if end.first + end.items.len() as u64 != number {
            self.kept -= end.items.len();
            *end = End { first: number, items: VecDeque::new() };
        }
        end.items.push_back(item);
        self.kept += 1;
        Ok(())
    }

    pub(super) fn read<C: Source>(
        &mut self,
        db: &mut Db<C>,
        run: u64,
        from: u64,
        max: usize,
    ) -> Result<Vec<(u64, Option<RunItem>)>> {
        if let Some(end) = self.ends.get(&run).filter(|end| end.first <= from) {
            let items = (end.first..).zip(&end.items).skip_while(|(number, _)| *number < from);
            return Ok(items.take(max).map(|(number, item)| (number, Some(item.clone()))).collect());
        }
        self.flush(db)?;
        let sql = "SELECT number,item FROM windlass_inbox WHERE run=?1 AND number>=?2 ORDER BY number LIMIT ?3";
        // One whose number cannot be read is left out. It comes behind all others, so that none is passed with it.
        db.all_readable(sql, params![Col(run), Col(from), limit(max)], |row| {
            Ok((row.get::<_, Col<u64>>(0)?.0, row.get::<_, Json<RunItem>>(1).ok().map(|item| item.0)))
        })
    }

    /// Forgets items before `to`; those before `from` are forgotten already.
    pub(super) fn trim(&mut self, run: u64, from: u64, to: u64) {
        if let Some(end) = self.ends.get_mut(&run) {
            while end.first < to && end.items.pop_front().is_some() {
                end.first += 1;
                self.kept -= 1;
            }
            if end.items.is_empty() {
                self.ends.remove(&run);
            }
        }
        if from / TRIMMED < to / TRIMMED {
            self.handled.push((run, to));
        }
    }

    /// Nobody will read these any more.
    pub(super) fn clear(&mut self, run: u64, to: u64) {
        self.forget(run);
        if to > 0 {
            self.handled.push((run, to));
        }
    }

    /// Removes items out of the middle.
    pub(super) fn remove_items<C: Source>(&mut self, db: &mut Db<C>, run: u64, numbers: &[u64]) -> Result<()> {
        self.flush(db)?;
        self.forget(run);
        let sql = "DELETE FROM windlass_inbox WHERE run=?1 AND number=?2";
        numbers.iter().try_for_each(|number| db.run(sql, params![Col(run), Col(*number)]))
    }

    fn forget(&mut self, run: u64) {
        self.kept -= self.ends.remove(&run).map_or(0, |end| end.items.len());
    }

    pub(super) fn remove<C: Source>(&mut self, db: &mut Db<C>, run: u64) -> Result<()> {
        self.flush(db)?;
        self.forget(run);
        db.run("DELETE FROM windlass_inbox WHERE run=?1", [Col(run)])
    }

    /// Writes what was added, and removes what was handled.
    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        put_rows(db, (PUT, &PUT_MANY), &self.added, |statement, at, (run, number, item)| {
            bind(statement, at, &[&Col(*run), &Col(*number), item])
        })?;
        self.added.clear();
        for (run, to) in self.handled.drain(..) {
            db.run("DELETE FROM windlass_inbox WHERE run=?1 AND number<?2", params![Col(run), Col(to)])?;
        }
        Ok(())
    }

    /// To be called when everything is written.
    pub(super) fn shrink(&mut self) {
        if self.kept > KEPT_MAX {
            self.ends.clear();
            self.kept = 0;
        }
    }
}
