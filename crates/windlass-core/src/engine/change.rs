//! Changes by id: what operators and applications do without a lease.

use super::Step;
use super::rows::{Extra, Record};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{Due, Event, State, Verb};
use crate::payload::Payload;
use crate::store::{Change, ChangeOp, Changed, check_batch};
use std::sync::Arc;

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::change`](crate::store::JobQueue::change).
    pub fn change(&mut self, changes: Vec<Change>) -> Result<Vec<Result<Changed>>> {
        check_batch(changes.len())?;
        Ok(changes.into_iter().map(|change| self.change_one(change)).collect())
    }

    fn change_one(&mut self, change: Change) -> Result<Changed> {
        change.op.check()?;
        let record = self.wanted(change.id)?;
        if record.quarantined && change.op != ChangeOp::Remove {
            return Err(Error::quarantined(change.id));
        }
        let after = match self.change_record(&record, change.op) {
            Err(Error::Corrupt { what }) => {
                self.set_aside(record.row, &what)?;
                return Err(Error::Corrupt { what });
            }
            other => other?,
        };
        Ok(Changed { state: after.map(|record| record.state()) })
    }

    pub(super) fn change_record(&mut self, record: &Record, op: ChangeOp) -> Result<Option<Record>> {
        match op {
            ChangeOp::Cancel if record.state() == State::Cancelled || record.life.cancel_requested => {
                Ok(Some(record.clone()))
            }
            ChangeOp::Cancel => self.transition(record, &Event::Cancel),
            ChangeOp::Promote => {
                Self::check_not_held(record, Verb::Promote)?;
                self.transition(record, &Event::Promote)
            }
            ChangeOp::Reschedule(due) => {
                Self::check_not_held(record, Verb::Reschedule)?;
                self.transition(record, &Event::Reschedule { due_at: due.resolve(self.now) })
            }
            ChangeOp::Retry(due) => self.retry(record, due),
            ChangeOp::Reprioritise(priority) => self.reprioritise(record, priority),
            ChangeOp::UpdatePayload(payload) => self.update_payload(record, payload),
            ChangeOp::Remove => self.transition(record, &Event::Remove),
        }
    }

    fn retry(&mut self, record: &Record, due: Due) -> Result<Option<Record>> {
        let event = Event::Retry { due_at: due.resolve(self.now) };
        // Asked first, because the key must not be taken by a job that may not come back.
        crate::job::next(&record.life, &event, self.now)?;
        self.retake_dedup(record)?;
        let extra = self.readable(record.row)?;
        if extra.progress.is_some() || extra.result.is_some() || !extra.outputs.is_empty() {
            // What the last life achieved must not pass for the work of the new one; what went wrong is still told.
            self.tables.put_extra(record.row, Extra { failures: extra.failures, ..Extra::default() })?;
        }
        self.transition(record, &event)
    }

    fn reprioritise(&mut self, record: &Record, priority: i16) -> Result<Option<Record>> {
        crate::job::next(&record.life, &Event::Reprioritise, self.now)?;
        let mut spec = self.tables.spec(record.row)?;
        let mut after = record.clone();
        after.priority = priority;
        after.ord = record.ord.with_priority(priority);
        self.apply(record, &mut after, Verb::Reprioritise)?;
        Arc::make_mut(&mut spec).priority = priority;
        self.tables.put_spec(record.row, spec)?;
        Ok(Some(after))
    }

    fn update_payload(&mut self, record: &Record, payload: Payload) -> Result<Option<Record>> {
        let mut spec = self.tables.spec(record.row)?;
        let after = self.transition(record, &Event::UpdatePayload)?;
        Arc::make_mut(&mut spec).payload = payload;
        self.tables.put_spec(record.row, spec)?;
        Ok(after)
    }

    /// The job of this id, or `NotFound`.
    pub(super) fn wanted(&mut self, id: JobId) -> Result<Record> {
        let missing = || Error::not_found(format!("the job {id}"));
        let row = self.tables.find_job(id)?.ok_or_else(missing)?;
        match self.readable_record(row)? {
            Some(record) if !record.quarantined && self.is_orphan(&record)? => {
                self.set_aside(row, "its queue or its lane is not there")?;
            }
            Some(record) => return Ok(record),
            None => {}
        }
        // It was set aside just now, and can be read as such.
        self.tables.record(row)?.ok_or_else(missing)
    }
}
