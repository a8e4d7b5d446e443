//! Looking runs up, listing and removing them.

use super::super::rows::{RunRow, RunValue};
use super::super::scan::Cursor;
use super::super::tables::Position;
use super::super::tables::{RunWalk, Tables};
use super::super::{Ended, Step};
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::job::State;
use crate::store::{
    FeedEvent, ListOrder, RUN_READ_BYTES_MAX, RUN_SCAN_MAX, Run, RunChange, RunList, RunPage, RunRead, RunView,
    check_batch,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Entries of a history that are read first, before it is known how large they are.
const ENTRIES_FIRST: usize = 64;

impl<T: Tables> Step<'_, T> {
    /// See [`RunStore::read_runs`](crate::store::RunStore::read_runs).
    pub fn read_runs(&mut self, reads: &[RunRead]) -> Result<Vec<Option<RunView>>> {
        reads.iter().map(|read| self.read_run(read)).collect()
    }

    fn read_run(&mut self, read: &RunRead) -> Result<Option<RunView>> {
        check_batch(read.history_max as usize)?;
        let (run, (inbox, inbox_to)) = match self.tables.run(read.run) {
            Ok(None) => return Ok(None),
            Ok(Some(row)) => {
                let inbox = read.inbox_from.map(|from| self.inbox_from(&row, from)).transpose()?;
                (view(row), inbox.unwrap_or_default())
            }
            Err(Error::Corrupt { what }) => (Run::unreadable(read.run, what)?, Default::default()),
            Err(error) => return Err(error),
        };
        let definition = if read.definition { self.tables.run_definition(read.run)? } else { None };
        let input = if read.input { self.tables.run_input(read.run)? } else { None };
        let history = self.entries(read)?;
        let published =
            if read.published { Some(self.value(read.run, RunValue::Published)?.unwrap_or_default()) } else { None };
        let result = if read.result { self.value(read.run, RunValue::Result)? } else { None };
        Ok(Some(RunView { run, definition, input, history, published, result, inbox, inbox_to }))
    }

    /// A part of a history: at most so many entries and bytes, one entry in any case. Read in slices, because entries may be large.
    fn entries(&mut self, read: &RunRead) -> Result<Vec<Bytes>> {
        let (mut entries, mut bytes, mut slice) = (Vec::new(), 0, ENTRIES_FIRST);
        let max = read.history_max as usize;
        while entries.len() < max {
            let limit = slice.min(max - entries.len());
            let found = self.tables.history(read.run, read.history_from + entries.len() as u64, limit)?;
            let is_last = found.len() < limit;
            for entry in found {
                bytes += entry.len();
                if bytes > RUN_READ_BYTES_MAX && !entries.is_empty() {
                    return Ok(entries);
                }
                entries.push(entry);
            }
            if is_last {
                break;
            }
            // As many as there is room for, if the others are like those so far.
            let room = RUN_READ_BYTES_MAX.saturating_sub(bytes);
            slice = (room / (bytes / entries.len() + 1)).max(1);
        }
        Ok(entries)
    }

    /// A value of a run; `None` if there is none or it cannot be read.
    fn value<V: DeserializeOwned>(&mut self, run: RunId, value: RunValue) -> Result<Option<V>> {
        let bytes = self.tables.run_value(run, value)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// See [`RunStore::list_runs`](crate::store::RunStore::list_runs).
    pub fn list_runs(&mut self, request: &RunList) -> Result<RunPage> {
        request.check()?;
        let question = request.question();
        let cursor = request.cursor.as_deref().map(|text| Cursor::<Position>::decode(text, &question)).transpose()?;
        let descending = request.order == ListOrder::Descending;
        let (after, limit) = (cursor.map(|cursor| cursor.queue), request.limit as usize);
        let is_filtered = request.is_filtered();
        let scan_max = if is_filtered { RUN_SCAN_MAX } else { limit };
        let found = self.tables.runs(RunWalk { state: request.state, descending, after, limit: scan_max + 1 })?;
        let (mut page, mut visited) = (RunPage::default(), 0_usize);
        for (_, id) in found.iter().take(scan_max) {
            visited += 1;
            let run = self.listed(*id)?;
            if !is_filtered || run.damaged.is_none() && request.matches(&run) {
                page.runs.push(run);
            }
            if page.runs.len() == limit {
                break;
            }
        }
        if let Some((seq, _)) = found.get(visited.saturating_sub(1)).filter(|_| visited < found.len()) {
            let cursor = Cursor::<Position> { queue: *seq, state: State::Scheduled, position: None };
            page.cursor = Some(cursor.encode(&question));
        }
        Ok(page)
    }

    fn listed(&mut self, id: RunId) -> Result<Run> {
        match self.tables.run(id) {
            Ok(Some(row)) => Ok(view(row)),
            Ok(None) => Run::unreadable(id, "it is not there".to_owned()),
            Err(Error::Corrupt { what }) => Run::unreadable(id, what),
            Err(error) => Err(error),
        }
    }

    /// See [`RunStore::remove_runs`](crate::store::RunStore::remove_runs).
    pub fn remove_runs(&mut self, runs: &[RunId]) -> Result<Vec<Result<()>>> {
        Ok(runs.iter().map(|run| self.remove_run(*run)).collect())
    }

    pub(in super::super) fn remove_run(&mut self, id: RunId) -> Result<()> {
        let history_len = match self.wanted_run(id) {
            Ok(row) if !row.state.is_terminal() && row.stuck.is_none() => {
                return Err(Error::run_not_removed(id));
            }
            Ok(row) => row.history_len,
            Err(Error::Corrupt { .. }) => 0,
            Err(error) => return Err(error),
        };
        self.events.push(FeedEvent::Run(RunChange { run: id, state: None, history_len }));
        self.effects.ended.push(Ended::Run(id));
        self.tables.remove_run(id)
    }

    /// True for a run that has not ended. One that is missing or cannot be read will not end.
    pub(in super::super) fn is_open_run(&mut self, id: RunId) -> Result<bool> {
        match self.tables.run(id) {
            Ok(row) => Ok(row.is_some_and(|row| !row.state.is_terminal())),
            Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes runs that were kept long enough.
    pub(in super::super) fn prune_runs(&mut self, max: usize) -> Result<usize> {
        let runs = self.tables.removable_runs(self.now, max)?;
        for run in &runs {
            self.remove_run(*run)?;
        }
        Ok(runs.len())
    }
}

fn view(row: RunRow) -> Run {
    let inbox_len = row.inbox_len();
    Run {
        id: row.id,
        kind: row.kind,
        name: row.name.as_ref().to_owned(),
        state: row.state,
        stuck: row.stuck,
        summary: row.summary.as_ref().to_owned(),
        history_len: row.history_len,
        inbox_len,
        engine: row.held.map(|held| held.worker),
        wake_at: row.wake_at,
        created_at: row.created_at,
        changed_at: row.changed_at,
        finished_at: row.finished_at,
        parent: row.parent,
        labels: Arc::unwrap_or_clone(row.labels),
        segment_from: row.segment_from,
        stall_count: row.stall_count,
        unread_messages: row.unread_messages,
        error: row.error,
        damaged: None,
    }
}
