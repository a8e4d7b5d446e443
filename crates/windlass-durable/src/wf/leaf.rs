//! What all futures of `Wf` have in common.

use crate::error::CallError;
use crate::exec::{
    CancelTarget, CodePlace, Ctx, NewOp, Op, OpId, OpState, Origin, Replayed, Shared, Start, State, current, lock,
};
use crate::record::{Command, Deadlines, Key, Name, OpKind, Outcome, ParentClosePolicy, Request, SourceLine};
use crate::stuck::Stuck;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::task::{Context, Poll};
use windlass_core::time::Timestamp;

/// The operation behind a future. It is opened by the first poll and given up when the future is dropped.
pub(super) struct Leaf {
    pub(super) shared: Arc<Shared>,
    pub(super) op: Option<OpId>,
    pub(super) kind: OpKind,
    pub(super) place: CodePlace,
}

/// What a poll has to do.
pub(super) enum Next {
    /// Open the operation.
    First(Ctx),
    /// Wait.
    Open,
    /// Return the outcome.
    Done(Outcome),
    /// Nothing: the run is dead.
    Dead,
}

/// When a command is made.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The time of the event.
    pub(super) now: Timestamp,
    /// The time of the store, if it is known to be later.
    pub(super) clock: Timestamp,
}

/// A command to make at the first poll.
pub(super) struct NewCommand {
    pub(super) key: Key,
    /// The hash of the input; 0 for none.
    pub(super) hash: u32,
}

impl Leaf {
    pub(super) fn new(shared: Arc<Shared>, kind: OpKind, place: CodePlace) -> Self {
        Self { shared, op: None, kind, place }
    }

    /// Looks up the state of the operation, and stores the waker while it is open.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Next {
        let Some(ctx) = self.shared.check_at(self.kind.name(), self.place) else { return Next::Dead };
        let mut state = lock(&self.shared.state);
        let Some(id) = self.op else {
            if state.tree.is_cancelled(ctx.node) {
                return Next::Done(Err(CallError::cancelled()));
            }
            return Next::First(ctx);
        };
        let Some(op) = state.ops.get_mut(id) else { return Next::Dead };
        if op.is_open() {
            if !op.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                op.waker = Some(cx.waker().clone());
            }
            return Next::Open;
        }
        self.op = None;
        match state.close(id) {
            Some(Op { state: OpState::Done(outcome), .. }) => Next::Done(outcome),
            _ => Next::Dead,
        }
    }

    /// The operation of this future, before it is opened.
    pub(super) fn new_op(&self, ctx: &Ctx, cx: &Context<'_>, name: Name) -> NewOp {
        NewOp {
            kind: self.kind,
            name,
            place: self.place,
            node: ctx.node,
            waker: cx.waker().clone(),
            number: None,
            until: None,
            close_by: None,
            target: None,
            policy: ParentClosePolicy::default(),
            token: 0,
        }
    }

    /// Opens the operation of a command: finds the command in the history, or makes it and records it.
    ///
    /// `make` returns an error for a command that cannot be made. Such an error leaves no record: it follows from the code alone.
    pub(super) fn begin(
        &mut self,
        ctx: &Ctx,
        cx: &Context<'_>,
        command: NewCommand,
        make: impl FnOnce(u64, Times) -> Result<(Request, Option<Start>), CallError>,
    ) -> Result<(), CallError> {
        let NewCommand { key, hash } = command;
        let shared = self.shared.clone();
        let mut state = lock(&shared.state);
        if state.is_over() {
            return Ok(());
        }
        // What the history has was possible when it was made.
        let made = if state.expects(&key) {
            None
        } else {
            Some(make(state.next_number(), Times { now: state.now, clock: state.call_time() })?)
        };
        let op = self.new_op(ctx, cx, key.name.clone());
        let (number, request) = match (state.replay_command(&key, hash, self.place), made) {
            (Replayed::Found(number, request), _) => (number, request),
            (Replayed::New(number), Some((request, start))) => {
                state.add_command(Command { key, hash, place: SourceLine::from(self.place), request }, start);
                (number, request)
            }
            (Replayed::New(_) | Replayed::Wrong, _) => return Ok(()),
        };
        self.open(&mut state, NewOp { number: Some(number), ..with_request(op, request) });
        Ok(())
    }

    /// Replaces the position of an operation among its like by a key of the user.
    pub(super) fn rekey(&self, key: &mut Key, user: Name) {
        let Some(ctx) = current() else { return };
        ctx.scope.uncount(key.kind, &key.name, key.nth);
        key.nth = ctx.scope.count(key.kind, &key.name, &user);
        key.user = user;
    }

    pub(super) fn open(&mut self, state: &mut State, op: NewOp) -> OpId {
        let id = state.open(op);
        self.op = Some(id);
        id
    }

    /// True when an open command of this run has this child or job.
    pub(super) fn is_taken(&self, target: CancelTarget) -> bool {
        lock(&self.shared.state).ops.number_of(&target).is_some()
    }

    /// The outcome with its type. A value that does not decode makes the run stuck.
    pub(super) fn typed<T: DeserializeOwned>(&self, outcome: Outcome) -> Poll<Result<T, CallError>> {
        let body = match outcome {
            Ok(body) => body,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match body.read() {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(error) => {
                self.wrong_type::<T>(&error);
                Poll::Pending
            }
        }
    }

    /// A recorded value does not decode as `T`.
    pub(super) fn wrong_type<T>(&self, error: &serde_json::Error) {
        let (kind, place) = (self.kind.name(), SourceLine::from(self.place));
        let wanted = std::any::type_name::<T>();
        let reason = format!("the value for `wf.{kind}` at {place} does not decode as `{wanted}`: {error}");
        lock(&self.shared.state).set_fault(Stuck::Decode(reason));
    }

    /// A message does not decode as `T`. The reason begins with where the message comes from, so that an operator can drop it.
    pub(super) fn unreadable_message<T>(&self, origin: Origin, error: &serde_json::Error) {
        let (kind, place) = (self.kind.name(), SourceLine::from(self.place));
        let wanted = std::any::type_name::<T>();
        let mut state = lock(&self.shared.state);
        let message = state.unreadable(origin);
        let reason =
            format!("{message} does not decode: the value for `wf.{kind}` at {place} is no `{wanted}`: {error}");
        state.set_fault(Stuck::Decode(reason));
    }
}

fn with_request(op: NewOp, request: Request) -> NewOp {
    let op = match request {
        Request::Sleep { until } => NewOp { until: Some(until), ..op },
        Request::Child { policy, .. } => NewOp { policy, ..op },
        Request::Call { deadlines: Deadlines { start_by, close_by }, .. } => NewOp { until: start_by, close_by, ..op },
    };
    NewOp { target: request.target(), ..op }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        let Some(op) = self.op.take() else { return };
        if self.shared.check_drop(self.kind, self.place) {
            let waker = lock(&self.shared.state).abandon(op);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
