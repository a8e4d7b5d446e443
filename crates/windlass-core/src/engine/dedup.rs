//! Dedup keys: who holds one, and what happens when its job ends.
//!
//! A key is freed only by the job that holds it. It is held until its job ends, or until its time runs out, whichever is
//! earlier; a throttle's key is held until its time runs out, whatever becomes of the job.

use super::Step;
use super::rows::{DedupRow, Record};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{DedupMode, Event, JobSpec, State, Verb};

/// What a job's dedup key says about it.
pub(super) enum Verdict {
    /// Nothing is in its way.
    Free,
    /// Another job stands for it.
    Taken { by: JobId },
    /// It takes the place of a job that has not started.
    Replaces { old: JobId },
    /// It waits behind the active job, in place of the one that waits there.
    Behind { active: JobId, waiting: Option<JobId> },
}

impl<T: Tables> Step<'_, T> {
    pub(super) fn dedup_verdict(&mut self, spec: &JobSpec) -> Result<Verdict> {
        let (Some(dedup), Some(key)) = (&spec.dedup, spec.dedup_hash()) else {
            return Ok(Verdict::Free);
        };
        let Some(holder) = self.held_key(key)? else {
            return Ok(Verdict::Free);
        };
        let by = holder.owner;
        if holder.sticky {
            return Ok(Verdict::Taken { by });
        }
        let state = self.state_of(by)?;
        if let (DedupMode::Replace | DedupMode::KeepLast, Some(_), waiting @ Some(_)) =
            (dedup.mode, state, holder.successor)
        {
            // Whoever waits behind the holder is the one that has not started, whatever the holder does meanwhile.
            return Ok(Verdict::Behind { active: by, waiting });
        }
        Ok(match (dedup.mode, state) {
            (_, None) => Verdict::Free,
            (DedupMode::Reject | DedupMode::Throttle, Some(_)) => Verdict::Taken { by },
            (DedupMode::KeepLast, Some(State::Active)) => Verdict::Behind { active: by, waiting: None },
            (DedupMode::Replace, Some(State::Active)) => Verdict::Free,
            (DedupMode::Replace | DedupMode::KeepLast, Some(_)) => Verdict::Replaces { old: by },
        })
    }

    /// The holder of a key, unless its time has run out. A job that waits behind the holder keeps the key held, or
    /// nobody would let that job go ahead.
    fn held_key(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        let now = self.now;
        let held = |row: &DedupRow| row.successor.is_some() || row.until.is_none_or(|until| until > now);
        Ok(self.tables.dedup(key)?.filter(held))
    }

    fn state_of(&mut self, id: JobId) -> Result<Option<State>> {
        match self.tables.find_job(id)? {
            // One that cannot be read is set aside, and holds its key no more.
            Some(row) => Ok(self.readable_record(row)?.map(|record| record.state())),
            None => Ok(None),
        }
    }

    /// Gives the key to a new job, or makes it the one that waits behind the active holder.
    pub(super) fn take_dedup(&mut self, record: &Record, spec: &JobSpec, behind: Option<JobId>) -> Result<()> {
        let (Some(dedup), Some(key)) = (&spec.dedup, record.dedup) else {
            return Ok(());
        };
        let row = match (behind, self.tables.dedup(key)?) {
            (Some(_), Some(row)) => DedupRow { successor: Some(record.id), ..row },
            _ => DedupRow {
                owner: record.id,
                until: dedup.ttl_ms.map(|ms| self.now.plus_ms(ms)),
                sticky: dedup.mode == DedupMode::Throttle,
                successor: None,
            },
        };
        self.tables.put_dedup(key, Some(row))
    }

    /// The job of `record` has ended or is gone: frees its key, and lets the job behind it go ahead.
    pub(super) fn free_dedup(&mut self, record: &Record) -> Result<()> {
        let Some(key) = record.dedup else {
            return Ok(());
        };
        let Some(row) = self.tables.dedup(key)? else {
            return Ok(());
        };
        if row.successor == Some(record.id) {
            return self.tables.put_dedup(key, Some(DedupRow { successor: None, ..row }));
        }
        if row.owner != record.id || row.sticky {
            return Ok(());
        }
        let Some(successor) = row.successor else {
            return self.tables.put_dedup(key, None);
        };
        let Some(next) = self.tables.find_job(successor)? else {
            return self.tables.put_dedup(key, None);
        };
        let Some(next) = self.readable_record(next)? else {
            return self.tables.put_dedup(key, None);
        };
        let spec = self.tables.spec(next.row);
        let Some(spec) = self.or_set_aside(next.row, spec)? else {
            return self.tables.put_dedup(key, None);
        };
        let ttl_ms = spec.dedup.as_ref().and_then(|dedup| dedup.ttl_ms);
        let until = ttl_ms.map(|ms| self.now.plus_ms(ms));
        self.tables.put_dedup(key, Some(DedupRow { owner: successor, until, sticky: false, successor: None }))?;
        // It may have been asked to wait for a time of its own, too.
        let event = match self.readable(next.row)?.held_due_at {
            Some(due_at) if due_at > self.now => Event::Reschedule { due_at },
            _ => Event::Promote,
        };
        self.transition(&next, &event)?;
        Ok(())
    }

    /// An ended job comes back: it needs its key again.
    pub(super) fn retake_dedup(&mut self, record: &Record) -> Result<()> {
        let Some(key) = record.dedup else {
            return Ok(());
        };
        let spec = self.tables.spec(record.row)?;
        if let Some(row) = self.held_key(key)? {
            if row.owner != record.id && self.state_of(row.owner)?.is_some_and(|state| !state.is_terminal()) {
                return Err(Error::KeyTaken { by: row.owner });
            }
            if row.sticky {
                // A throttle goes on until its time has run out, whoever comes back meanwhile.
                return Ok(());
            }
        }
        self.take_dedup(record, &spec, None)
    }

    /// A job that waits behind another is not made ready by hand.
    pub(super) fn check_not_held(record: &Record, verb: Verb) -> Result<()> {
        if record.is_held() {
            return Err(Error::IllegalTransition { from: State::Scheduled, verb });
        }
        Ok(())
    }
}
