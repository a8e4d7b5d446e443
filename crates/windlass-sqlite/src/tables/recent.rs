//! Jobs that this connection has just read or written, so that the next look at them needs no query.
//!
//! Valid as long as nobody else writes to the file; forgotten whenever somebody has, and with every transaction that is
//! taken back.

use windlass_core::engine::{NumberMap, Record, Row};
use windlass_core::id::JobId;
use windlass_core::job::State;

use super::specs::Stored;

/// Active jobs that stay in memory, so that their outcome needs no look-up.
const ACTIVE_MAX: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Active jobs, as they are written.
    active: NumberMap<Row, Record>,
    ids: NumberMap<JobId, Row>,
    /// Ready jobs that a claim has read along.
    ahead: NumberMap<Row, Ahead>,
    /// The job that was looked at last.
    last: Option<Record>,
}

#[derive(Debug)]
struct Ahead {
    record: Record,
    stored: Option<Stored>,
}

impl Recent {
    pub(super) fn find(&self, id: JobId) -> Option<Row> {
        self.ids.get(&id).copied()
    }

    pub(super) fn record(&self, row: Row) -> Option<&Record> {
        let last = self.last.as_ref().filter(|last| last.row == row);
        last.or_else(|| self.active.get(&row)).or_else(|| self.ahead.get(&row).map(|ahead| &ahead.record))
    }

    pub(super) fn take_spec(&mut self, row: Row) -> Option<Stored> {
        self.ahead.get_mut(&row).and_then(|ahead| ahead.stored.take())
    }

    /// What was read along of a spec is not true any more.
    pub(super) fn forget_spec(&mut self, row: Row) {
        self.ahead.remove(&row);
    }

    pub(super) fn note_read(&mut self, record: &Record) {
        self.last = Some(record.clone());
    }

    pub(super) fn note_ahead(&mut self, record: Record, stored: Stored) {
        self.ahead.insert(record.row, Ahead { record, stored: Some(stored) });
    }

    pub(super) fn note_written(&mut self, record: &Record) {
        self.forget(record.row);
        if record.state() == State::Active {
            self.ids.insert(record.id, record.row);
            self.active.insert(record.row, record.clone());
        }
    }

    pub(super) fn forget(&mut self, row: Row) {
        if let Some(record) = self.active.remove(&row) {
            self.ids.remove(&record.id);
        }
        self.ahead.remove(&row);
        if self.last.as_ref().is_some_and(|last| last.row == row) {
            self.last = None;
        }
    }

    /// To be called between transactions.
    pub(super) fn shrink(&mut self) {
        self.ahead.clear();
        if self.active.len() > ACTIVE_MAX {
            self.active.clear();
            self.ids.clear();
        }
    }
}
