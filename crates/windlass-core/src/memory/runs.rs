//! Runs of the memory store.

use super::tables::MemoryTables;
use crate::engine::{NumberMap, RunRow, RunTables, RunValue, RunWalk};
use crate::error::Result;
use crate::id::RunId;
use crate::name::Kind;
use crate::store::{RunItem, RunState};
use crate::time::Timestamp;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

#[derive(Debug, Default)]
struct Texts {
    definition: Bytes,
    input: Bytes,
    history: Vec<Bytes>,
    inbox: VecDeque<(u64, RunItem)>,
    values: BTreeMap<RunValue, Bytes>,
    message_slots: BTreeMap<u64, [u8; 16]>,
    message_ids: HashSet<[u8; 16]>,
}

#[derive(Debug, Default)]
pub(super) struct Runs {
    rows: NumberMap<RunId, RunRow>,
    texts: NumberMap<RunId, Texts>,
    ready: BTreeSet<(Kind, u64, RunId)>,
    looks: BTreeSet<(Timestamp, RunId)>,
    all: BTreeMap<u64, RunId>,
    states: BTreeSet<(RunState, u64, RunId)>,
    removable: BTreeSet<(Timestamp, RunId)>,
}

impl Runs {
    /// Moves a run to where it stands now in the indexes; most changes leave most of them alone.
    fn index(&mut self, before: Option<&RunRow>, after: Option<&RunRow>) {
        fn set<T: Ord>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
            if before != after {
                before.map(|entry| set.remove(&entry));
                set.extend(after);
            }
        }
        let ready = |row: &RunRow| row.ready;
        if before.and_then(ready) != after.and_then(ready) {
            let place = |row: &RunRow| Some((row.kind.clone(), row.ready?, row.id));
            set(&mut self.ready, before.and_then(place), after.and_then(place));
        }
        let look = |row: &RunRow| Some((row.look_at()?, row.id));
        set(&mut self.looks, before.and_then(look), after.and_then(look));
        let state = |row: &RunRow| (row.state, row.seq, row.id);
        set(&mut self.states, before.map(state), after.map(state));
        let removable = |row: &RunRow| Some((row.remove_at()?, row.id));
        set(&mut self.removable, before.and_then(removable), after.and_then(removable));
        match (before, after) {
            (None, Some(row)) => drop(self.all.insert(row.seq, row.id)),
            (Some(row), None) => drop(self.all.remove(&row.seq)),
            _ => {}
        }
    }
}

/// The last id of all.
const LAST: RunId = RunId::from_parts(u16::MAX, u128::MAX);

impl RunTables for MemoryTables {
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        Ok(self.runs.rows.get(&id).cloned())
    }

    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()> {
        self.runs.index(before, Some(after));
        self.runs.rows.insert(after.id, after.clone());
        Ok(())
    }

    fn remove_run(&mut self, id: RunId) -> Result<()> {
        if let Some(row) = self.runs.rows.remove(&id) {
            self.runs.index(Some(&row), None);
        }
        self.runs.texts.remove(&id);
        Ok(())
    }

    fn set_run_aside(&mut self, _: RunId) -> Result<()> {
        // Nothing here can be damaged.
        Ok(())
    }

    fn put_run_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) -> Result<()> {
        let texts = self.runs.texts.entry(id).or_default();
        (texts.definition, texts.input) = (definition, input);
        Ok(())
    }

    fn put_run_input(&mut self, id: RunId, input: Bytes) -> Result<()> {
        self.runs.texts.entry(id).or_default().input = input;
        Ok(())
    }

    fn put_run_value(&mut self, id: RunId, value: RunValue, bytes: Option<Bytes>) -> Result<()> {
        let values = &mut self.runs.texts.entry(id).or_default().values;
        match bytes {
            Some(bytes) => drop(values.insert(value, bytes)),
            None => drop(values.remove(&value)),
        }
        Ok(())
    }

    fn run_value(&mut self, id: RunId, value: RunValue) -> Result<Option<Bytes>> {
        Ok(self.runs.texts.get(&id).and_then(|texts| texts.values.get(&value)).cloned())
    }

    fn put_message_id(&mut self, id: RunId, slot: u64, hash: [u8; 16]) -> Result<()> {
        let texts = self.runs.texts.entry(id).or_default();
        if let Some(old) = texts.message_slots.insert(slot, hash) {
            texts.message_ids.remove(&old);
        }
        texts.message_ids.insert(hash);
        Ok(())
    }

    fn has_message_id(&mut self, id: RunId, hash: [u8; 16]) -> Result<bool> {
        Ok(self.runs.texts.get(&id).is_some_and(|texts| texts.message_ids.contains(&hash)))
    }

    fn run_definition(&mut self, id: RunId) -> Result<Option<Bytes>> {
        Ok(self.runs.texts.get(&id).map(|texts| texts.definition.clone()))
    }

    fn run_input(&mut self, id: RunId) -> Result<Option<Bytes>> {
        Ok(self.runs.texts.get(&id).map(|texts| texts.input.clone()))
    }

    fn append_history(&mut self, id: RunId, _: u64, entries: Vec<Bytes>) -> Result<()> {
        self.runs.texts.entry(id).or_default().history.extend(entries);
        Ok(())
    }

    fn history(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<Bytes>> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let entries = self.runs.texts.get(&id).into_iter().flat_map(|texts| texts.history.iter().skip(from));
        Ok(entries.take(limit).cloned().collect())
    }

    fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) -> Result<()> {
        self.runs.texts.entry(id).or_default().inbox.push_back((number, item));
        Ok(())
    }

    fn inbox(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<(u64, Option<RunItem>)>> {
        let Some(texts) = self.runs.texts.get(&id) else { return Ok(Vec::new()) };
        let found = texts.inbox.range(texts.inbox.partition_point(|(number, _)| *number < from)..).take(limit);
        Ok(found.map(|(number, item)| (*number, Some(item.clone()))).collect())
    }

    fn trim_inbox(&mut self, id: RunId, _: u64, to: u64) -> Result<()> {
        if let Some(texts) = self.runs.texts.get_mut(&id) {
            while texts.inbox.front().is_some_and(|(number, _)| *number < to) {
                texts.inbox.pop_front();
            }
        }
        Ok(())
    }

    fn remove_inbox_items(&mut self, id: RunId, numbers: &[u64]) -> Result<()> {
        if let Some(texts) = self.runs.texts.get_mut(&id) {
            texts.inbox.retain(|(number, _)| numbers.binary_search(number).is_err());
        }
        Ok(())
    }

    fn ready_runs(&mut self, kind: &Kind, limit: usize) -> Result<Vec<RunId>> {
        let from = (kind.clone(), 0, RunId::from_parts(0, 0));
        Ok(self.runs.ready.range(from..).take_while(|(of, ..)| of == kind).take(limit).map(|(.., id)| *id).collect())
    }

    fn waking_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        Ok(self.runs.looks.range(..=(until, LAST)).take(limit).map(|(_, id)| *id).collect())
    }

    fn next_run_wake(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.runs.looks.first().map(|(at, _)| *at))
    }

    fn runs(&mut self, walk: RunWalk) -> Result<Vec<(u64, RunId)>> {
        let fits = |seq: &u64| match walk.after {
            None => true,
            Some(after) if walk.descending => *seq < after,
            Some(after) => *seq > after,
        };
        let pick = |all: &mut dyn DoubleEndedIterator<Item = (u64, RunId)>| -> Vec<(u64, RunId)> {
            if walk.descending {
                all.rev().filter(|(seq, _)| fits(seq)).take(walk.limit).collect()
            } else {
                all.filter(|(seq, _)| fits(seq)).take(walk.limit).collect()
            }
        };
        Ok(match walk.state {
            None => pick(&mut self.runs.all.iter().map(|(seq, id)| (*seq, *id))),
            Some(state) => {
                let range = (state, 0, RunId::from_parts(0, 0))..=(state, u64::MAX, LAST);
                pick(&mut self.runs.states.range(range).map(|(_, seq, id)| (*seq, *id)))
            }
        })
    }

    fn removable_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        Ok(self.runs.removable.range(..=(until, LAST)).take(limit).map(|(_, id)| *id).collect())
    }
}
