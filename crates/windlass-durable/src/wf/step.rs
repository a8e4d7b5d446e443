//! Local steps: code that runs in the worker of the workflow, without a queue.

use super::Wf;
use super::step_future::Attempts;
use crate::exec::{Host, StepWaker, lock};
use crate::record::{Key, Name, OpKind};
use crate::span::Span;
use crate::wf::leaf::Leaf;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use windlass_core::retry::RetryPolicy;

pub use std::convert::Infallible;

/// The future of a local step.
///
/// The step begins after everything before it was committed, and its end is recorded. It runs at least once: a crash between
/// its effect and the commit of its end repeats it. [`Wf::uuid`] called before it makes an idempotency key.
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<F, Fut, T, E>
where
    Fut: Future<Output = Result<T, E>>,
{
    pub(super) leaf: Leaf,
    pub(super) key: Key,
    pub(super) attempts: Attempts<F, Fut>,
    pub(super) waker: Option<Arc<StepWaker>>,
    /// It is among the open steps of the run.
    pub(super) is_open: bool,
    /// Its end waits to be recorded.
    pub(super) has_ended: bool,
}

impl Wf {
    /// Runs a future in place and records its result. It may use the runtime and borrow from the workflow, but not use `Wf`.
    ///
    /// `step` makes the future anew for each attempt; by default there is one. An error is recorded as its text.
    #[track_caller]
    pub fn run<F, Fut, T, E>(&self, name: impl Into<Name>, step: F) -> Step<F, Fut, T, E>
    where
        F: Fn() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Serialize + DeserializeOwned,
        E: fmt::Display,
    {
        self.step(name.into(), step, Location::caller())
    }

    /// The same for a future without an error.
    #[track_caller]
    pub fn run_ok<F, Fut, T>(
        &self,
        name: impl Into<Name>,
        step: F,
    ) -> Step<impl Fn() -> Faultless<Fut> + Send, Faultless<Fut>, T, Infallible>
    where
        F: Fn() -> Fut + Send,
        Fut: Future<Output = T> + Send,
        T: Serialize + DeserializeOwned,
    {
        self.step(name.into(), move || Faultless(Box::pin(step())), Location::caller())
    }

    /// Runs code that blocks or computes for long, on a thread for such work.
    #[track_caller]
    pub fn run_blocking<F, T, E>(
        &self,
        name: impl Into<Name>,
        step: F,
    ) -> Step<impl Fn() -> Blocking<T> + Send, Blocking<T>, T, String>
    where
        F: Fn() -> Result<T, E> + Send + Sync + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display,
    {
        let (step, host) = (Arc::new(step), self.shared.host.clone());
        let start = move || {
            let step = step.clone();
            Blocking::start(&*host, move || step().map_err(|error| error.to_string()))
        };
        self.step(name.into(), start, Location::caller())
    }

    fn step<F, Fut, T, E>(&self, name: Name, step: F, place: &'static Location<'static>) -> Step<F, Fut, T, E>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let (leaf, ctx) = self.leaf(OpKind::Run, place);
        let key = Self::key(ctx.as_ref(), OpKind::Run, name);
        Step { leaf, key, attempts: Attempts::new(step), waker: None, is_open: false, has_ended: false }
    }
}

impl<F, Fut: Future<Output = Result<T, E>>, T, E> Step<F, Fut, T, E> {
    /// Sets how often the step may be tried; by default once. Attempts are not recorded: after a crash they are counted anew.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts.max = attempts.max(1);
        self
    }

    /// Sets how long to wait between attempts; by default 100 ms, doubling up to a minute.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.attempts.retry = policy;
        self
    }

    /// Sets how long one attempt may take.
    #[track_caller]
    pub fn timeout(mut self, time: impl Span) -> Self {
        self.attempts.timeout_ms = Some(time.to_ms());
        self
    }

    /// Gives the step an identity of its own, in place of its position among the steps of its name.
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        self.leaf.rekey(&mut self.key, key.into());
        self
    }
}

impl<F, Fut: Future<Output = Result<T, E>>, T, E> Unpin for Step<F, Fut, T, E> {}

impl<F, Fut: Future<Output = Result<T, E>>, T, E> Step<F, Fut, T, E> {
    /// The step is over: its future is dropped, and an end that was not recorded did not happen.
    pub(super) fn finish(&mut self) {
        self.attempts.drop_user(&*self.leaf.shared.host);
        if std::mem::take(&mut self.is_open) {
            let mut state = lock(&self.leaf.shared.state);
            if state.steps.open.remove(&self.key).is_some() && self.has_ended {
                state.steps.ended.retain(|ended| ended.key != self.key);
            }
        }
    }
}

impl<F, Fut: Future<Output = Result<T, E>>, T, E> Drop for Step<F, Fut, T, E> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<F, Fut: Future<Output = Result<T, E>>, T, E> fmt::Debug for Step<F, Fut, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({})", self.key)
    }
}

/// A future whose value counts as success.
pub struct Faultless<Fut>(Pin<Box<Fut>>);

impl<Fut: Future> Future for Faultless<Fut> {
    type Output = Result<Fut::Output, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

impl<Fut> fmt::Debug for Faultless<Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faultless")
    }
}

/// The result of work on another thread.
pub struct Blocking<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    result: Option<Result<T, String>>,
    waker: Option<Waker>,
}

/// Fills the slot, also when the work is dropped before it is done.
struct Sender<T>(Arc<Mutex<Slot<T>>>);

impl<T> Sender<T> {
    fn send(&self, result: Result<T, String>) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.result.get_or_insert(result);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.send(Err("the step panicked, or its thread ended".to_owned()));
    }
}

impl<T: Send + 'static> Blocking<T> {
    fn start(host: &dyn Host, work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Self {
        let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
        let sender = Sender(slot.clone());
        host.run_blocking(Box::new(move || sender.send(work())));
        Self(slot)
    }
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, String>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}
