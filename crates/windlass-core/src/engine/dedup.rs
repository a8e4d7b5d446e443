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

/// Who holds a dedup key.
enum Holder {
    /// Nobody does.
    Nobody,
    /// A throttle, whatever has become of its job.
    Throttle { by: JobId },
    /// A job that has not ended, and its state.
    Job(DedupRow, State),
}

/// Jobs of one key: its holder and the one that waits behind it; and a look that finds neither.
const HOLDERS_MAX: usize = 3;

impl<T: Tables> Step<'_, T> {
    pub(super) fn dedup_verdict(&mut self, spec: &JobSpec) -> Result<Verdict> {
        let (Some(dedup), Some(key)) = (&spec.dedup, spec.dedup_hash()) else {
            return Ok(Verdict::Free);
        };
        let (holder, state) = match self.live_holder(key)? {
            Holder::Nobody => return Ok(Verdict::Free),
            Holder::Throttle { by } => return Ok(Verdict::Taken { by }),
            Holder::Job(holder, state) => (holder, state),
        };
        let by = holder.owner;
        Ok(match (dedup.mode, state) {
            (DedupMode::Reject | DedupMode::Throttle, _) => Verdict::Taken { by },
            // Whoever waits behind the holder is the one that has not started, whatever the holder does meanwhile.
            (DedupMode::Replace | DedupMode::KeepLast, _) if holder.successor.is_some() => {
                Verdict::Behind { active: by, waiting: holder.successor }
            }
            (DedupMode::KeepLast, State::Active) => Verdict::Behind { active: by, waiting: None },
            (DedupMode::Replace, State::Active) => Verdict::Free,
            (DedupMode::Replace | DedupMode::KeepLast, _) => Verdict::Replaces { old: by },
        })
    }

    /// Who holds a key. A holder that cannot be read is set aside, and one that has ended or is gone holds it no more:
    /// then the job that waits behind it does.
    fn live_holder(&mut self, key: [u8; 16]) -> Result<Holder> {
        // Each round takes one job off the key, and a key has two at most.
        for _ in 0..HOLDERS_MAX {
            let Some(row) = self.held_key(key)? else { break };
            if row.sticky {
                return Ok(Holder::Throttle { by: row.owner });
            }
            if let Some(state) = self.live_state(row.owner)? {
                return Ok(Holder::Job(row, state));
            }
            // When it was set aside just now, it has given the key away already.
            if let Some(row) = self.tables.dedup(key)?.filter(|now| now.owner == row.owner) {
                self.hand_over(key, row)?;
            }
        }
        Ok(Holder::Nobody)
    }

    /// The holder of a key, unless its time has run out. A job that waits behind the holder keeps the key held, or
    /// nobody would let that job go ahead.
    fn held_key(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        let now = self.now;
        let held = |row: &DedupRow| row.successor.is_some() || row.until.is_none_or(|until| until > now);
        Ok(self.tables.dedup(key)?.filter(held))
    }

    /// The state of a job that has not ended. One that cannot be read is set aside, and has.
    fn live_state(&mut self, id: JobId) -> Result<Option<State>> {
        let Some(row) = self.tables.find_job(id)? else { return Ok(None) };
        let state = self.readable_record(row)?.map(|record| record.state());
        Ok(state.filter(|state| !state.is_terminal()))
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
        self.hand_over(key, row)
    }

    /// Gives a key to the job that waits behind its holder, and lets that job go ahead; frees it when there is none.
    fn hand_over(&mut self, key: [u8; 16], row: DedupRow) -> Result<()> {
        let Some(successor) = row.successor else {
            return self.tables.put_dedup(key, None);
        };
        let Some(next) = self.tables.find_job(successor)? else {
            return self.tables.put_dedup(key, None);
        };
        // Only damage can make it anything but a job that waits.
        let Some(next) = self.readable_record(next)?.filter(Record::is_held) else {
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
        match self.live_holder(key)? {
            Holder::Job(row, _) if row.owner != record.id => Err(Error::KeyTaken { by: row.owner }),
            Holder::Throttle { by } if by != record.id && self.live_state(by)?.is_some() => Err(Error::KeyTaken { by }),
            // A throttle goes on until its time has run out, whoever comes back meanwhile.
            Holder::Throttle { .. } => Ok(()),
            Holder::Job(..) | Holder::Nobody => self.take_dedup(record, &spec, None),
        }
    }

    /// A job that waits behind another is not made ready by hand.
    pub(super) fn check_not_held(record: &Record, verb: Verb) -> Result<()> {
        if record.is_held() {
            return Err(Error::IllegalTransition { from: State::Scheduled, verb });
        }
        Ok(())
    }
}
