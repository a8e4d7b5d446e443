//! Child workflows.

use super::Wf;
use super::call::{encode, invalid};
use super::leaf::{Leaf, NewCommand, Next, Times};
use crate::error::{CallError, ErrorClass};
use crate::exec::{CancelTarget, CodePlace, Ctx, Start};
use crate::record::{Body, Key, Name, OpKind, ParentClosePolicy, Request, input_hash};
use crate::retry::RunRetry;
use crate::span::Span;
use crate::workflow::{Running, Workflow};
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::retry::RetryPolicy;

/// The future of a child workflow. The child is created by the commit that follows the first poll.
///
/// Dropped before its first poll, it does nothing; dropped later, the child follows its [`ParentClosePolicy`].
#[must_use = "a child does nothing until it is awaited"]
pub struct Child<T> {
    leaf: Leaf,
    /// `None` after the first poll.
    new: Option<Box<NewChild>>,
    output: PhantomData<fn() -> T>,
}

struct NewChild {
    key: Key,
    version: Option<u32>,
    input: Result<Body, CallError>,
    policy: ParentClosePolicy,
    name: Option<String>,
    timeout_ms: Option<u64>,
    retry: RunRetry,
}

impl Wf {
    /// Runs another workflow as a child and waits for its result.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as to a function")]
    pub fn child<W: Workflow>(
        &self,
        _function: impl FnOnce(Self, W::Input) -> Running<W>,
        input: W::Input,
    ) -> Child<W::Output> {
        self.new_child(W::NAME.into(), Some(W::VERSION), encode(&input), Location::caller())
    }

    /// Runs a workflow of a kind that is named at run time (`name@version`) as a child, from JSON to JSON.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as in `child`")]
    pub fn child_named(&self, kind: impl Into<String>, input: serde_json::Value) -> Child<serde_json::Value> {
        self.new_child(Name::Owned(kind.into()), None, encode(&input), Location::caller())
    }

    fn new_child<T>(
        &self,
        name: Name,
        version: Option<u32>,
        input: Result<Body, CallError>,
        place: CodePlace,
    ) -> Child<T> {
        let (leaf, ctx) = self.leaf(OpKind::Child, place);
        let key = Self::key(ctx.as_ref(), OpKind::Child, name);
        let (policy, retry) = (ParentClosePolicy::default(), RunRetry::default());
        let new = NewChild { key, version, input, policy, name: None, timeout_ms: None, retry };
        Child { leaf, new: Some(Box::new(new)), output: PhantomData }
    }
}

impl<T> Child<T> {
    /// Sets what becomes of the child when the parent does not wait for it any more.
    pub fn parent_close(mut self, policy: ParentClosePolicy) -> Self {
        if let Some(new) = &mut self.new {
            new.policy = policy;
        }
        self
    }

    /// Gives the child an id of the caller's choice. If the id is taken by a run, the result is an error of the class
    /// [`Taken`](ErrorClass::Taken).
    pub fn id(mut self, id: impl Into<String>) -> Self {
        if let Some(new) = &mut self.new {
            new.name = Some(id.into());
        }
        self
    }

    /// Sets the deadline of the child, counted from its creation.
    #[track_caller]
    pub fn timeout(mut self, time: impl Span) -> Self {
        let ms = time.to_ms();
        if let Some(new) = &mut self.new {
            new.timeout_ms = Some(ms);
        }
        self
    }

    /// Sets how often the code of the child may be tried; once by default. The child ends when an attempt succeeds, when the last
    /// one has failed, or when it is cancelled, times out or is terminated.
    pub fn attempts(mut self, attempts: u32) -> Self {
        if let Some(new) = &mut self.new {
            new.retry.attempts = Some(attempts);
        }
        self
    }

    /// Sets how long to wait between the attempts; by default 1 s, doubling up to 1 h. It sets three attempts unless
    /// [`attempts`](Self::attempts) sets another number.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        if let Some(new) = &mut self.new {
            new.retry.policy = Some(policy);
        }
        self
    }

    /// Gives the child an identity of its own, in place of its position among the children of its name.
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        if let Some(new) = &mut self.new {
            self.leaf.rekey(&mut new.key, key.into());
        }
        self
    }
}

impl<T> Unpin for Child<T> {}

impl<T: DeserializeOwned> Future for Child<T> {
    type Output = Result<T, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.leaf.poll(cx) {
            Next::First(ctx) => {
                let Some(new) = this.new.take() else { return Poll::Pending };
                match new.begin(&mut this.leaf, &ctx, cx) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
            Next::Done(outcome) => this.leaf.typed(outcome),
            Next::Open | Next::Dead => Poll::Pending,
        }
    }
}

impl NewChild {
    fn begin(self, leaf: &mut Leaf, ctx: &Ctx, cx: &Context<'_>) -> Result<(), CallError> {
        let Self { key, version, input, policy, name, timeout_ms, retry } = self;
        let shared = leaf.shared.clone();
        let (input, bytes_max) = (input?, shared.limits.input_bytes_max);
        if input.len() > bytes_max {
            return Err(CallError::too_large("the input", input.len(), bytes_max));
        }
        let named = name.as_deref().map(RunId::named);
        if let Some(run) = named.filter(|run| *run == shared.id || leaf.is_taken(CancelTarget::Child(*run))) {
            return Err(CallError::new(
                ErrorClass::Taken,
                format!("the id of {run} is taken by this run or a child of it"),
            ));
        }
        let hash = input_hash(input.as_json());
        let kind = match version {
            Some(version) => format!("{}@{version}", key.name),
            None => key.name.to_string(),
        };
        leaf.begin(ctx, cx, NewCommand { key, hash }, |number, Times { now, .. }| {
            let kind = Kind::new(&kind).map_err(|error| invalid(&error))?;
            retry.check().map_err(|error| invalid(&error))?;
            let run = named.unwrap_or_else(|| shared.host.run_id(shared.id, number, now));
            let input = input.into_bytes();
            let start = Start::Child { number, run, name, kind, input, policy, timeout_ms, retry };
            Ok((Request::Child { run, policy }, Some(start)))
        })
    }
}

impl<T> fmt::Debug for Child<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Child")
    }
}
