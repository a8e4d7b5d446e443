//! What happens to runs: the ends of their jobs, and messages.

use super::super::Step;
use super::super::rows::{Record, RunRow};
use super::super::tables::Tables;
use crate::error::{Error, Result};
use crate::job::State;
use crate::store::{JobEnd, RUN_CHANGED, RUN_NOT_ENDED, RunItem, RunMessage, RunState};

impl<T: Tables> Step<'_, T> {
    /// Tells the run of a job that the job has ended, or is gone before it could.
    pub(in super::super) fn tell_run(&mut self, record: &Record, state: Option<State>) -> Result<()> {
        let Some(run) = record.run else { return Ok(()) };
        let before = match self.tables.run(run) {
            Ok(Some(row)) if !row.state.is_terminal() => row,
            // It has ended, or is gone, or cannot be read: nobody wants to know.
            Ok(_) | Err(Error::Corrupt { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let extra = self.readable(record.row)?;
        let error = match state {
            Some(State::Failed) if record.quarantined => Some("its stored form cannot be read".to_owned()),
            Some(State::Failed) => extra.failures.last().map(|failure| failure.message.clone()),
            _ => None,
        };
        let end = JobEnd {
            job: record.id,
            state,
            attempt: record.life.attempt,
            claimed_at: record.life.claimed_at,
            at: self.now,
            error,
            outputs: if state == Some(State::Succeeded) { extra.outputs } else { Default::default() },
        };
        self.deliver(before.clone(), &before, RunItem::JobEnded(end))
    }

    /// See [`RunStore::send_to_runs`](crate::store::RunStore::send_to_runs).
    pub fn send_to_runs(&mut self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        Ok(messages.into_iter().map(|message| self.send_to_run(message)).collect())
    }

    pub(super) fn send_to_run(&mut self, message: RunMessage) -> Result<()> {
        message.check()?;
        let before = self.wanted_run(message.run)?;
        let mut row = before.clone();
        if let Some(len) = message.expected_history_len {
            let refused = |why: &str| Err(Error::run_refused(before.id, why));
            match row.state.is_terminal() {
                false => return refused(RUN_NOT_ENDED),
                true if row.history_len != len => return refused(RUN_CHANGED),
                true => {}
            }
        }
        if row.rests() && !message.reopens {
            return Err(match &row.stuck {
                Some(stuck) if !row.state.is_terminal() => Error::run_stuck(row.id, stuck),
                _ => Error::run_ended(row.id, row.state),
            });
        }
        if message.reopens {
            (row.state, row.stuck, row.finished_at) = (RunState::Running, None, None);
        }
        if message.interrupts {
            row.held = None;
        }
        self.deliver(row, &before, RunItem::Message { at: self.now, body: message.body })
    }

    fn deliver(&mut self, mut row: RunRow, before: &RunRow, item: RunItem) -> Result<()> {
        self.tables.append_inbox(row.id, row.inbox_next, item)?;
        row.inbox_next += 1;
        self.put_run(before, row).map(drop)
    }
}
