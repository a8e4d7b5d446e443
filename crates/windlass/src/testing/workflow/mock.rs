//! Mocks of jobs, of child workflows and of local steps, and what they returned.

use crate::error::{JobError, Then};
use crate::job::Job;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::job::{Failure, FailureClass};
use windlass_core::random::{Random, StrongRandom};
use windlass_durable::{Body, CallError, ErrorClass, ItemBody, Outcome, PromiseToken, Signal, Span};

/// What a mock can do besides returning a value: send signals to the run that made the call, and resolve promises.
///
/// Times are counted from the start of the attempt.
#[derive(Debug, Default)]
pub struct Outside {
    pub(super) effects: Vec<Effect>,
}

/// A message that a mock sends.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) after_ms: u64,
    /// The promise whose run gets it; `None` for the run that made the call.
    pub(super) promise: Option<PromiseToken>,
    pub(super) body: ItemBody,
}

impl Outside {
    /// Resolves a promise at once.
    ///
    /// # Panics
    ///
    /// When JSON cannot hold the value.
    pub fn resolve<T: Serialize>(&mut self, promise: &PromiseToken, value: &T) {
        self.resolve_after("0ms", promise, value);
    }

    /// Resolves a promise after some time.
    ///
    /// # Panics
    ///
    /// When JSON cannot hold the value.
    pub fn resolve_after<T: Serialize>(&mut self, time: impl Span, promise: &PromiseToken, value: &T) {
        let body = ItemBody::Resolved { token: promise.token, body: json("the value of a promise", value) };
        self.effects.push(Effect { after_ms: time.to_ms(), promise: Some(*promise), body });
    }

    /// Sends a signal to the run that made the call, at once.
    ///
    /// # Panics
    ///
    /// When JSON cannot hold the signal.
    pub fn signal<S: Signal>(&mut self, signal: &S) {
        self.signal_after("0ms", signal);
    }

    /// Sends a signal to the run that made the call, after some time.
    ///
    /// # Panics
    ///
    /// When JSON cannot hold the signal.
    pub fn signal_after<S: Signal>(&mut self, time: impl Span, signal: &S) {
        self.effects.push(Effect { after_ms: time.to_ms(), promise: None, body: signal_item(signal) });
    }

    /// Asks the run that made the call to cancel, after some time.
    pub fn cancel_after(&mut self, time: impl Span, reason: impl Into<String>) {
        let body = ItemBody::CancelRequested { reason: reason.into() };
        self.effects.push(Effect { after_ms: time.to_ms(), promise: None, body });
    }
}

pub(super) fn signal_item<S: Signal>(signal: &S) -> ItemBody {
    ItemBody::Signal { name: S::NAME.to_owned(), body: json("a signal", signal), id: String::new() }
}

#[expect(clippy::panic, reason = "a mistake in a test is a panic")]
pub(super) fn json<T: Serialize + ?Sized>(what: &str, value: &T) -> Body {
    match Body::of(value) {
        Ok(body) => body,
        Err(error) => panic!("{what} cannot be encoded as JSON: {error}"),
    }
}

#[expect(clippy::panic, reason = "a mistake in a test is a panic")]
fn input<T: DeserializeOwned>(kind: &str, json: &[u8]) -> T {
    match serde_json::from_slice(json) {
        Ok(input) => input,
        Err(error) => panic!("the input of `{kind}` is not of the type that its mock takes: {error}"),
    }
}

/// What one attempt of a mocked job or child does.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) takes_ms: u64,
    pub(super) result: Result<Body, AttemptError>,
    pub(super) effects: Vec<Effect>,
}

/// An error of an attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptError {
    pub(super) error: CallError,
    pub(super) then: Then,
}

impl AttemptError {
    fn of(error: &JobError) -> Self {
        let class = if error.class() == FailureClass::Timeout { ErrorClass::TimedOut } else { ErrorClass::Failed };
        // As it is kept with a job.
        let detail = error.detail_value().cloned();
        let mut failure = Failure { detail, ..Failure::new(error.class(), error.to_string()) };
        failure.cut();
        let error_of_call = CallError { detail: failure.detail, ..CallError::new(class, failure.message) };
        Self { error: error_of_call, then: error.then() }
    }

    /// The error of a call that is not tried again.
    fn last(error: CallError) -> Self {
        Self { error, then: Then::Never }
    }
}

type Answer = Box<dyn FnMut(&[u8], &mut Outside) -> (Option<u64>, Result<Body, AttemptError>) + Send>;

/// The stand-in for the handler of a job or for the code of a child.
pub(super) struct Mock {
    answer: Answer,
    pub(super) takes_ms: u64,
    /// How long a job waits until a worker claims it; `None` if no worker ever does.
    pub(super) claimed_after_ms: Option<u64>,
}

impl Mock {
    fn new(
        answer: impl FnMut(&[u8], &mut Outside) -> (Option<u64>, Result<Body, AttemptError>) + Send + 'static,
    ) -> Self {
        Self { answer: Box::new(answer), takes_ms: 0, claimed_after_ms: Some(0) }
    }

    pub(super) fn of_job<J: Job>(
        mut answer: impl FnMut(J, &mut Outside) -> (Option<u64>, Result<J::Output, JobError>) + Send + 'static,
    ) -> Self {
        Self::new(move |job, outside| {
            let (takes_ms, result) = answer(input(J::KIND, job), outside);
            (takes_ms, result.map(|value| json("the result of a mock", &value)).map_err(|e| AttemptError::of(&e)))
        })
    }

    pub(super) fn of_kind(
        kind: String,
        mut answer: impl FnMut(serde_json::Value) -> Result<serde_json::Value, JobError> + Send + 'static,
    ) -> Self {
        Self::new(move |job, _| {
            let result = answer(input(&kind, job));
            (None, result.map(|value| json("the result of a mock", &value)).map_err(|e| AttemptError::of(&e)))
        })
    }

    pub(super) fn of_workflow<I: DeserializeOwned, O: Serialize>(
        kind: String,
        mut answer: impl FnMut(I) -> Result<O, String> + Send + 'static,
    ) -> Self {
        Self::new(move |json_input, _| {
            let result = answer(input(&kind, json_input));
            let result = result.map(|value| json("the result of a mock", &value));
            let failed = |message| AttemptError { error: CallError::failed(message), then: Then::Policy };
            (None, result.map_err(failed))
        })
    }

    pub(super) fn of_error(error: CallError) -> Self {
        Self::new(move |_, _| (None, Err(AttemptError::last(error.clone()))))
    }

    /// A job that no worker claims.
    pub(super) fn unclaimed() -> Self {
        Self { claimed_after_ms: None, ..Self::of_error(CallError::cancelled()) }
    }

    fn call(&mut self, input: &[u8]) -> Attempt {
        let mut outside = Outside::default();
        let (takes_ms, result) = (self.answer)(input, &mut outside);
        Attempt { takes_ms: takes_ms.unwrap_or(self.takes_ms), result, effects: outside.effects }
    }
}

/// An operation of the workflow, independent of the order of simultaneous events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpPath {
    /// The run: where its parents made it.
    pub(super) run: Arc<str>,
    /// The segment of the run, from 0.
    pub(super) segment: usize,
    /// The key of the operation.
    pub(super) key: String,
}

/// One attempt of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttemptPath {
    pub(super) op: OpPath,
    pub(super) attempt: u32,
    pub(super) input: Bytes,
}

/// The stand-in for a local step.
pub(super) struct StepMock {
    pub(super) answer: Box<dyn FnMut() -> Outcome + Send>,
    pub(super) takes_ms: u64,
}

/// How a local step ended, and how long it took.
#[derive(Clone, Debug)]
pub(super) struct EndedStep {
    pub(super) outcome: Outcome,
    pub(super) took_ms: u64,
}

/// All mocks of a test, and what they returned, so that no mock is called twice for the same attempt of the same call.
pub(super) struct Mocks {
    pub(super) jobs: HashMap<String, Mock>,
    pub(super) workflows: HashMap<String, Mock>,
    pub(super) steps: HashMap<String, StepMock>,
    returned: HashMap<AttemptPath, Attempt>,
    ended_steps: HashMap<OpPath, EndedStep>,
}

impl Mocks {
    pub(super) fn new() -> Self {
        Self {
            jobs: HashMap::new(),
            workflows: HashMap::new(),
            steps: HashMap::new(),
            returned: HashMap::new(),
            ended_steps: HashMap::new(),
        }
    }

    /// What the mock of this job returns; `None` without a mock.
    pub(super) fn job(&mut self, kind: &str, path: AttemptPath) -> Option<Attempt> {
        Self::called(&mut self.jobs, &mut self.returned, kind, path)
    }

    /// What the mock of this child workflow returns; `None` without a mock.
    pub(super) fn workflow(&mut self, kind: &str, path: AttemptPath) -> Option<Attempt> {
        Self::called(&mut self.workflows, &mut self.returned, kind, path)
    }

    fn called(
        mocks: &mut HashMap<String, Mock>,
        returned: &mut HashMap<AttemptPath, Attempt>,
        kind: &str,
        path: AttemptPath,
    ) -> Option<Attempt> {
        let mock = mocks.get_mut(kind)?;
        Some(returned.entry(path).or_insert_with_key(|path| mock.call(&path.input)).clone())
    }

    /// How a local step that has a mock ends; `None` without a mock.
    pub(super) fn step(&mut self, name: &str, path: OpPath) -> Option<EndedStep> {
        let StepMock { answer, takes_ms } = self.steps.get_mut(name)?;
        let call = || EndedStep { outcome: answer(), took_ms: *takes_ms };
        Some(self.ended_steps.entry(path).or_insert_with(call).clone())
    }

    /// How a local step ended that was executed before.
    pub(super) fn ended_step(&self, path: &OpPath) -> Option<EndedStep> {
        self.ended_steps.get(path).cloned()
    }

    pub(super) fn add_ended_step(&mut self, path: OpPath, ended: EndedStep) {
        self.ended_steps.insert(path, ended);
    }
}

/// Randomness of a test that depends on two numbers alone.
pub(super) fn mixed(seed: u64, number: u64) -> u64 {
    StrongRandom::seeded(seed ^ number.rotate_left(32)).next_u64()
}
