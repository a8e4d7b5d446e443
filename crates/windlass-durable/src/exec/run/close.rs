//! The end of a turn, of a segment and of a run.

use super::Run;
use crate::error::{CallError, cut};
use crate::exec::state::Closing;
use crate::exec::{CANCELS_PER_RECORD_MAX, State, lock};
use crate::record::{Body, End, Entry, Event, mix};
use crate::stuck::Stuck;
use crate::workflow::Failure;

/// The most signals that go into the next segment. They stand in one commit with the end of the segment before.
const SEGMENT_SIGNALS_MAX: usize = 9_998;

impl Run {
    /// Records the cancellations of this turn, and the end when there is one.
    pub(super) fn finish_turn(&mut self) -> Result<(), Stuck> {
        self.collect_tasks();
        let mut state = lock(&self.shared.state);
        if let Some(result) = self.result.take()
            && state.closing.is_none()
        {
            let end = state.end_of(result, self.shared.limits.result_bytes_max);
            let end = state.retried(end);
            // The input was JSON when the code started with it.
            let input = matches!(end, End::Retried { .. }).then(|| Body::from_json(&self.input).ok());
            state.closing = Some(Closing::new(end, input.flatten()));
        }
        let is_first = state.closing.is_some() && !self.shared.queue.is_dead();
        if is_first {
            // Futures that were leaked, tasks, and everything in a segment that continues.
            let gone = (state.give_all_up(), std::mem::take(&mut state.steps));
            drop(state);
            // Wakers of foreign combinators may hold anything: they are dropped without the lock.
            drop(gone);
            self.drop_code();
            state = lock(&self.shared.state);
        }
        state.put_cancels()?;
        if state.closing.is_some() {
            return state.put_end();
        }
        let is_waiting = state.ops.outstanding > 0 || !state.steps.ended.is_empty();
        if self.root.is_some() && !is_waiting && !state.journal.is_replaying() {
            drop(state);
            let place = self.shared.last_place();
            return Err(Stuck::Deadlock(format!(
                "deadlock: after {place} the code waits, and nothing is outstanding that could wake it; \
                 does it await a foreign future, a channel or a lock?"
            )));
        }
        Ok(())
    }
}

impl State {
    fn end_of(&self, result: Result<Body, Failure>, bytes_max: usize) -> End {
        match result {
            Ok(body) if body.len() > bytes_max => {
                End::Failed(CallError::too_large("the result of the workflow", body.len(), bytes_max).message)
            }
            Ok(body) => End::Ok(body),
            Err(failure) if failure.is_cancelled && self.is_late => End::TimedOut(cut(failure.message)),
            Err(failure) if failure.is_cancelled && self.cancel_reason.is_some() => {
                End::Cancelled(cut(failure.message))
            }
            Err(failure) => End::Failed(cut(failure.message)),
        }
    }

    /// A failed attempt is followed by another one, unless it was the last or the run is to end.
    fn retried(&mut self, end: End) -> End {
        let End::Failed(message) = end else { return end };
        if let Some(retried @ End::Retried { .. }) = self.journal.recorded_end() {
            return retried.clone();
        }
        if self.is_ending() {
            return End::Failed(message);
        }
        let attempt = self.failed_attempts + 1;
        let random = mix(self.seed ^ u64::from(attempt));
        match self.retry.delay_ms(attempt, random) {
            Some(ms) => End::Retried { message, attempt: attempt + 1, at: self.call_time().plus_ms(ms) },
            None => End::Failed(message),
        }
    }

    /// The run was cancelled or its time is over.
    const fn is_ending(&self) -> bool {
        self.cancel_reason.is_some() || self.is_late
    }

    /// Records the commands that were cancelled since the last record.
    fn put_cancels(&mut self) -> Result<(), Stuck> {
        let cancels = std::mem::take(&mut self.cancels);
        let numbers: Vec<u64> = cancels.keys().copied().collect();
        for numbers in numbers.chunks(CANCELS_PER_RECORD_MAX) {
            let is_new = !self.journal.is_replaying();
            self.journal.put(Entry::Cancel(numbers.to_vec()), |history, code| history == code)?;
            if is_new {
                let targets = numbers.iter().filter_map(|number| Some((*number, (*cancels.get(number)?)?)));
                self.cancelled.extend(targets);
            }
        }
        Ok(())
    }

    /// Records the end, once nothing is waited for any more.
    fn put_end(&mut self) -> Result<(), Stuck> {
        let Some(Closing { end, cancel_reason, .. }) =
            self.closing.clone().filter(|_| self.waited.is_empty() && self.ended.is_none())
        else {
            return Ok(());
        };
        let at = self.now;
        let end = match end {
            // Its cancellation came while children were waited for.
            End::Retried { message, .. } if self.is_ending() => End::Failed(message),
            end => end,
        };
        if matches!(end, End::Continued { .. } | End::Retried { .. }) {
            let what = if matches!(end, End::Retried { .. }) { "another attempt" } else { "continue_as_new" };
            self.segment_from = self.journal.position();
            let unread = self.unread();
            if unread.len() > SEGMENT_SIGNALS_MAX {
                return Err(Stuck::Misuse(format!(
                    "{what} with {} signals that were not received; at most {SEGMENT_SIGNALS_MAX} go into the next segment: \
                     receive some of them before",
                    unread.len()
                )));
            }
            for (name, message) in unread {
                let event = Event::Signal { name, body: message.body, id: message.id };
                self.journal.put(Entry::Event { at, event }, is_same_message)?;
            }
            // A request to cancel that came while children were waited for is one to the next segment.
            if let Some(reason) = cancel_reason {
                self.journal.put(Entry::Event { at, event: Event::CancelRequested { reason } }, is_same_message)?;
            }
        }
        self.ended = Some(end.clone());
        self.journal.put(Entry::End { at, end }, is_same_end)
    }
}

fn is_same_message(history: &Entry, code: &Entry) -> bool {
    match (history, code) {
        (Entry::Event { event: history, .. }, Entry::Event { event: code, .. }) => history == code,
        _ => false,
    }
}

/// The text of an error may differ between builds.
fn is_same_end(history: &Entry, code: &Entry) -> bool {
    match (history, code) {
        (Entry::End { end: history, .. }, Entry::End { end: code, .. }) => history.name() == code.name(),
        _ => false,
    }
}
