//! Runs.

use super::codec::decode;
use super::db::Db;
use super::keys::{Key, Range, Table, parts};
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{RunRow, RunTables, RunValue, RunWalk};
use crate::error::Result;
use crate::id::RunId;
use crate::name::Kind;
use crate::store::{RunItem, RunState};
use crate::time::Timestamp;
use bytes::Bytes;

/// The places of a run in the indexes.
fn places(row: &RunRow) -> Vec<Key> {
    let (id, seq) = (row.id, row.seq);
    let ready = row.ready.map(|place| keys::run_ready(row.kind.clone(), place, id));
    let look = row.look_at().map(|at| keys::run_look(at, id));
    let removable = row.remove_at().map(|at| keys::run_removable(at, id));
    let listed = [keys::run_seq(seq, id), keys::run_state(row.state, seq, id)];
    ready.into_iter().chain(look).chain(removable).chain(listed).collect()
}

/// Its own record does not say where it stands, so all of them are looked through; that happens once.
fn set_aside(db: &mut Db<impl OrderedKv>, id: RunId) -> Result<()> {
    for (key, _) in db.all(keys::runs_ready().under())? {
        if parts::<(Kind, u64, RunId)>(Table::RunReady, &key)?.2 == id {
            db.delete_bytes(&key)?;
        }
    }
    remove_timed(db, Table::RunLook, &keys::runs_look(), id)
}

/// Removes a run from an index by time.
fn remove_timed(db: &mut Db<impl OrderedKv>, table: Table, index: &Key, id: RunId) -> Result<()> {
    for (key, _) in db.all(index.under())? {
        if parts::<(Timestamp, RunId)>(table, &key)?.1 == id {
            db.delete_bytes(&key)?;
        }
    }
    Ok(())
}

/// Looks through all indexes for a run that cannot say where it stands.
fn forget_places(db: &mut Db<impl OrderedKv>, id: RunId) -> Result<()> {
    set_aside(db, id)?;
    for (key, _) in db.all(keys::runs_by_seq().under())? {
        let (seq, of): (u64, RunId) = parts(Table::RunSeq, &key)?;
        if of == id {
            db.delete_bytes(&key)?;
            for state in RunState::ALL {
                db.delete(&keys::run_state(state, seq, id))?;
            }
        }
    }
    remove_timed(db, Table::RunRemovable, &keys::runs_removable(), id)
}

/// Runs of an index by time.
fn timed(db: &mut Db<impl OrderedKv>, table: Table, range: Range, limit: usize) -> Result<Vec<RunId>> {
    let found: Vec<(Timestamp, RunId)> = db.keys(table, range, limit)?;
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

impl<K: OrderedKv> RunTables for KvTables<K> {
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        self.db.get(&keys::run(id))
    }

    fn set_run_aside(&mut self, id: RunId) -> Result<()> {
        set_aside(&mut self.db, id)
    }

    fn put_run_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) -> Result<()> {
        self.db.put(&keys::run_definition(id), &definition)?;
        self.db.put(&keys::run_input(id), &input)
    }

    fn put_run_input(&mut self, id: RunId, input: Bytes) -> Result<()> {
        self.db.put(&keys::run_input(id), &input)
    }

    fn put_run_value(&mut self, id: RunId, value: RunValue, bytes: Option<Bytes>) -> Result<()> {
        match bytes {
            Some(bytes) => self.db.put(&keys::run_value(id, value as u64), &bytes),
            None => self.db.delete(&keys::run_value(id, value as u64)),
        }
    }

    fn run_value(&mut self, id: RunId, value: RunValue) -> Result<Option<Bytes>> {
        self.db.get(&keys::run_value(id, value as u64))
    }

    fn put_message_id(&mut self, id: RunId, slot: u64, hash: [u8; 16]) -> Result<()> {
        if let Some(old) = self.db.get(&keys::run_message_slot(id, slot))? {
            self.db.delete(&keys::run_message_id(id, old))?;
        }
        self.db.put(&keys::run_message_slot(id, slot), &hash)?;
        self.db.put(&keys::run_message_id(id, hash), &())
    }

    fn has_message_id(&mut self, id: RunId, hash: [u8; 16]) -> Result<bool> {
        Ok(self.db.get::<()>(&keys::run_message_id(id, hash))?.is_some())
    }

    fn run_definition(&mut self, id: RunId) -> Result<Option<Bytes>> {
        self.db.get(&keys::run_definition(id))
    }

    fn run_input(&mut self, id: RunId) -> Result<Option<Bytes>> {
        self.db.get(&keys::run_input(id))
    }

    fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) -> Result<()> {
        self.db.put(&keys::run_item(id, number), &item)
    }

    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()> {
        let old = before.map_or_else(Vec::new, places);
        let new = places(after);
        for place in old.iter().filter(|place| !new.contains(place)) {
            self.db.delete(place)?;
        }
        for place in new.iter().filter(|place| !old.contains(place)) {
            self.db.put(place, &())?;
        }
        self.db.put(&keys::run(after.id), after)
    }

    fn remove_run(&mut self, id: RunId) -> Result<()> {
        match self.run(id) {
            Ok(Some(row)) => {
                for place in places(&row) {
                    self.db.delete(&place)?;
                }
            }
            Ok(None) => {}
            Err(crate::error::Error::Corrupt { .. }) => forget_places(&mut self.db, id)?,
            Err(error) => return Err(error),
        }
        for part in [keys::run_definition(id), keys::run_input(id), keys::run(id)] {
            self.db.delete(&part)?;
        }
        for part in
            [keys::run_history(id), keys::run_values(id), keys::run_message_slots(id), keys::run_message_ids(id)]
        {
            self.db.clear(part.under())?;
        }
        self.db.clear(keys::run_inbox(id).under())
    }

    fn append_history(&mut self, id: RunId, first: u64, entries: Vec<Bytes>) -> Result<()> {
        for (number, entry) in (first..).zip(&entries) {
            self.db.put(&keys::run_event(id, number), entry)?;
        }
        Ok(())
    }

    fn history(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<Bytes>> {
        let range = keys::run_history(id).under().from(&keys::run_event(id, from));
        self.db.values(range, limit)
    }

    fn inbox(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<(u64, Option<RunItem>)>> {
        let range = keys::run_inbox(id).under().from(&keys::run_item(id, from));
        let mut items = Vec::new();
        for (key, value) in self.db.some(range, limit)? {
            let (_, number): (RunId, u64) = parts(Table::RunInbox, &key)?;
            items.push((number, decode(&value).ok()));
        }
        Ok(items)
    }

    fn trim_inbox(&mut self, id: RunId, from: u64, to: u64) -> Result<()> {
        (from..to).try_for_each(|number| self.db.delete(&keys::run_item(id, number)))
    }

    fn remove_inbox_items(&mut self, id: RunId, numbers: &[u64]) -> Result<()> {
        numbers.iter().try_for_each(|number| self.db.delete(&keys::run_item(id, *number)))
    }

    fn ready_runs(&mut self, kind: &Kind, limit: usize) -> Result<Vec<RunId>> {
        let ready = keys::runs_ready_of(kind.clone()).under();
        let ready: Vec<(Kind, u64, RunId)> = self.db.keys(Table::RunReady, ready, limit)?;
        Ok(ready.into_iter().map(|(.., id)| id).collect())
    }

    fn waking_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        let looks = keys::runs_look().under().through(&keys::runs_look_at(until));
        timed(&mut self.db, Table::RunLook, looks, limit)
    }

    fn next_run_wake(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.db.keys(Table::RunLook, keys::runs_look().under(), 1)?.pop())
    }

    fn removable_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        let range = keys::runs_removable().under().through(&keys::runs_removable_at(until));
        timed(&mut self.db, Table::RunRemovable, range, limit)
    }

    fn runs(&mut self, walk: RunWalk) -> Result<Vec<(u64, RunId)>> {
        let all = walk.state.map_or_else(keys::runs_by_seq, keys::runs_in_state);
        let place = |seq| match walk.state {
            None => keys::runs_at_seq(seq),
            Some(state) => keys::runs_at_state(state, seq),
        };
        let range = match walk.after {
            None => all.under(),
            Some(after) if walk.descending => all.under().below(&place(after)),
            Some(after) => all.under().from(&place(after.saturating_add(1))),
        };
        let range = if walk.descending { range.backwards() } else { range };
        if walk.state.is_none() {
            return self.db.keys(Table::RunSeq, range, walk.limit);
        }
        let found: Vec<(RunState, u64, RunId)> = self.db.keys(Table::RunState, range, walk.limit)?;
        Ok(found.into_iter().map(|(_, seq, id)| (seq, id)).collect())
    }
}
