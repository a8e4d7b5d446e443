//! Runs of the memory store.

use super::tables::MemoryTables;
use crate::engine::{NumberMap, RunRow, RunTables, RunWalk};
use crate::error::Result;
use crate::id::RunId;
use crate::name::Kind;
use crate::store::{RunItem, RunState};
use crate::time::Timestamp;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug, Default)]
struct Texts {
    definition: Bytes,
    input: Bytes,
    history: Vec<Bytes>,
    inbox: VecDeque<(u64, RunItem)>,
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
    pub(super) fn get(&self, id: RunId) -> Option<RunRow> {
        self.rows.get(&id).cloned()
    }

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

    pub(super) fn put(&mut self, before: Option<&RunRow>, after: &RunRow) {
        self.index(before, Some(after));
        self.rows.insert(after.id, after.clone());
    }

    pub(super) fn remove(&mut self, id: RunId) {
        if let Some(row) = self.rows.remove(&id) {
            self.index(Some(&row), None);
        }
        self.texts.remove(&id);
    }

    pub(super) fn put_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) {
        let texts = self.texts.entry(id).or_default();
        (texts.definition, texts.input) = (definition, input);
    }

    pub(super) fn definition(&self, id: RunId) -> Option<Bytes> {
        self.texts.get(&id).map(|texts| texts.definition.clone())
    }

    pub(super) fn input(&self, id: RunId) -> Option<Bytes> {
        self.texts.get(&id).map(|texts| texts.input.clone())
    }

    pub(super) fn append_history(&mut self, id: RunId, entries: Vec<Bytes>) {
        self.texts.entry(id).or_default().history.extend(entries);
    }

    pub(super) fn history(&self, id: RunId, from: u64, limit: usize) -> Vec<Bytes> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        self.texts
            .get(&id)
            .map_or_else(Vec::new, |texts| texts.history.iter().skip(from).take(limit).cloned().collect())
    }

    pub(super) fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) {
        self.texts.entry(id).or_default().inbox.push_back((number, item));
    }

    pub(super) fn inbox(&self, id: RunId, from: u64, limit: usize) -> Vec<(u64, Option<RunItem>)> {
        let items = self.texts.get(&id).into_iter().flat_map(|texts| &texts.inbox);
        let found = items.filter(|(number, _)| *number >= from).take(limit);
        found.map(|(number, item)| (*number, Some(item.clone()))).collect()
    }

    pub(super) fn trim_inbox(&mut self, id: RunId, to: u64) {
        if let Some(texts) = self.texts.get_mut(&id) {
            while texts.inbox.front().is_some_and(|(number, _)| *number < to) {
                texts.inbox.pop_front();
            }
        }
    }

    pub(super) fn ready(&self, kind: &Kind, limit: usize) -> Vec<RunId> {
        let from = (kind.clone(), 0, RunId::from_parts(0, 0));
        self.ready.range(from..).take_while(|(of, ..)| of == kind).take(limit).map(|(.., id)| *id).collect()
    }

    pub(super) fn waking(&self, until: Timestamp, limit: usize) -> Vec<RunId> {
        self.looks.range(..=(until, RunId::from_parts(u16::MAX, u128::MAX))).take(limit).map(|(_, id)| *id).collect()
    }

    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.looks.first().map(|(at, _)| *at)
    }

    pub(super) fn removable(&self, until: Timestamp, limit: usize) -> Vec<RunId> {
        let end = (until, RunId::from_parts(u16::MAX, u128::MAX));
        self.removable.range(..=end).take(limit).map(|(_, id)| *id).collect()
    }

    pub(super) fn walk(&self, walk: RunWalk) -> Vec<(u64, RunId)> {
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
        match walk.state {
            None => pick(&mut self.all.iter().map(|(seq, id)| (*seq, *id))),
            Some(state) => {
                let (low, high) = (RunId::from_parts(0, 0), RunId::from_parts(u16::MAX, u128::MAX));
                let range = self.states.range((state, 0, low)..=(state, u64::MAX, high));
                pick(&mut range.map(|(_, seq, id)| (*seq, *id)))
            }
        }
    }
}

impl RunTables for MemoryTables {
    fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        Ok(self.runs.get(id))
    }

    fn put_run(&mut self, before: Option<&RunRow>, after: &RunRow) -> Result<()> {
        self.runs.put(before, after);
        Ok(())
    }

    fn remove_run(&mut self, id: RunId) -> Result<()> {
        self.runs.remove(id);
        Ok(())
    }

    fn set_run_aside(&mut self, _: RunId) -> Result<()> {
        // Nothing here can be damaged.
        Ok(())
    }

    fn put_run_texts(&mut self, id: RunId, definition: Bytes, input: Bytes) -> Result<()> {
        self.runs.put_texts(id, definition, input);
        Ok(())
    }

    fn run_definition(&mut self, id: RunId) -> Result<Option<Bytes>> {
        Ok(self.runs.definition(id))
    }

    fn run_input(&mut self, id: RunId) -> Result<Option<Bytes>> {
        Ok(self.runs.input(id))
    }

    fn append_history(&mut self, id: RunId, _: u64, entries: Vec<Bytes>) -> Result<()> {
        self.runs.append_history(id, entries);
        Ok(())
    }

    fn history(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<Bytes>> {
        Ok(self.runs.history(id, from, limit))
    }

    fn append_inbox(&mut self, id: RunId, number: u64, item: RunItem) -> Result<()> {
        self.runs.append_inbox(id, number, item);
        Ok(())
    }

    fn inbox(&mut self, id: RunId, from: u64, limit: usize) -> Result<Vec<(u64, Option<RunItem>)>> {
        Ok(self.runs.inbox(id, from, limit))
    }

    fn trim_inbox(&mut self, id: RunId, _: u64, to: u64) -> Result<()> {
        self.runs.trim_inbox(id, to);
        Ok(())
    }

    fn ready_runs(&mut self, kind: &Kind, limit: usize) -> Result<Vec<RunId>> {
        Ok(self.runs.ready(kind, limit))
    }

    fn waking_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        Ok(self.runs.waking(until, limit))
    }

    fn next_run_wake(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.runs.next_wake())
    }

    fn runs(&mut self, walk: RunWalk) -> Result<Vec<(u64, RunId)>> {
        Ok(self.runs.walk(walk))
    }

    fn removable_runs(&mut self, until: Timestamp, limit: usize) -> Result<Vec<RunId>> {
        Ok(self.runs.removable(until, limit))
    }
}
