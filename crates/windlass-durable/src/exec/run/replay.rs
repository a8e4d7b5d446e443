//! Replays the history of a segment.

use super::Run;
use crate::exec::lock;
use crate::exec::signals::Origin;
use crate::record::{End, Entry, Event, Record};
use crate::stuck::Stuck;
use windlass_core::time::Timestamp;

impl Run {
    /// Applies all events of the history, and matches everything between them against what the code does.
    pub(super) fn replay(&mut self) -> Result<(), Stuck> {
        while let Some((number, at, event)) = self.next_event()? {
            {
                let state = lock(&self.shared.state);
                if state.ended.is_some() || !state.is_awaited(&event) {
                    let (history, code) = (state.journal.side_of_event(&event), state.waits());
                    let code = state.journal.code_side(code, state.last_place);
                    return Err(Stuck::Mismatch { number, history: Box::new(history), code: Box::new(code) });
                }
            }
            lock(&self.shared.state).arriving = Origin { record: number, item: None };
            self.apply(at, event)?;
            self.settle()?;
        }
        lock(&self.shared.state).journal.forget_replayed();
        Ok(())
    }

    /// Takes the next event from the history, with its number and time. `None` at the end.
    fn next_event(&mut self) -> Result<Option<(u64, Timestamp, Event)>, Stuck> {
        let mut state = lock(&self.shared.state);
        let state = &mut *state;
        loop {
            match state.journal.expected() {
                None => return Ok(None),
                // Unreceived messages and the end of the segment before stand before the start of this one.
                Some(Record { entry: Entry::End { at, end: End::Continued { .. } }, .. }) if !self.has_started => {
                    state.now = state.now.max(*at);
                    state.journal.advance();
                }
                Some(Record { entry: Entry::End { at, end: End::Retried { attempt, at: retry_at, .. } }, .. })
                    if !self.has_started =>
                {
                    state.now = state.now.max(*at);
                    (state.failed_attempts, state.retry_at) = (attempt.saturating_sub(1), Some(*retry_at));
                    state.journal.advance();
                }
                Some(record) if record.is_event() => {
                    let number = state.journal.number();
                    if let Some(Record { entry: Entry::Event { at, event }, .. }) = state.journal.take_expected() {
                        return Ok(Some((number, at, event)));
                    }
                }
                Some(_) => {
                    let waits = state.waits();
                    return Err(state.journal.mismatch(waits, state.last_place));
                }
            }
        }
    }
}
