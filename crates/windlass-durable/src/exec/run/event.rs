//! Applies events to the operations of a run.

use super::Run;
use crate::error::{CallError, ErrorClass};
use crate::exec::context::{PollGuard, panic_text};
use crate::exec::ops::Timer;
use crate::exec::signals::Message;
use crate::exec::turn::limited;
use crate::exec::{CancelTarget, Item, ItemBody, OpId, State, TimerKind, lock};
use crate::record::{Body, Event, Name, OpKind, Outcome};
use crate::stuck::Stuck;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::Waker;
use windlass_core::time::Timestamp;

/// A message as an item.
pub(super) fn item_of(at: Timestamp, name: &Name, message: Message) -> Item {
    let Message { body, id, origin: _ } = message;
    Item { number: None, at, body: ItemBody::Signal { name: name.to_string(), body, id } }
}

impl Run {
    /// The event of an item; `None` when nobody waits for it.
    pub(super) fn event_of(&self, body: ItemBody) -> Option<Event> {
        let bytes_max = self.shared.limits.result_bytes_max;
        let number_of = |target: CancelTarget| {
            let state = lock(&self.shared.state);
            let waited = || state.waited.iter().find(|(_, waited)| **waited == target).map(|(number, _)| *number);
            state.ops.number_of(&target).or_else(waited)
        };
        Some(match body {
            ItemBody::JobEnded { job, outcome } => {
                let of = number_of(CancelTarget::Job(job))?;
                let outcome = lock(&self.shared.state).expired_start(of, outcome);
                Event::Done { of, outcome: limited(outcome, bytes_max) }
            }
            ItemBody::ChildEnded { run, outcome } => {
                Event::Done { of: number_of(CancelTarget::Child(run))?, outcome: limited(outcome, bytes_max) }
            }
            ItemBody::Signal { name, body, id } => Event::Signal { name: name.into(), body, id },
            ItemBody::Resolved { token, body } => Event::Resolved { token, body },
            ItemBody::CancelRequested { reason } => Event::CancelRequested { reason },
            ItemBody::TimedOut => Event::TimedOut,
            ItemBody::CapRaised { cap } => Event::CapRaised { cap },
            ItemBody::StepEnded { key, outcome, place } => Event::Stepped { key, outcome, place },
        })
    }

    /// Applies one event that is awaited.
    pub(super) fn apply(&mut self, at: Timestamp, event: Event) -> Result<(), Stuck> {
        if let Event::Started { seed } = event {
            return self.start(at, seed);
        }
        let wakers = {
            let mut state = lock(&self.shared.state);
            state.now = state.now.max(at);
            let is_message = matches!(event, Event::Signal { .. } | Event::Resolved { .. });
            // The time of a message that was dropped has passed all the same.
            if is_message && state.journal.is_discarded(state.arriving.record) {
                return Ok(());
            }
            state.apply(event)
        };
        let _here = PollGuard::enter(&self.shared, &self.root_scope, 0);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn start(&mut self, at: Timestamp, seed: u64) -> Result<(), Stuck> {
        {
            let mut state = lock(&self.shared.state);
            state.now = state.now.max(at);
            state.seed = seed;
        }
        self.has_started = true;
        let wf = crate::wf::Wf::new(self.shared.clone());
        // A hand-written `run` may make operations before it returns its future.
        let here = PollGuard::enter(&self.shared, &self.root_scope, 0);
        let root = catch_unwind(AssertUnwindSafe(|| self.workflow.start(wf, &self.input)));
        drop(here);
        let root = root.map_err(|panic| Stuck::Panic(panic_text(panic.as_ref())))?;
        self.root = Some(root.map_err(|error| Stuck::Decode(format!("the input does not decode: {error}")))?);
        self.root_waker.queued.store(true, Ordering::Release);
        self.shared.queue.push_task(0);
        Ok(())
    }
}

impl State {
    /// False when nobody waits for the event: it is taken without a record.
    pub(super) fn is_awaited(&self, event: &Event) -> bool {
        match event {
            Event::Done { of, .. } => self.waited.contains_key(of) || self.ops.find(*of).is_some(),
            Event::Fired { of } | Event::StartExpired { of } | Event::Expired { of, .. } => {
                self.ops.find(*of).is_some()
            }
            Event::Stepped { key, .. } => self.steps.open.contains_key(key),
            Event::Resolved { token, .. } => matches!(self.promises.get(token), Some(None)),
            Event::TimedOut => !self.is_late,
            Event::Started { .. } | Event::Signal { .. } | Event::CancelRequested { .. } | Event::CapRaised { .. } => {
                true
            }
        }
    }

    /// The event of a timer that is due.
    pub(super) fn timer_event(&self, (at, of, kind): Timer, id: OpId) -> Event {
        match (kind, self.ops.get(id).map(|op| op.kind)) {
            (TimerKind::Start, Some(OpKind::Call)) => Event::StartExpired { of },
            (TimerKind::Start, _) => Event::Fired { of },
            (TimerKind::Close, _) => {
                let message = format!("schedule_to_close: the call did not end by {at}");
                Event::Expired { of, error: CallError::new(ErrorClass::TimedOut, message) }
            }
        }
    }

    /// A job that was cancelled without an attempt after the `schedule_to_start` of its call has timed out.
    fn expired_start(&self, of: u64, outcome: Outcome) -> Outcome {
        let has_expired = || self.ops.find(of).and_then(|id| self.ops.get(id)).is_some_and(|op| op.start_expired);
        match outcome {
            Err(error) if error.is_cancelled() && error.attempts == 0 && has_expired() => {
                let message = "schedule_to_start: no worker had claimed the job in time";
                Err(CallError::new(ErrorClass::TimedOut, message))
            }
            outcome => outcome,
        }
    }

    /// Changes operations as the event says, and returns the wakers of their futures.
    fn apply(&mut self, event: Event) -> Vec<Waker> {
        let waker = match event {
            Event::Done { of, .. } if self.waited.remove(&of).is_some() => None,
            Event::Done { of, outcome } => self.ops.find(of).and_then(|id| self.finish(id, outcome)),
            Event::Fired { of } => self.ops.find(of).and_then(|id| self.finish(id, Ok(Body::null()))),
            Event::StartExpired { of } => {
                let job = self.ops.expire_start(of);
                // The commit of this record cancels the job. A replay has no such commit.
                if let Some(job) = job.filter(|_| !self.journal.is_replaying()) {
                    self.unclaimed.insert(of, job);
                }
                None
            }
            Event::Expired { of, error } => self.ops.find(of).and_then(|id| {
                let target = self.ops.get(id).and_then(|op| op.target);
                self.cancels.insert(of, target);
                self.finish(id, Err(error))
            }),
            Event::Stepped { key, outcome, .. } => self.steps.open.remove(&key).and_then(|id| self.finish(id, outcome)),
            Event::Signal { name, body, id } => {
                let message = Message { body, id, origin: self.arriving };
                self.hand_over(&name, message, false)
            }
            Event::Resolved { token, body } => {
                self.promise_origins.insert(token, self.arriving);
                self.promises.insert(token, Some(body));
                let op = self.promise_ops.get(&token).copied();
                op.and_then(|id| self.finish(id, Ok(Body::null())))
            }
            Event::CancelRequested { reason } => {
                if let Some(closing) = &mut self.closing {
                    closing.cancel_reason.get_or_insert_with(|| reason.clone());
                }
                self.cancel_reason.get_or_insert(reason);
                return self.cancel_run();
            }
            Event::TimedOut => {
                self.is_late = true;
                return self.cancel_run();
            }
            Event::Started { .. } | Event::CapRaised { .. } => None,
        };
        waker.into_iter().collect()
    }
}
