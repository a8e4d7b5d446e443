//! Calls: jobs on their queues.

use super::Wf;
use super::leaf::{Leaf, NewCommand, Next, Times};
use crate::error::{CallError, ErrorClass};
use crate::exec::{CodePlace, Ctx, Start, Timeouts};
use crate::record::{Body, Deadlines, Key, Name, OpKind, Request, input_hash};
use crate::span::Span;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use windlass_core::job::JobSpec;
use windlass_core::payload::{JSON, Payload};
use windlass_core::retry::RetryPolicy;
use windlass_core::typed::{Job, Options};

/// The future of a job. The job is enqueued by the commit that follows the first poll; until then its options can be changed.
///
/// Dropped before its first poll, it does nothing; dropped later, the job is cancelled.
#[must_use = "a call does nothing until it is awaited"]
pub struct Call<T> {
    leaf: Leaf,
    /// `None` after the first poll.
    new: Option<Box<NewCall>>,
    output: PhantomData<fn() -> T>,
}

struct NewCall {
    key: Key,
    queue: &'static str,
    input: Result<Body, CallError>,
    options: Options,
    timeouts: Timeouts,
}

impl Wf {
    /// Enqueues a job and waits for its result. Its options are those of its type, and what is set on the returned future.
    ///
    /// A dedup key or an id in the options of the type does not count: the run identifies the job.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a job is handed over, as it is to a client")]
    pub fn call<J: Job>(&self, job: J) -> Call<J::Output> {
        self.call_at(&job, Location::caller())
    }

    /// Enqueues a job of a kind that is named at run time, from JSON to JSON.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as in `call`")]
    pub fn call_named(&self, kind: impl Into<String>, input: serde_json::Value) -> Call<serde_json::Value> {
        let (kind, place) = (Name::Owned(kind.into()), Location::caller());
        let (leaf, key) = self.call_leaf(kind, place);
        Call::new(leaf, NewCall::new(key, encode(&input), Options::new(), "default"))
    }

    pub(super) fn call_at<J: Job>(&self, job: &J, place: CodePlace) -> Call<J::Output> {
        let (leaf, key) = self.call_leaf(J::KIND.into(), place);
        Call::new(leaf, NewCall::new(key, encode(job), job.options(), J::QUEUE))
    }

    fn call_leaf(&self, kind: Name, place: CodePlace) -> (Leaf, Key) {
        let (leaf, ctx) = self.leaf(OpKind::Call, place);
        (leaf, Self::key(ctx.as_ref(), OpKind::Call, kind))
    }
}

pub(super) fn encode<T: Serialize + ?Sized>(input: &T) -> Result<Body, CallError> {
    Body::of(input)
        .map_err(|error| CallError::new(ErrorClass::Invalid, format!("the input cannot be encoded as JSON: {error}")))
}

impl<T> Call<T> {
    fn new(leaf: Leaf, new: NewCall) -> Self {
        Self { leaf, new: Some(Box::new(new)), output: PhantomData }
    }

    fn options(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        if let Some(new) = &mut self.new {
            new.options = change(std::mem::take(&mut new.options));
        }
        self
    }

    fn timeouts(mut self, change: impl FnOnce(&mut Timeouts)) -> Self {
        if let Some(new) = &mut self.new {
            change(&mut new.timeouts);
        }
        self
    }

    /// Enqueues it on another queue than its own.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.options(|options| options.queue(queue))
    }

    /// Adds a label that its worker must offer.
    pub fn label(self, label: impl Into<String>) -> Self {
        self.options(|options| options.label(label))
    }

    /// Adds labels that its worker must offer.
    pub fn labels<L: Into<String>>(self, labels: impl IntoIterator<Item = L>) -> Self {
        self.options(|options| labels.into_iter().fold(options, Options::label))
    }

    /// Sets the priority; lower goes first.
    pub fn priority(self, priority: i16) -> Self {
        self.options(|options| options.priority(priority))
    }

    /// Sets the group.
    pub fn group(self, group: impl Into<String>) -> Self {
        self.options(|options| options.group(group))
    }

    /// Sets how often it may be tried.
    pub fn attempts(self, attempts: u32) -> Self {
        self.options(|options| options.attempts(attempts))
    }

    /// Sets how often a worker may vanish during an attempt before the call fails; 1 by default. Such an attempt is repeated, and
    /// does not count as one of [`attempts`](Self::attempts).
    pub fn stalls(self, stalls: u32) -> Self {
        self.options(|options| options.stalls(stalls))
    }

    /// Sets how long to wait between attempts.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.options(|options| options.retry(policy))
    }

    /// Delays its start by this much, counted from the commit.
    #[track_caller]
    pub fn delay(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        self.options(|options| options.delay(Duration::from_millis(ms)))
    }

    /// Sets how long one attempt may take.
    #[track_caller]
    pub fn timeout(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        self.options(|options| options.timeout(Duration::from_millis(ms)))
    }

    /// Sets how long it may wait until a worker claims its job, counted from the call, a delay included. When the time is over
    /// and no worker has claimed it, the job is cancelled and never starts, and the call ends with an error of the class
    /// [`TimedOut`](ErrorClass::TimedOut). A job that was claimed by then may be tried again as often as it likes.
    #[track_caller]
    pub fn schedule_to_start(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        self.timeouts(|timeouts| timeouts.schedule_to_start_ms = Some(ms))
    }

    /// Sets how long it may take from the call to its end: waiting, all attempts and the time between them included. Then the
    /// call ends with an error of the class [`TimedOut`](ErrorClass::TimedOut), and its job is cancelled. A result that the
    /// store got in time counts, even if the run acts on it later.
    #[track_caller]
    pub fn schedule_to_close(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        self.timeouts(|timeouts| timeouts.schedule_to_close_ms = Some(ms))
    }

    /// Sets how long an attempt may go without a heartbeat or a report of progress by its handler. Its worker then ends the attempt
    /// like one that takes longer than its timeout.
    #[track_caller]
    pub fn heartbeat(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        let this = self.options(|options| options.heartbeat(Duration::from_millis(ms)));
        this.timeouts(|timeouts| timeouts.heartbeat_ms = Some(ms))
    }

    /// Gives the call an identity of its own, in place of its position among the calls of its kind.
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        if let Some(new) = &mut self.new {
            self.leaf.rekey(&mut new.key, key.into());
        }
        self
    }
}

impl<T> Unpin for Call<T> {}

impl<T: DeserializeOwned> Future for Call<T> {
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

impl NewCall {
    fn new(key: Key, input: Result<Body, CallError>, options: Options, queue: &'static str) -> Self {
        Self { key, queue, input, options, timeouts: Timeouts::default() }
    }

    fn begin(self, leaf: &mut Leaf, ctx: &Ctx, cx: &Context<'_>) -> Result<(), CallError> {
        let Self { key, queue, input, options, timeouts } = self;
        let shared = leaf.shared.clone();
        let (input, bytes_max) = (input?, shared.limits.input_bytes_max);
        if input.len() > bytes_max {
            return Err(CallError::too_large("the input", input.len(), bytes_max));
        }
        let hash = input_hash(input.as_json());
        let kind = key.name.clone();
        leaf.begin(ctx, cx, NewCommand { key, hash }, |number, Times { now, clock }| {
            let payload = Payload::new(JSON, input.into_bytes());
            let (spec, due) = options.into_spec(queue, &kind, payload).map_err(|error| invalid(&error))?;
            let spec = JobSpec { run: Some(shared.id), dedup: None, custom_id: None, ..spec };
            spec.check().and_then(|()| due.check()).map_err(|error| invalid(&error))?;
            let job = shared.host.job_id(shared.id, number, now);
            let deadline = |ms: Option<u64>| ms.map(|ms| clock.plus_ms(ms));
            let start_by = deadline(timeouts.schedule_to_start_ms);
            let deadlines = Deadlines { start_by, close_by: deadline(timeouts.schedule_to_close_ms) };
            Ok((
                Request::Call { job, deadlines },
                Some(Start::Job { number, job, spec: Box::new(spec), due, timeouts }),
            ))
        })
    }
}

/// The error of a call or a child that no store would accept.
pub(super) fn invalid(error: &windlass_core::Error) -> CallError {
    CallError::new(ErrorClass::Invalid, error.to_string())
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}
