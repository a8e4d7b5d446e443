//! What happens to runs: the ends of their jobs, and messages.

use super::super::Step;
use super::super::rows::{Record, RunRow, RunValue};
use super::super::tables::Tables;
use crate::error::{Error, Result};
use crate::job::{FailureClass, State};
use crate::store::{
    JobEnd, MESSAGE_IDS_KEPT, RUN_CHANGED, RUN_NOT_ENDED, RUN_NOT_STUCK, RUN_TERMINATED, RunItem, RunMessage, RunState,
    UNREAD_MESSAGES_MAX,
};

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
        let (error, class, detail) = match (state, extra.failures.last()) {
            (Some(State::Failed), _) if record.quarantined => {
                (Some("its stored form cannot be read".to_owned()), Some(FailureClass::Quarantined), None)
            }
            (Some(State::Failed), Some(last)) => (Some(last.message.clone()), Some(last.class), last.detail.clone()),
            _ => (None, None, None),
        };
        let succeeded = state == Some(State::Succeeded);
        let end = JobEnd {
            job: record.id,
            state,
            attempt: record.life.attempt,
            claimed_at: record.life.claimed_at,
            at: self.now,
            error,
            class,
            detail,
            outputs: if succeeded { extra.outputs } else { Default::default() },
            result: extra.result.filter(|_| succeeded && before.job_results),
        };
        self.deliver(before.clone(), &before, RunItem::JobEnded(end))
    }

    /// See [`RunStore::send_to_runs`](crate::store::RunStore::send_to_runs).
    pub fn send_to_runs(&mut self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        Ok(messages.into_iter().map(|message| self.send_to_run(message, false)).collect())
    }

    /// A message of a step has room in a full inbox.
    pub(super) fn send_to_run(&mut self, message: RunMessage, is_of_step: bool) -> Result<()> {
        message.check()?;
        let before = self.wanted_run(message.run)?;
        let hash = message.id_hash();
        if let Some(hash) = hash
            && self.tables.has_message_id(before.id, hash)?
        {
            return Ok(());
        }
        check_delivery(&message, &before, is_of_step)?;
        let mut row = before.clone();
        if message.reopens {
            if row.state.is_terminal() {
                self.tables.put_run_value(row.id, RunValue::Result, None)?;
            }
            (row.state, row.stuck, row.finished_at, row.error) = (RunState::Running, None, None, None);
        }
        if message.interrupts {
            row.held = None;
        }
        if message.terminates {
            (row.state, row.stuck, row.held, row.wake_at) = (RunState::Terminated, None, None, None);
            (row.finished_at, row.error) = (Some(self.now), Some(RUN_TERMINATED.to_owned()));
        }
        if let Some(hash) = hash {
            self.tables.put_message_id(row.id, row.message_ids % MESSAGE_IDS_KEPT, hash)?;
            row.message_ids += 1;
        }
        self.deliver(row.clone(), &before, RunItem::Message { at: self.now, id: message.id, body: message.body })?;
        if message.terminates { self.tell_end(&row, None) } else { Ok(()) }
    }

    pub(super) fn deliver(&mut self, mut row: RunRow, before: &RunRow, item: RunItem) -> Result<()> {
        row.unread_messages += u64::from(item.is_message());
        self.tables.append_inbox(row.id, row.inbox_next, item)?;
        row.inbox_next += 1;
        self.put_run(before, row).map(drop)
    }
}

/// Rejects a message that the run does not take as it is now.
fn check_delivery(message: &RunMessage, row: &RunRow, is_of_step: bool) -> Result<()> {
    if let Some(len) = message.expected_history_len {
        let refused = |why: &str| Err(Error::run_refused(row.id, why));
        match row.state.is_terminal() {
            false => return refused(RUN_NOT_ENDED),
            true if row.history_len != len => return refused(RUN_CHANGED),
            true => {}
        }
    }
    if message.only_if_stuck && (row.state.is_terminal() || row.stuck.is_none()) {
        return Err(Error::run_refused(row.id, RUN_NOT_STUCK));
    }
    if row.state.is_terminal() && !message.reopens {
        return Err(Error::run_ended(row.id, row.state));
    }
    if message.needs_room() && !is_of_step && row.unread_messages >= UNREAD_MESSAGES_MAX {
        return Err(Error::inbox_full(row.id, UNREAD_MESSAGES_MAX));
    }
    Ok(())
}
