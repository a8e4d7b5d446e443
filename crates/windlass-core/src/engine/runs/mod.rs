//! Runs: created, claimed, changed by fenced steps.

mod claim;
mod commit;
mod create;
mod inbox;
mod look;
mod taken;

use super::enqueue::Prepared;
use super::rows::{Record, RunRow, RunValue};
use super::tables::Tables;
use super::{Ended, Step};
use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::payload::Payload;
use crate::store::{ChangeOp, FeedEvent, RunChange, RunCreated, RunEnd, RunItem, RunSegment, RunStep, child_refused};
use bytes::Bytes;
use serde::Serialize;
use std::sync::Arc;

pub use commit::PreparedCommit;
pub use create::PreparedRun;

/// A step that was checked, and whose jobs and runs were.
#[derive(Clone, Debug)]
struct PreparedStep {
    /// The step without its jobs and runs.
    step: RunStep,
    jobs: Vec<Result<Prepared>>,
    runs: Vec<PreparedRun>,
}

impl PreparedStep {
    fn new(mut step: RunStep) -> Self {
        let jobs = Prepared::known(std::mem::take(&mut step.jobs));
        let runs = std::mem::take(&mut step.runs);
        Self { step, jobs, runs: runs.into_iter().map(PreparedRun::new).collect() }
    }
}

/// A step of which nothing may be refused any more.
struct AcceptedStep {
    step: RunStep,
    jobs: Vec<Prepared>,
    runs: Vec<PreparedRun>,
}

fn to_json(value: &impl Serialize) -> Result<Bytes> {
    let text = serde_json::to_vec(value).map_err(|error| Error::invalid("value", error.to_string()))?;
    Ok(text.into())
}

impl<T: Tables> Step<'_, T> {
    /// The step, if all of its jobs can be enqueued.
    fn accept(&mut self, prepared: PreparedStep) -> Result<AcceptedStep> {
        let PreparedStep { step, jobs, runs } = prepared;
        if let Some(refused) = self.verdicts(&jobs).into_iter().find_map(Result::err) {
            return Err(refused);
        }
        Ok(AcceptedStep { step, jobs: jobs.into_iter().collect::<Result<_>>()?, runs })
    }

    /// Applies what was decided. Nothing may be refused here any more. `settle` says what becomes of the lease and of the inbox.
    fn make_step(
        &mut self,
        before: RunRow,
        accepted: AcceptedStep,
        settle: impl FnOnce(&mut Self, &mut RunRow),
    ) -> Result<u64> {
        let id = before.id;
        let AcceptedStep { mut step, jobs, runs } = accepted;
        // Whatever is cancelled or refused, a run that ends at once, and a message to itself change the run.
        let cancels = !step.cancel.is_empty() || !step.cancel_unclaimed.is_empty();
        let told = cancels || !step.messages.is_empty() || !runs.is_empty();
        self.make_others(id, &mut step, jobs, runs)?;
        // Only now: whatever was cancelled has left word in the inbox.
        let before = if told { self.wanted_run(id)? } else { before };
        let ends = step.state.is_terminal() && !before.state.is_terminal();
        let mut row = before.clone();
        self.add_entries(&mut row, step.history, step.segment)?;
        if let Some(labels) = step.labels {
            row.labels = Arc::new(labels);
        }
        if let Some(published) = &step.published {
            self.tables.put_run_value(id, RunValue::Published, Some(to_json(published)?))?;
        }
        row.state = step.state;
        row.stuck = step.stuck;
        row.summary = step.summary.into();
        row.stall_count = 0;
        row.wake_at = step.wake.map(|due| due.resolve(self.now)).filter(|_| !row.state.is_terminal());
        if ends {
            row.finished_at = Some(self.now);
            row.error = step.error;
        }
        settle(self, &mut row);
        if ends {
            self.tables.trim_inbox(id, row.inbox_first, row.inbox_next)?;
            (row.inbox_first, row.inbox_holes, row.unread_messages) = (row.inbox_next, 0, 0);
        }
        let history_len = self.put_run(&before, row.clone())?;
        if ends {
            self.tell_end(&row, step.result)?;
        }
        Ok(history_len)
    }

    /// The part of a step that concerns jobs and other runs.
    fn make_others(
        &mut self,
        id: RunId,
        step: &mut RunStep,
        jobs: Vec<Prepared>,
        runs: Vec<PreparedRun>,
    ) -> Result<()> {
        // A step may cancel the jobs that it starts.
        for job in jobs {
            self.enqueue_one(job)?;
        }
        for run in runs {
            self.create_child(id, run)?;
        }
        for job in std::mem::take(&mut step.cancel) {
            self.cancel_job_of(id, job, |_| true)?;
        }
        for job in std::mem::take(&mut step.cancel_unclaimed) {
            self.cancel_job_of(id, job, |record| record.life.claimed_at.is_none())?;
        }
        for message in std::mem::take(&mut step.messages) {
            match self.send_to_run(message, true) {
                Ok(()) | Err(Error::NotFound { .. } | Error::RunRefused { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Cancels a job of a run if it is there, readable, and has not ended.
    fn cancel_job_of(&mut self, run: RunId, job: JobId, allows: impl Fn(&Record) -> bool) -> Result<()> {
        let cancelled = self.wanted(job).and_then(|record| {
            match record.run == Some(run) && !record.quarantined && allows(&record) {
                true => self.change_record(&record, ChangeOp::Cancel).map(drop),
                false => Ok(()),
            }
        });
        match cancelled {
            Ok(()) | Err(Error::NotFound { .. } | Error::IllegalTransition { .. } | Error::Corrupt { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates a run of a step. The parent gets an item if that is refused.
    fn create_child(&mut self, parent: RunId, prepared: PreparedRun) -> Result<()> {
        let child = prepared.id();
        let refusal = match self.create_run(prepared) {
            Ok(RunCreated::Created | RunCreated::Restarted) => return Ok(()),
            Ok(RunCreated::Existing) => Error::RunTaken { run: child },
            // The store has failed, and the whole step fails with it.
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => error,
        };
        let before = self.wanted_run(parent)?;
        self.deliver(before.clone(), &before, child_refused(child, &refusal))
    }

    /// Adds the entries of a step to a history, and begins a new segment if the step says so.
    fn add_entries(&mut self, row: &mut RunRow, entries: Vec<Bytes>, segment: Option<RunSegment>) -> Result<()> {
        let bytes = |entries: &[Bytes]| entries.iter().map(|entry| entry.len() as u64).sum::<u64>();
        let first = row.history_len;
        row.history_len += entries.len() as u64;
        match segment {
            Some(RunSegment { kind, input, entries_before }) => {
                let of_new = entries.get(entries_before as usize..).unwrap_or_default();
                row.kind = kind;
                row.segment_from = first + u64::from(entries_before);
                row.segment_bytes = input.len() as u64 + bytes(of_new);
                self.tables.put_run_input(row.id, input)?;
            }
            None => row.segment_bytes = row.segment_bytes.saturating_add(bytes(&entries)),
        }
        self.tables.append_history(row.id, first, entries)
    }

    /// Keeps the result of a run that has ended, and delivers its end to its parent.
    fn tell_end(&mut self, row: &RunRow, result: Option<Payload>) -> Result<()> {
        self.effects.ended.push(Ended::Run(row.id));
        if let Some(result) = &result {
            self.tables.put_run_value(row.id, RunValue::Result, Some(to_json(result)?))?;
        }
        let Some(parent) = row.parent else { return Ok(()) };
        let end = RunEnd { run: row.id, state: row.state, at: self.now, result, error: row.error.clone() };
        match self.tables.run(parent) {
            Ok(Some(before)) if !before.state.is_terminal() => {
                self.deliver(before.clone(), &before, RunItem::RunEnded(end))
            }
            // It has ended, or is gone, or cannot be read: nobody wants to know.
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a run, gives it its place among those that have something to do, and tells of it. Answers the length of its
    /// history.
    fn put_run(&mut self, before: &RunRow, mut row: RunRow) -> Result<u64> {
        row.changed_at = self.now;
        let has_work = row.has_items() || row.is_due(self.now);
        if row.held.is_some() || !row.is_claimable(self.now) || !has_work {
            row.ready = None;
        } else if row.ready.is_none() {
            row.ready = Some(self.tables.next_seq()?);
            self.effects.runs = true;
        }
        let change = RunChange { run: row.id, state: Some(row.state), history_len: row.history_len };
        if before.history_len != row.history_len || before.state != row.state || before.stuck != row.stuck {
            self.events.push(FeedEvent::Run(change));
        }
        self.tables.put_run(Some(before), &row)?;
        Ok(row.history_len)
    }

    /// The run of this id, or `NotFound`.
    fn wanted_run(&mut self, id: RunId) -> Result<RunRow> {
        self.tables.run(id)?.ok_or_else(|| Error::run_not_found(id))
    }
}
