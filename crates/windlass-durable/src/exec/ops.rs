//! The open operations of a run.

use super::{CancelTarget, CodePlace, NodeId};
use crate::record::{Name, OpKind, Outcome, ParentClosePolicy};
use std::collections::{BTreeMap, HashMap};
use std::task::Waker;
use windlass_core::id::JobId;
use windlass_core::time::Timestamp;

/// The slot of an operation. Slots are reused, so their order means nothing.
pub(crate) type OpId = u32;

/// What a timer of an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKind {
    /// It fires a sleep, or is the `schedule_to_start` of a call.
    Start,
    /// It is the `schedule_to_close` of a call.
    Close,
}

/// A timer: when it fires, the number of its command, and what it does.
pub(crate) type Timer = (Timestamp, u64, TimerKind);

pub(crate) enum OpState {
    Open,
    /// It has ended, and its future has not been polled since.
    Done(Outcome),
}

/// What is needed to open an operation.
pub(crate) struct NewOp {
    pub(crate) kind: OpKind,
    pub(crate) name: Name,
    pub(crate) place: CodePlace,
    pub(crate) node: NodeId,
    pub(crate) waker: Waker,
    /// The number of the command; `None` for operations without one.
    pub(crate) number: Option<u64>,
    /// When it fires, or when a call has to have started.
    pub(crate) until: Option<Timestamp>,
    /// When a call has to have ended.
    pub(crate) close_by: Option<Timestamp>,
    /// The job or the child run.
    pub(crate) target: Option<CancelTarget>,
    pub(crate) policy: ParentClosePolicy,
    /// The token of a promise.
    pub(crate) token: u64,
}

pub(crate) struct Op {
    pub(crate) state: OpState,
    pub(crate) waker: Option<Waker>,
    pub(crate) number: Option<u64>,
    pub(crate) kind: OpKind,
    pub(crate) name: Name,
    pub(crate) place: CodePlace,
    pub(crate) node: NodeId,
    pub(crate) until: Option<Timestamp>,
    pub(crate) close_by: Option<Timestamp>,
    /// The `schedule_to_start` of the call has passed: its job is cancelled unless it was claimed.
    pub(crate) start_expired: bool,
    pub(crate) target: Option<CancelTarget>,
    pub(crate) policy: ParentClosePolicy,
    pub(crate) token: u64,
    /// Counts operations in the order in which they were opened.
    pub(crate) order: u64,
}

impl Op {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, OpState::Open)
    }
}

fn timers_of(number: u64, times: [Option<Timestamp>; 2]) -> impl Iterator<Item = Timer> {
    let kinds = [TimerKind::Start, TimerKind::Close];
    times.into_iter().zip(kinds).filter_map(move |(at, kind)| Some((at?, number, kind)))
}

/// All operations whose futures exist, with their indexes.
#[derive(Default)]
pub(crate) struct Ops {
    slots: Vec<Option<Op>>,
    free: Vec<OpId>,
    opened: u64,
    /// Operations that have not ended.
    pub(super) outstanding: usize,
    by_number: HashMap<u64, OpId>,
    targets: HashMap<CancelTarget, u64>,
    timers: BTreeMap<Timer, OpId>,
}

impl Ops {
    pub(super) fn insert(&mut self, new: NewOp) -> OpId {
        self.opened += 1;
        self.outstanding += 1;
        let NewOp { kind, name, place, node, waker, number, until, close_by, target, policy, token } = new;
        let waker = Some(waker);
        let state = OpState::Open;
        let op = Op {
            state,
            waker,
            number,
            kind,
            name,
            place,
            node,
            until,
            close_by,
            start_expired: false,
            target,
            policy,
            token,
            order: self.opened,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(op);
                id
            }
            None => {
                self.slots.push(Some(op));
                OpId::try_from(self.slots.len() - 1).unwrap_or(OpId::MAX)
            }
        };
        if let Some(number) = number {
            self.by_number.insert(number, id);
            let timers = timers_of(number, [until, close_by]);
            self.timers.extend(timers.map(|timer| (timer, id)));
            if let Some(target) = target {
                self.targets.insert(target, number);
            }
        }
        id
    }

    pub(crate) fn get(&self, id: OpId) -> Option<&Op> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: OpId) -> Option<&mut Op> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    /// Removes an operation from its slot and from all indexes.
    pub(super) fn remove(&mut self, id: OpId) -> Option<Op> {
        let op = self.slots.get_mut(id as usize)?.take()?;
        self.free.push(id);
        self.unindex(op.number, [op.until, op.close_by], op.target);
        if op.is_open() {
            self.outstanding -= 1;
        }
        Some(op)
    }

    /// Ends an operation: it can be found by its slot only. Returns the waker of its future.
    pub(super) fn finish(&mut self, id: OpId, outcome: Outcome) -> Option<Waker> {
        let op = self.slots.get_mut(id as usize)?.as_mut()?;
        let was_open = op.is_open();
        op.state = OpState::Done(outcome);
        // Also when nobody polls the future: a second end must find nothing.
        let (waker, number, target) = (op.waker.take(), op.number, op.target);
        let times = [op.until.take(), op.close_by.take()];
        self.outstanding -= usize::from(was_open);
        self.unindex(number, times, target);
        waker
    }

    fn unindex(&mut self, number: Option<u64>, times: [Option<Timestamp>; 2], target: Option<CancelTarget>) {
        let Some(number) = number else { return };
        self.by_number.remove(&number);
        for timer in timers_of(number, times) {
            self.timers.remove(&timer);
        }
        if let Some(target) = target
            && self.targets.get(&target) == Some(&number)
        {
            self.targets.remove(&target);
        }
    }

    /// The `schedule_to_start` of a call has passed. Returns its job.
    pub(super) fn expire_start(&mut self, number: u64) -> Option<JobId> {
        let op = self.slots.get_mut(*self.by_number.get(&number)? as usize)?.as_mut()?;
        op.start_expired = true;
        if let Some(until) = op.until.take() {
            self.timers.remove(&(until, number, TimerKind::Start));
        }
        match op.target {
            Some(CancelTarget::Job(job)) => Some(job),
            _ => None,
        }
    }

    /// The open operation of a command.
    pub(super) fn find(&self, number: u64) -> Option<OpId> {
        self.by_number.get(&number).copied()
    }

    /// The number of the open command that made this job or child.
    pub(crate) fn number_of(&self, target: &CancelTarget) -> Option<u64> {
        self.targets.get(target).copied()
    }

    /// The jobs and children of open commands.
    pub(super) fn targets(&self) -> impl Iterator<Item = CancelTarget> {
        self.targets.keys().copied()
    }

    /// The timer that fires first, and its operation.
    pub(super) fn next_timer(&self) -> Option<(Timer, OpId)> {
        self.timers.first_key_value().map(|(timer, id)| (*timer, *id))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.slots.iter().flatten()
    }

    /// Open operations with a command, in the order of their numbers.
    pub(super) fn open_commands(&self) -> Vec<OpId> {
        let mut all: Vec<(u64, OpId)> = self.by_number.iter().map(|(number, id)| (*number, *id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let index = self.by_number.len() * 24 + self.targets.len() * 48 + self.timers.len() * 32;
        self.slots.capacity() * size_of::<Option<Op>>() + index
    }
}
