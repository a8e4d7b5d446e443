//! The open operations of a run.

use super::{CancelTarget, CodePlace, NodeId};
use crate::record::{Name, OpKind, Outcome, ParentClosePolicy};
use std::collections::{BTreeMap, HashMap};
use std::task::Waker;
use windlass_core::time::Timestamp;

/// The slot of an operation. Slots are reused, so their order means nothing.
pub(crate) type OpId = u32;

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
    /// When it fires.
    pub(crate) until: Option<Timestamp>,
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
    timers: BTreeMap<(Timestamp, u64), OpId>,
}

impl Ops {
    pub(super) fn insert(&mut self, new: NewOp) -> OpId {
        self.opened += 1;
        self.outstanding += 1;
        let NewOp { kind, name, place, node, waker, number, until, target, policy, token } = new;
        let waker = Some(waker);
        let state = OpState::Open;
        let op = Op { state, waker, number, kind, name, place, node, until, target, policy, token, order: self.opened };
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
            if let Some(until) = until {
                self.timers.insert((until, number), id);
            }
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
        self.unindex(op.number, op.until, op.target);
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
        let (waker, number, until, target) = (op.waker.take(), op.number, op.until.take(), op.target);
        self.outstanding -= usize::from(was_open);
        self.unindex(number, until, target);
        waker
    }

    fn unindex(&mut self, number: Option<u64>, until: Option<Timestamp>, target: Option<CancelTarget>) {
        let Some(number) = number else { return };
        self.by_number.remove(&number);
        if let Some(until) = until {
            self.timers.remove(&(until, number));
        }
        if let Some(target) = target
            && self.targets.get(&target) == Some(&number)
        {
            self.targets.remove(&target);
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

    /// The open timer that fires first: when, and its number.
    pub(super) fn next_timer(&self) -> Option<(Timestamp, u64)> {
        self.timers.first_key_value().map(|(key, _)| *key)
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
