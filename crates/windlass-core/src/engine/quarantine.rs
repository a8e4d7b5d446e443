//! Jobs whose stored form cannot be read: shown, set aside, removed, and never in anybody's way.
//!
//! A read shows what can be read of them. The first write that comes across one sets it aside: it becomes a failed job
//! that keeps the reason, is never claimed and can only be removed.

use super::rows::{Extra, GroupId, Record, Row};
use super::tables::Tables;
use super::{Ended, Step};
use crate::error::{Error, Result};
use crate::job::{Failure, FailureClass, State, Verb};

impl<T: Tables> Step<'_, T> {
    /// The record at `row` and what is wrong with it, for readers, who must not set it aside.
    pub(super) fn look(&mut self, row: Row) -> Result<Option<(Record, Option<String>)>> {
        match self.tables.record(row) {
            Ok(record) => Ok(record.map(|record| (record, None))),
            Err(Error::Corrupt { what }) => {
                let salvaged = self.tables.salvage(row)?;
                Ok(salvaged.map(|record| (Record { quarantined: true, ..record }, Some(what))))
            }
            Err(error) => Err(error),
        }
    }

    /// The record at `row`; one that cannot be read is set aside, so that it stands in nobody's way.
    pub(super) fn readable_record(&mut self, row: Row) -> Result<Option<Record>> {
        let record = self.tables.record(row);
        Ok(self.or_set_aside(row, record)?.flatten())
    }

    /// `outcome`, or `None` when the job turned out to be damaged and was set aside. A job that stands in an index of
    /// one state and cannot make that state's transition is damaged, too.
    pub(super) fn or_set_aside<R>(&mut self, row: Row, outcome: Result<R>) -> Result<Option<R>> {
        match outcome {
            Err(Error::Corrupt { what }) => self.set_aside(row, &what).map(|()| None),
            Err(error @ Error::IllegalTransition { .. }) => {
                self.set_aside(row, &format!("its state does not fit its place: {error}")).map(|()| None)
            }
            other => other.map(Some),
        }
    }

    /// Takes a job whose stored form cannot be read out of everybody's way.
    pub(super) fn set_aside(&mut self, row: Row, why: &str) -> Result<()> {
        let Some(mut record) = self.tables.salvage(row)? else {
            return Ok(());
        };
        if let Ok(lane) = self.tables.lane(record.lane) {
            record.queue = lane.queue;
        }
        if record.run.is_none() {
            // Its record may have forgotten it, and its run waits for it.
            record.run = self.tables.spec(row).ok().and_then(|spec| spec.run);
        }
        self.tables.mend(&record)?;
        let orphan = self.is_orphan(&record)?;
        record.group = if orphan { None } else { self.counted_group(&record)? };
        let mut after = record.clone();
        after.quarantined = true;
        after.life.state = State::Failed;
        after.life.held = None;
        after.life.due_at = None;
        after.life.cancel_requested = false;
        after.life.finished_at = Some(self.now);
        after.keeps_itself = false;
        if orphan {
            // No queue counts it, so there is nothing that could follow.
            self.tables.update_job(&record, &after)?;
            self.effects.ended.push(Ended::Job(after.id));
        } else {
            self.apply(&record, &mut after, Verb::Fail)?;
        }
        self.free_lost_key(&after)?;
        let attempt = record.life.attempt;
        let failure = Failure { attempt, at: self.now, ..Failure::new(FailureClass::Quarantined, why) };
        self.tables.put_extra(row, Extra { failures: vec![failure], ..Extra::default() })
    }

    /// Frees the key of a job that has forgotten it, as far as its spec remembers: somebody may wait behind it.
    fn free_lost_key(&mut self, record: &Record) -> Result<()> {
        if record.dedup.is_some() {
            return Ok(());
        }
        match self.tables.spec(record.row) {
            Ok(spec) => self.free_dedup(&Record { dedup: spec.dedup_hash(), ..record.clone() }),
            Err(Error::Corrupt { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// True when the queue or the lane of a job is not there.
    pub(super) fn is_orphan(&mut self, record: &Record) -> Result<bool> {
        let queue = self.tables.queue(record.queue).map(drop);
        match queue.and_then(|()| self.tables.lane(record.lane).map(drop)) {
            Ok(()) => Ok(false),
            // When the queues themselves cannot be read, nobody is an orphan.
            Err(Error::Corrupt { .. }) => self.tables.queues().map(|_| true),
            Err(error) => Err(error),
        }
    }

    /// The group that counts a salvaged job, as far as that can be told.
    fn counted_group(&mut self, record: &Record) -> Result<Option<GroupId>> {
        if !matches!(record.state(), State::Ready | State::Active) {
            return Ok(None);
        }
        let group = match self.group_of(record) {
            Err(Error::Corrupt { .. }) => return Ok(None),
            other => other?,
        };
        match self.tables.group(group).map(drop) {
            Err(Error::Corrupt { .. }) => Ok(None),
            other => other.map(|()| Some(group)),
        }
    }
}
