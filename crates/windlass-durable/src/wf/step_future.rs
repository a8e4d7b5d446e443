//! How a local step is polled.

use super::leaf::Next;
use super::step::Step;
use crate::error::{CallError, ErrorClass};
use crate::exec::{BoxFuture, EndedStep, Host, StepGuard, StepWaker, lock, panic_text};
use crate::record::{Body, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use windlass_core::retry::{RetryAdvice, RetryPolicy};

/// The attempts of a step. Everything in here is polled and dropped inside of the runtime.
pub(super) struct Attempts<F, Fut> {
    make: F,
    pub(super) max: u32,
    pub(super) retry: RetryPolicy,
    pub(super) timeout_ms: Option<u64>,
    /// The current attempt, from 1.
    number: u32,
    future: Option<Pin<Box<Fut>>>,
    pause: Option<BoxFuture<'static, ()>>,
    limit: Option<BoxFuture<'static, ()>>,
}

/// How an attempt ended without a value.
struct AttemptError {
    class: ErrorClass,
    message: String,
}

impl AttemptError {
    fn failed(message: String) -> Self {
        Self { class: ErrorClass::Failed, message }
    }
}

impl<F, Fut> Attempts<F, Fut> {
    pub(super) fn new(make: F) -> Self {
        let retry = RetryPolicy::Exponential { base_ms: 100, factor: 2, cap_ms: 60_000, jitter_percent: 0 };
        Self { make, max: 1, retry, timeout_ms: None, number: 0, future: None, pause: None, limit: None }
    }

    /// Drops the user's future where its destructors find the runtime.
    pub(super) fn drop_user(&mut self, host: &dyn Host) {
        let mut gone = (self.future.take(), self.pause.take(), self.limit.take());
        if gone.0.is_some() || gone.1.is_some() || gone.2.is_some() {
            host.enter(&mut || {
                let _step = StepGuard::enter();
                gone = (None, None, None);
            });
        }
    }
}

impl<F, Fut, T, E> Attempts<F, Fut>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Serialize,
    E: fmt::Display,
{
    /// Polls until the step waits or has ended.
    fn poll(&mut self, host: &dyn Host, waker: &Waker) -> Poll<Outcome> {
        loop {
            let mut ended = Poll::Pending;
            host.enter(&mut || {
                let _step = StepGuard::enter();
                ended = self.poll_attempt(host, &mut Context::from_waker(waker));
            });
            let error = match ended {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(body)) => return Poll::Ready(Ok(body)),
                Poll::Ready(Err(error)) => error,
            };
            if !self.start_pause(host) {
                let AttemptError { class, message } = error;
                return Poll::Ready(Err(CallError { attempts: self.number, ..CallError::new(class, message) }));
            }
        }
    }

    /// Prepares the next attempt; false when there is none.
    fn start_pause(&mut self, host: &dyn Host) -> bool {
        if self.number >= self.max {
            return false;
        }
        let ms = match self.retry.advise(self.number, 0) {
            RetryAdvice::AfterMs(ms) => ms,
            RetryAdvice::AskKind => 1_000,
            RetryAdvice::Never => return false,
        };
        host.enter(&mut || self.pause = Some(host.sleep(Duration::from_millis(ms))));
        true
    }

    fn poll_attempt(&mut self, host: &dyn Host, cx: &mut Context<'_>) -> Poll<Result<Body, AttemptError>> {
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_user(host, cx)));
        let panicked = |panic: &(dyn std::any::Any + Send)| {
            AttemptError::failed(format!("the step panicked: {}", panic_text(panic)))
        };
        let ended = std::task::ready!(polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic.as_ref())))));
        let dropped = catch_unwind(AssertUnwindSafe(|| (self.future, self.limit) = (None, None)));
        Poll::Ready(match dropped {
            Ok(()) => ended,
            Err(panic) => ended.and(Err(panicked(panic.as_ref()))),
        })
    }

    fn poll_user(&mut self, host: &dyn Host, cx: &mut Context<'_>) -> Poll<Result<Body, AttemptError>> {
        let make = &self.make;
        let timeout = self.timeout_ms.map(Duration::from_millis);
        let future = match &mut self.future {
            Some(future) => future,
            future => {
                self.number += 1;
                self.limit = timeout.map(|timeout| host.sleep(timeout));
                future.insert(Box::pin(make()))
            }
        };
        if let Poll::Ready(result) = future.as_mut().poll(cx) {
            let body = result.map_err(|error| AttemptError::failed(error.to_string()));
            return Poll::Ready(body.and_then(|value| {
                Body::of(&value).map_err(|error| AttemptError {
                    class: ErrorClass::Invalid,
                    message: format!("the result cannot be encoded as JSON: {error}"),
                })
            }));
        }
        match &mut self.limit {
            Some(limit) => limit.as_mut().poll(cx).map(|()| {
                Err(AttemptError {
                    class: ErrorClass::TimedOut,
                    message: "the step took longer than its timeout".into(),
                })
            }),
            None => Poll::Pending,
        }
    }
}

impl<F, Fut, T, E> Step<F, Fut, T, E>
where
    F: Fn() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
    T: Serialize,
    E: fmt::Display,
{
    /// Polls the user's future, if this is a poll of steps and the step was woken.
    fn poll_step(&mut self) {
        let Some(op) = self.leaf.op.filter(|_| !self.has_ended) else { return };
        let shared = self.leaf.shared.clone();
        {
            let mut state = lock(&shared.state);
            if !state.steps.may_begin {
                // The step may have been held, without a poll, when its turn came: it asks again.
                if self.waker.as_ref().is_none_or(|waker| waker.woken.load(Ordering::Acquire)) {
                    state.steps.unbegun.push(op);
                }
                return;
            }
        }
        let waker = self
            .waker
            .get_or_insert_with(|| Arc::new(StepWaker { queue: shared.queue.clone(), op, woken: true.into() }));
        if !waker.woken.swap(false, Ordering::AcqRel) {
            return;
        }
        let waker = Waker::from(waker.clone());
        if let Poll::Ready(outcome) = self.attempts.poll(&*shared.host, &waker) {
            let bytes_max = shared.limits.result_bytes_max;
            let outcome = match outcome {
                Ok(body) if body.len() > bytes_max => Err(CallError {
                    attempts: self.attempts.number,
                    ..CallError::too_large("the result of the step", body.len(), bytes_max)
                }),
                outcome => outcome,
            };
            self.has_ended = true;
            let ended = EndedStep { key: self.key.clone(), outcome, place: self.leaf.place };
            lock(&shared.state).steps.ended.push_back(ended);
        }
    }
}

impl<F, Fut, T, E> Future for Step<F, Fut, T, E>
where
    F: Fn() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
    T: Serialize + DeserializeOwned,
    E: fmt::Display,
{
    type Output = Result<T, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.leaf.poll(cx) {
            Next::Done(outcome) => {
                this.finish();
                return this.leaf.typed(outcome);
            }
            Next::Dead => return Poll::Pending,
            Next::First(ctx) => {
                let shared = this.leaf.shared.clone();
                let mut state = lock(&shared.state);
                let op = this.leaf.new_op(&ctx, cx, this.key.name.clone());
                let id = this.leaf.open(&mut state, op);
                state.steps.open.insert(this.key.clone(), id);
                this.is_open = true;
            }
            Next::Open => {}
        }
        this.poll_step();
        Poll::Pending
    }
}
