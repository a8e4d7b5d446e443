//! An exported code run as it was at a record of its history.

use super::groups::groups_of;
use super::history::{HistoryRecord, NumberedRecord, shown};
use super::operation::{Operation, OperationState, group};
use super::{OperationGroup, check_is_code};
use crate::error::OperateError;
use serde::Serialize;
use windlass::core::id::RunId;
use windlass::core::store::RunState;
use windlass::core::time::Timestamp;
use windlass::durable::record::{End, Entry, Record};
use windlass::runs::{RunExport, StoredEntry};

/// A code run as its history has it at a record.
#[derive(Clone, Debug, Serialize)]
pub struct RunAt {
    /// The run.
    pub run: RunId,
    /// The workflow and its version, `name@version`.
    pub kind: String,
    /// The state of the run when it was exported.
    pub state: RunState,
    /// The number behind the last record that is shown.
    pub until: u64,
    /// The number of the first record of the segment.
    pub segment_from: u64,
    /// Records of the whole history.
    pub history_len: u64,
    /// The time of the last event that is shown.
    pub at: Option<Timestamp>,
    /// How the segment ended, if the records have its end: `ok`, `failed`, `continued` and so on.
    pub ended: Option<&'static str>,
    /// The operations by kind and name.
    pub groups: Vec<OperationGroup>,
    /// The operations, in the order of their first records, in their state at that record.
    pub operations: Vec<Operation>,
    /// Operations that were left out by [`shorten`](Self::shorten).
    pub operations_omitted: u64,
}

impl RunAt {
    /// Leaves out operations if there are more than `max`: those that are open or failed stay first, at most half of `max`, and the
    /// last ones.
    pub fn shorten(&mut self, max: usize) {
        self.operations_omitted += super::shorten(&mut self.operations, max);
    }

    /// Operations that have not ended.
    pub fn pending(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(|row| row.state == OperationState::Open)
    }
}

/// A record, and what the code waits for behind it.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The record.
    pub record: HistoryRecord,
    /// The numbers of the operations that are open behind it, at most 20.
    pub open: Vec<u64>,
    /// How many operations are open behind it.
    pub open_count: u64,
}

/// Open operations that a step names.
const OPEN_MAX: usize = 20;

/// The run as its history has it before record `until`; by default at its end.
pub fn read_run_at(export: &RunExport, until: Option<u64>) -> Result<RunAt, OperateError> {
    let records = records(export, until)?;
    let run = &export.run;
    let operations = group(&records);
    let (mut at, mut ended) = (None, None);
    for NumberedRecord { record, .. } in &records {
        match &record.entry {
            Entry::Event { at: time, .. } => (at, ended) = (Some(*time), None),
            Entry::End { at: time, end } => (at, ended) = (Some(*time), Some(End::name(end))),
            _ => {}
        }
    }
    Ok(RunAt {
        run: run.id,
        kind: run.kind.to_string(),
        state: run.state,
        until: run.segment_from.max(records.last().map_or(0, |record| record.number + 1)),
        segment_from: run.segment_from,
        history_len: export.history.len() as u64,
        at,
        ended,
        groups: groups_of(&operations),
        operations,
        operations_omitted: 0,
    })
}

/// The records before `until`, each with what is open behind it.
pub fn read_steps(export: &RunExport, until: Option<u64>) -> Result<Vec<Step>, OperateError> {
    let records = records(export, until)?;
    let mut open: Vec<u64> = Vec::new();
    let mut steps = Vec::with_capacity(records.len());
    for numbered in &records {
        match &numbered.record.entry {
            Entry::Command(_) => open.push(numbered.number),
            Entry::Cancel(numbers) => open.retain(|number| !numbers.contains(number)),
            Entry::Event { event, .. } => {
                if let Some(of) = event.ends() {
                    open.retain(|number| *number != of);
                }
            }
            Entry::End { .. } => open.clear(),
            _ => {}
        }
        let index = usize::try_from(numbered.number).unwrap_or(usize::MAX);
        let stored = export.history.get(index).map(|entry| entry.entry.bytes.clone()).unwrap_or_default();
        let (record, open_count) = (shown(numbered, &stored)?, open.len() as u64);
        steps.push(Step { record, open: open.iter().copied().take(OPEN_MAX).collect(), open_count });
    }
    Ok(steps)
}

/// The records of the present segment before `until`.
fn records(export: &RunExport, until: Option<u64>) -> Result<Vec<NumberedRecord>, OperateError> {
    let run = &export.run;
    check_is_code(run)
        .map_err(|error| OperateError { hint: Some("windlass replay is for workflows in code".to_owned()), ..error })?;
    let (from, to) = (run.segment_from, export.history.len() as u64);
    let until = until.unwrap_or(to);
    if !(from..=to).contains(&until) {
        let message = format!("there is no record {until} in this segment; it has the records from {from} to {to}");
        return Err(OperateError::invalid(message).hint("windlass replay FILE --steps lists them"));
    }
    let entries = export.history.iter().filter(|entry| (from..until).contains(&entry.number));
    let decode = |entry: &StoredEntry| {
        let number = entry.number;
        let record = Record::decode(&entry.entry.bytes).map_err(|error| {
            OperateError::failed(format!("record {number} of the file cannot be read: {}", error.reason))
                .hint("update windlass if a newer version wrote it")
        })?;
        Ok(NumberedRecord { number, record })
    };
    entries.map(decode).collect()
}
