//! The state that a run shares with the futures of its code.

use super::cancel_tree::CancelTree;
use super::journal::{Asked, Journal, Replayed};
use super::ops::Ops;
use super::signals::{Message, Origin, SignalQueue};
use super::steps::Steps;
use super::wakers::TaskId;
use super::{BoxFuture, CancelTarget, CodePlace, NewOp, NodeId, Op, OpId, OpState, Scope, Start};
use crate::error::CallError;
use crate::record::{Body, Command, End, Entry, Key, Name, OpKind, Outcome, ParentClosePolicy, Request};
use crate::retry::RunRetry;
use crate::stuck::{Stuck, Unreadable};
use crate::wf::Wf;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use windlass_core::id::JobId;
use windlass_core::time::Timestamp;

/// A compensation of a saga.
pub(crate) type Undo = Box<dyn FnOnce(Wf) -> BoxFuture<'static, Result<(), CallError>> + Send>;

/// A task of the run that waits to be taken over by the executor.
pub(crate) struct Spawned {
    pub(crate) id: TaskId,
    pub(crate) scope: Arc<Scope>,
    pub(crate) node: NodeId,
    pub(crate) future: BoxFuture<'static, ()>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) ops: Ops,
    pub(crate) tree: CancelTree,
    pub(super) journal: Journal,
    pub(crate) signals: HashMap<Name, SignalQueue>,
    /// Where the message comes from that was received last.
    pub(crate) received: Origin,
    /// Where the message comes from whose event is applied.
    pub(super) arriving: Origin,
    /// Where the values of promises come from, by token.
    pub(crate) promise_origins: HashMap<u64, Origin>,
    /// Promises by token, with their values.
    pub(crate) promises: HashMap<u64, Option<Body>>,
    /// Futures that wait for promises, by token.
    pub(crate) promise_ops: HashMap<u64, OpId>,
    pub(crate) steps: Steps,
    /// Compensations of sagas, by the number of the saga.
    pub(crate) undo: Vec<Vec<Undo>>,
    pub(crate) spawned: Vec<Spawned>,
    pub(crate) aborted: Vec<TaskId>,
    pub(super) last_task: TaskId,
    /// Commands that were cancelled since the last record, with what has to be cancelled outside.
    pub(super) cancels: BTreeMap<u64, Option<CancelTarget>>,
    /// The same for the records of this turn.
    pub(super) cancelled: BTreeMap<u64, CancelTarget>,
    /// Children that must end before the run does, by number.
    pub(super) waited: BTreeMap<u64, CancelTarget>,
    pub(super) starts: Vec<Start>,
    /// Jobs of this turn that are cancelled unless they were claimed, by the number of the command.
    pub(super) unclaimed: BTreeMap<u64, JobId>,
    pub(crate) now: Timestamp,
    /// The time of the store, as far as it is known. It may be ahead of `now` when the run catches up.
    pub(super) clock: Timestamp,
    pub(crate) seed: u64,
    /// Attempts of the code before this segment that failed.
    pub(crate) failed_attempts: u32,
    pub(super) retry: RunRetry,
    /// When the code of this attempt starts, if it is not the first one.
    pub(super) retry_at: Option<Timestamp>,
    pub(crate) fault: Option<Stuck>,
    /// The reason of the first request to cancel the run.
    pub(super) cancel_reason: Option<String>,
    pub(super) is_late: bool,
    /// How the run ends once everything that it waits for has ended.
    pub(crate) closing: Option<Closing>,
    pub(super) ended: Option<End>,
    /// The number of the first record of the next segment.
    pub(super) segment_from: u64,
    /// The last place at which the code used its `Wf`.
    pub(super) last_place: Option<CodePlace>,
}

/// A decided end.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    pub(crate) end: End,
    /// The input of the next segment.
    pub(crate) next_input: Option<Body>,
    /// Why the run was asked to stop since.
    pub(crate) cancel_reason: Option<String>,
}

impl Closing {
    pub(crate) const fn new(end: End, next_input: Option<Body>) -> Self {
        Self { end, next_input, cancel_reason: None }
    }
}

impl State {
    /// True when nothing that the code does counts any more.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.is_some() || self.closing.is_some()
    }

    /// The message that was received last, for the reason of a fault: `message 5 (record 12)`. [`Unreadable`] reads it.
    ///
    /// [`Unreadable`]: crate::Unreadable
    pub(crate) fn unreadable(&mut self, origin: Origin) -> Unreadable {
        let Origin { record, item } = origin;
        Unreadable { item, record: Some(record), was_received: self.journal.is_replaying() }
    }

    pub(crate) fn set_fault(&mut self, fault: Stuck) {
        self.fault.get_or_insert(fault);
    }

    /// True when the next record of the history is the command with this key.
    pub(crate) fn expects(&mut self, key: &Key) -> bool {
        matches!(self.journal.expected().map(|record| &record.entry), Some(Entry::Command(command)) if command.key == *key)
    }

    /// The time from which deadlines of calls are counted. A run that catches up after an outage must not make calls whose
    /// deadlines have passed already.
    pub(crate) fn call_time(&self) -> Timestamp {
        self.now.max(self.clock)
    }

    /// The number of the next new record.
    pub(crate) fn next_number(&self) -> u64 {
        self.journal.len
    }

    /// Finds a command of the code in the history, or returns the number of the new one.
    pub(crate) fn replay_command(&mut self, key: &Key, hash: u32, place: CodePlace) -> Replayed {
        if self.is_over() {
            return Replayed::Wrong;
        }
        match self.journal.command(&Asked { key, hash, place }) {
            Ok(replayed) => replayed,
            Err(fault) => {
                self.set_fault(fault);
                Replayed::Wrong
            }
        }
    }

    /// Records a new command, and what has to be started with it.
    pub(crate) fn add_command(&mut self, command: Command, start: Option<Start>) {
        self.journal.push(Entry::Command(command));
        self.starts.extend(start);
    }

    pub(crate) fn patched(&mut self, key: Key) -> bool {
        if self.journal.has_patch(&key) {
            return true;
        }
        if self.is_over() || self.journal.is_replaying() {
            return false;
        }
        self.journal.add_patch(key);
        true
    }

    pub(crate) fn open(&mut self, new: NewOp) -> OpId {
        let node = new.node;
        let id = self.ops.insert(new);
        self.tree.insert_op(node, id);
        id
    }

    /// Removes an operation.
    pub(crate) fn close(&mut self, id: OpId) -> Option<Op> {
        let op = self.ops.remove(id)?;
        self.tree.remove_op(op.node, id);
        match op.kind {
            OpKind::Recv => {
                if let Some(queue) = self.signals.get_mut(&op.name) {
                    if op.is_open() {
                        queue.waiting.retain(|waiting| *waiting != id);
                    } else if let Some((_, origin)) = queue.handed.remove(&id) {
                        self.received = origin;
                    }
                }
            }
            OpKind::Promise => drop(self.promise_ops.remove(&op.token)),
            _ => {}
        }
        Some(op)
    }

    /// The future of an operation was dropped. Returns the waker of a receiver that inherits its message.
    pub(crate) fn abandon(&mut self, id: OpId) -> Option<Waker> {
        let handed = self.ops.get(id).filter(|op| op.kind == OpKind::Recv).map(|op| op.name.clone());
        let handed = handed.and_then(|name| self.signals.get_mut(&name)?.handed.remove(&id));
        let op = self.close(id)?;
        match op.state {
            OpState::Open => {
                self.give_up(op.number, op.target, op.policy);
                None
            }
            OpState::Done(Ok(body)) if op.kind == OpKind::Recv => {
                // The message was handed to it and not received: it goes to the next receiver, or back to the front.
                let (id, origin) = handed.unwrap_or_default();
                let message = Message { body, id, origin };
                self.hand_over(&op.name, message, true)
            }
            OpState::Done(_) => None,
        }
    }

    /// The future of a command is gone or cancelled: the command is cancelled, or left to its parent-close policy.
    fn give_up(&mut self, number: Option<u64>, target: Option<CancelTarget>, policy: ParentClosePolicy) {
        let Some(number) = number else { return };
        match (policy, target) {
            (ParentClosePolicy::Abandon, _) => {}
            (ParentClosePolicy::Wait, Some(target)) => drop(self.waited.insert(number, target)),
            _ => drop(self.cancels.insert(number, target)),
        }
    }

    /// Gives a message to the receiver that waits longest, from the moment the message is applied. If the message were left to
    /// the receiver that is polled next, one that is held and not polled would keep it from the others, and a poll for another
    /// reason (a local step) would make progress that no event explains.
    pub(super) fn hand_over(&mut self, name: &Name, message: Message, to_front: bool) -> Option<Waker> {
        let queue = self.signals.entry(name.clone()).or_default();
        if let Some(id) = queue.waiting.pop_front() {
            queue.handed.insert(id, (message.id, message.origin));
            return self.finish(id, Ok(message.body));
        }
        match to_front {
            true => queue.ready.push_front(message),
            false => queue.ready.push_back(message),
        }
        None
    }

    pub(super) fn finish(&mut self, id: OpId, outcome: Outcome) -> Option<Waker> {
        self.last_place = self.ops.get(id).map(|op| op.place).or(self.last_place);
        self.ops.finish(id, outcome)
    }

    /// Cancels a scope: all open operations in it end. The wakers must be called without the lock.
    pub(crate) fn cancel_scope(&mut self, node: NodeId) -> Vec<Waker> {
        let mut ids = self.tree.cancel(node);
        // By the order in which they were opened, not by that of the slots.
        ids.sort_by_key(|id| self.ops.get(*id).map(|op| op.order));
        let mut wakers = Vec::new();
        for id in ids {
            let Some(op) = self.ops.get(id).filter(|op| op.is_open()) else { continue };
            let (number, target, policy) = (op.number, op.target, op.policy);
            if op.kind == OpKind::Recv
                && let Some(queue) = self.signals.get_mut(&op.name)
            {
                queue.waiting.retain(|waiting| *waiting != id);
            }
            self.give_up(number, target, policy);
            wakers.extend(self.ops.finish(id, Err(CallError::cancelled())));
        }
        wakers
    }

    /// Cancels the run.
    pub(super) fn cancel_run(&mut self) -> Vec<Waker> {
        let wakers = self.cancel_scope(0);
        let waited: Vec<_> = self.waited.iter().map(|(number, target)| (*number, Some(*target))).collect();
        self.cancels.extend(waited);
        wakers
    }

    /// Gives all open commands up, and moves messages that were handed and not received back to the front.
    /// Returns the operations.
    pub(super) fn give_all_up(&mut self) -> Ops {
        for id in self.ops.open_commands() {
            if let Some(op) = self.ops.get(id) {
                let (number, target, policy) = (op.number, op.target, op.policy);
                self.give_up(number, target, policy);
            }
        }
        let mut handed = self.handed();
        handed.reverse();
        for (name, message) in handed {
            self.signals.entry(name).or_default().ready.push_front(message);
        }
        self.tree = CancelTree::default();
        for queue in self.signals.values_mut() {
            queue.waiting.clear();
            queue.handed.clear();
        }
        std::mem::take(&mut self.ops)
    }

    /// Messages that were handed to receivers whose futures have not been polled since, oldest first.
    pub(super) fn handed(&self) -> Vec<(Name, Message)> {
        let mut handed: Vec<(u64, Name, Message)> = Vec::new();
        for (name, queue) in &self.signals {
            for (id, (message_id, origin)) in &queue.handed {
                if let Some(Op { state: OpState::Done(Ok(body)), order, .. }) = self.ops.get(*id) {
                    let message = Message { body: body.clone(), id: message_id.clone(), origin: *origin };
                    handed.push((*order, name.clone(), message));
                }
            }
        }
        handed.sort_by_key(|(order, ..)| *order);
        handed.into_iter().map(|(_, name, message)| (name, message)).collect()
    }

    /// Messages that were delivered and not received: those that were handed first, the others by name.
    pub(super) fn unread(&self) -> Vec<(Name, Message)> {
        let mut names: Vec<&Name> = self.signals.keys().collect();
        names.sort();
        let ready = names.into_iter().flat_map(|name| {
            let queue = self.signals.get(name).into_iter().flat_map(|queue| &queue.ready);
            queue.map(|message| (name.clone(), message.clone()))
        });
        self.handed().into_iter().chain(ready).collect()
    }

    /// What the code waits for, for messages.
    pub(super) fn waits(&self) -> String {
        if self.closing.is_some() {
            return "has returned".to_owned();
        }
        let open = self.ops.iter().filter(|op| op.is_open()).take(5);
        let open: Vec<String> = open
            .map(|op| format!("{} `{}` at {}", op.kind.name(), op.name, crate::record::SourceLine::from(op.place)))
            .collect();
        if open.is_empty() { "waits for nothing".to_owned() } else { format!("waits for {}", open.join(", ")) }
    }

    /// The number of a task to spawn.
    pub(crate) fn next_task(&mut self) -> TaskId {
        self.last_task += 1;
        self.last_task
    }
}

impl Request {
    /// What has to be cancelled outside when the command is cancelled.
    pub(crate) const fn target(self) -> Option<CancelTarget> {
        match self {
            Self::Call { job, .. } => Some(CancelTarget::Job(job)),
            Self::Child { run, .. } => Some(CancelTarget::Child(run)),
            Self::Sleep { .. } => None,
        }
    }
}
