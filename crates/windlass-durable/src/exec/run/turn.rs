//! Turns: new items in, decisions out.

use super::Run;
use crate::exec::context::PollGuard;
use crate::exec::steps::EndedStep;
use crate::exec::turn::NextSegment;
use crate::exec::{Item, ItemBody, Turn, lock};
use crate::record::{End, Entry, Event, OpKind};
use crate::stuck::Stuck;
use std::task::Waker;
use windlass_core::time::Timestamp;

impl Run {
    /// Applies items, oldest first, and returns what follows from them. Timers that are due are applied between the items, by
    /// their times.
    ///
    /// The first turn of a run whose time has come starts its code; until then, and unless the run is cancelled, messages are
    /// recorded only. The first turn after [`open`](Self::open) also contains what the history does
    /// not have of its last turn; call it, with no items if there are none. Items are taken in their order; when the run ends,
    /// the rest is not taken.
    pub fn turn(&mut self, items: Vec<Item>, now: Timestamp) -> Result<Turn, Stuck> {
        {
            let mut state = lock(&self.shared.state);
            state.steps.may_begin = false;
            if let Some(fault) = state.fault.take() {
                return Err(fault);
            }
        }
        if let Some(reason) = self.shared.queue.foreign() {
            return Err(Stuck::Foreign(reason));
        }
        let starts_at = self.starts_at();
        // The deadline may have passed before the next attempt: then the code starts as late.
        let is_late = items.iter().any(|item| item.body == ItemBody::TimedOut && item.at <= starts_at);
        if !self.has_started && starts_at <= self.clock(now) && !is_late {
            self.record_start(starts_at)?;
        }
        let mut takes = Vec::new();
        for item in items {
            self.fire(item.at.min(now))?;
            if self.has_ended() {
                break;
            }
            let records = lock(&self.shared.state).journal.out.len();
            lock(&self.shared.state).arriving.item = item.number;
            let event = self.event_of(item.body);
            let is_recorded = match event {
                Some(event) => self.record(item.at, event)?,
                None => false,
            };
            takes.extend(item.number.map(|number| (records + usize::from(is_recorded), number)));
        }
        if !self.has_started && self.is_cancelled() {
            // The code sees that, and ends.
            self.record_start(Timestamp::from_ms(0))?;
        }
        self.fire(now)?;
        Ok(self.decided(takes))
    }

    /// When the code starts: its delay, or the time until the next attempt, has passed then.
    pub(super) fn starts_at(&self) -> Timestamp {
        self.created_at.max(lock(&self.shared.state).retry_at.unwrap_or_default())
    }

    fn clock(&self, now: Timestamp) -> Timestamp {
        now.max(lock(&self.shared.state).clock)
    }

    fn is_cancelled(&self) -> bool {
        let state = lock(&self.shared.state);
        state.is_late || state.cancel_reason.is_some()
    }

    fn record_start(&mut self, at: Timestamp) -> Result<(), Stuck> {
        let number = self.history_len();
        let seed = self.shared.host.seed(self.shared.id, number);
        self.record(at, Event::Started { seed }).map(drop)
    }

    /// Starts and polls local steps, and returns what follows from their ends.
    ///
    /// Call it only when everything that the run decided before is committed: a step begins after the commit of what led to it.
    /// `now` is the time of the ends.
    pub fn poll_steps(&mut self, now: Timestamp) -> Result<Turn, Stuck> {
        let wakers = self.step_wakers();
        let here = PollGuard::enter(&self.shared, &self.root_scope, 0);
        wakers.into_iter().for_each(Waker::wake);
        drop(here);
        if !self.has_ended() {
            self.settle()?;
        }
        lock(&self.shared.state).steps.may_begin = false;
        while let Some(EndedStep { key, outcome, place }) = self.next_ended_step() {
            self.record(now, Event::Stepped { key, outcome, place: place.into() })?;
        }
        Ok(self.decided(Vec::new()))
    }

    /// The wakers of the steps that have to be polled, in the order in which the steps were made.
    fn step_wakers(&mut self) -> Vec<Waker> {
        let mut state = lock(&self.shared.state);
        state.steps.may_begin = true;
        let mut ids = std::mem::take(&mut state.steps.unbegun);
        ids.extend(self.shared.queue.take_steps());
        // Slots are reused: of what was woken, only steps count, each once.
        let is_step = |id: &u32| state.ops.get(*id).is_some_and(|op| op.kind == OpKind::Run);
        ids.retain(is_step);
        ids.sort_by_key(|id| state.ops.get(*id).map(|op| op.order));
        ids.dedup();
        ids.into_iter().filter_map(|id| state.ops.get(id)?.waker.clone()).collect()
    }

    fn next_ended_step(&mut self) -> Option<EndedStep> {
        let mut state = lock(&self.shared.state);
        if state.ended.is_some() { None } else { state.steps.ended.pop_front() }
    }

    /// Polls everything without a reason and returns how many records followed from it: 0, or the executor or the code has an
    /// error. For tests.
    pub fn poke(&mut self) -> Result<usize, Stuck> {
        let state = lock(&self.shared.state);
        let wakers: Vec<Waker> = state.ops.iter().filter_map(|op| op.waker.clone()).collect();
        let before = state.journal.out.len();
        drop(state);
        let here = PollGuard::enter(&self.shared, &self.root_scope, 0);
        wakers.into_iter().rev().for_each(Waker::wake);
        Waker::from(self.root_waker.clone()).wake();
        self.tasks.values().for_each(|task| Waker::from(task.waker.clone()).wake());
        drop(here);
        self.settle()?;
        Ok(lock(&self.shared.state).journal.out.len() - before)
    }

    fn has_ended(&self) -> bool {
        lock(&self.shared.state).ended.is_some()
    }

    /// Records an event and what follows from it. False, and no record, when nobody waits for it.
    fn record(&mut self, at: Timestamp, event: Event) -> Result<bool, Stuck> {
        {
            let mut state = lock(&self.shared.state);
            if !state.is_awaited(&event) {
                return Ok(false);
            }
            let at = state.now.max(at);
            state.arriving.record = state.journal.len;
            state.journal.push(Entry::Event { at, event: event.clone() });
        }
        self.apply(at, event)?;
        self.settle()?;
        Ok(true)
    }

    /// Fires the timers that are due at `until`, by their times.
    fn fire(&mut self, until: Timestamp) -> Result<(), Stuck> {
        while !self.has_ended() {
            let state = lock(&self.shared.state);
            let Some((timer, id)) = state.ops.next_timer().filter(|((at, ..), _)| *at <= until) else { break };
            let event = state.timer_event(timer, id);
            drop(state);
            self.record(timer.0, event)?;
        }
        Ok(())
    }

    fn decided(&mut self, takes: Vec<(usize, u64)>) -> Turn {
        let mut state = lock(&self.shared.state);
        let (first, records) = state.journal.take_out();
        let starts = std::mem::take(&mut state.starts);
        let cancels = std::mem::take(&mut state.cancelled);
        let unclaimed = std::mem::take(&mut state.unclaimed);
        let ended = state.ended.clone();
        let next = state.closing.as_ref().and_then(|closing| closing.next_input.as_ref()).and_then(|input| {
            let (kind, starts_at) = match &ended {
                Some(End::Continued { kind, .. }) => (kind.clone(), None),
                Some(End::Retried { at, .. }) => (self.workflow.kind(), Some(*at)),
                _ => return None,
            };
            Some(NextSegment { kind, input: input.to_bytes(), from: state.segment_from, starts_at })
        });
        drop(state);
        let wake = self.next_timer();
        Turn { first, records, starts, cancels, unclaimed, takes, wake, ended, next }
    }
}
