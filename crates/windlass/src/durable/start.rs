//! Starting code runs.

use super::client::{RunHandle, raw};
use super::message::Message;
use crate::client::Client;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use windlass_core::id::{RunId, Token};
use windlass_core::job::Due;
use windlass_core::name::Kind;
use windlass_core::payload::Payload;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::retry::RetryPolicy;
use windlass_core::store::{NewRun, RunMessage, RunReuse, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::{BoxFuture, RunRetry, Running, Signal, Span, Wf, Workflow, kind_of};

/// What the store keeps as the definition of a code run. Absent fields have their defaults; it only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodeDefinition {
    /// How long the run may take, counted from its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
    /// When the run starts, if that is not the time of its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) starts_at: Option<Timestamp>,
    /// How often the run is started again when it has failed.
    #[serde(default, skip_serializing_if = "RunRetry::is_none")]
    pub(super) retry: RunRetry,
}

/// How a run is started.
#[derive(Clone, Debug, Default)]
pub(super) struct StartOptions {
    pub(super) id: Option<String>,
    pub(super) reuse: ReusePolicy,
    pub(super) delay_ms: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) keep_ms: Option<u64>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) retry: RunRetry,
    pub(super) signals: Vec<FirstSignal>,
}

/// A signal that a run is started with.
#[derive(Clone, Debug)]
pub(super) struct FirstSignal {
    /// The id of the message; made up if there is none.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) body: Box<RawValue>,
}

impl FirstSignal {
    fn message(self, run: RunId) -> Result<RunMessage> {
        let Self { id, name, body } = self;
        windlass_core::name::check("signal", &name)?;
        // A repeated call has the same id.
        let random = StrongRandom::from_system();
        let id = id.unwrap_or_else(|| format!("{:016x}{:016x}", random.next_u64(), random.next_u64()));
        Ok(RunMessage { id: Some(id), ..Message::Signal { name, body }.to(run) })
    }
}

impl StartOptions {
    /// The id of the run, if it follows from an id of the caller.
    pub(super) fn run_id(&self) -> Result<Option<RunId>> {
        let named = |id: &String| windlass_core::name::check("id", id).map(|()| RunId::named(id));
        self.id.as_ref().map(named).transpose()
    }

    /// Creates the run. A call whose answer was lost is repeated.
    pub(super) async fn start(self, client: &Client, kind: Kind, input: Bytes) -> Result<RunId> {
        let id = self.run_id()?.unwrap_or_else(|| client.ids().next_run());
        // A run that starts again keeps the time of its creation.
        let starts_later = self.delay_ms.is_some() || self.reuse != ReusePolicy::Never;
        let starts_at = match starts_later {
            true => Some(client.store().now().await?.plus_ms(self.delay_ms.unwrap_or_default())),
            false => None,
        };
        self.retry.check()?;
        let definition = CodeDefinition { timeout_ms: self.timeout_ms, starts_at, retry: self.retry };
        let mut run = code_run(id, kind, self.id, input, &definition)?;
        if let Some(at) = starts_at {
            run.step.wake = Some(Due::At(at));
        }
        (run.reuse, run.keep_ms, run.labels) = (self.reuse.into(), self.keep_ms, self.labels);
        // Another start of the same id is another run.
        run.nonce = Some(Token::from_bits(StrongRandom::from_system().next_u64()));
        run.messages = self.signals.into_iter().map(|signal| signal.message(id)).collect::<Result<_>>()?;
        run.check()?;
        let create = || {
            let (store, run) = (Arc::clone(client.store()), run.clone());
            async move { store.create_runs(vec![run]).await }
        };
        let answer = crate::repeat::repeat(Error::is_outcome_unknown, |_| create()).await?.pop();
        answer.unwrap_or_else(|| Err(Error::too_few_answers()))?;
        Ok(id)
    }
}

/// A code run that an engine starts as soon as it is claimed.
pub(super) fn code_run(
    id: RunId,
    kind: Kind,
    name: Option<String>,
    input: Bytes,
    definition: &CodeDefinition,
) -> Result<NewRun> {
    let name = name.unwrap_or_else(|| workflow_name(kind.as_str()).to_owned());
    let definition = serde_json::to_vec(definition).map_err(|error| Error::invalid("definition", error.to_string()))?;
    let summary = format!("has not started: it waits for a worker that has the workflow `{kind}`");
    let step = RunStep { wake: Some(Due::Now), summary, ..RunStep::nothing() };
    Ok(NewRun { name, definition: definition.into(), input, job_results: true, step, ..NewRun::new(id, kind) })
}

/// The name in a kind `name@version`.
pub(super) fn workflow_name(kind: &str) -> &str {
    kind.split_once('@').map_or(kind, |(name, _)| name)
}

/// What to do when a run of the same id has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReusePolicy {
    /// Refuses the start, whatever became of the other run.
    #[default]
    Never,
    /// Starts the run again if it has ended.
    IfEnded,
    /// Starts the run again if it has ended without success.
    IfNotSucceeded,
}

impl From<ReusePolicy> for RunReuse {
    fn from(policy: ReusePolicy) -> Self {
        match policy {
            ReusePolicy::Never => Self::Never,
            ReusePolicy::IfEnded => Self::IfEnded,
            ReusePolicy::IfNotSucceeded => Self::IfNotSucceeded,
        }
    }
}

/// A run to be started; await it.
#[must_use = "a start does nothing until it is awaited"]
pub struct Start<W: Workflow> {
    client: Client,
    input: Result<Payload>,
    options: StartOptions,
    /// A signal that cannot be encoded.
    wrong_signal: Option<Error>,
    workflow: PhantomData<fn() -> W>,
}

impl Client {
    /// Starts a run of a workflow. Any worker that has [registered](crate::WorkerBuilder::workflow) it executes the run; until
    /// there is one, the run waits.
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as to a function")]
    pub fn start<W: Workflow>(&self, _workflow: impl FnOnce(Wf, W::Input) -> Running<W>, input: W::Input) -> Start<W> {
        let (client, input) = (self.clone(), Payload::json(&input));
        Start { client, input, options: StartOptions::default(), wrong_signal: None, workflow: PhantomData }
    }
}

impl<W: Workflow> Start<W> {
    /// An id of your own, such as that of the order. While a run of it goes on, a second start is refused.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.options.id = Some(id.into());
        self
    }

    /// What to do when a run of the same id has ended; by default the start is refused.
    pub fn reuse(mut self, policy: ReusePolicy) -> Self {
        self.options.reuse = policy;
        self
    }

    /// Starts the code after this time.
    #[track_caller]
    pub fn delay(mut self, time: impl Span) -> Self {
        self.options.delay_ms = Some(time.to_ms());
        self
    }

    /// Cancels the run after this time, counted from its start. It ends as timed out.
    #[track_caller]
    pub fn timeout(mut self, time: impl Span) -> Self {
        self.options.timeout_ms = Some(time.to_ms());
        self
    }

    /// How long the run is kept when it has ended; by default 14 days.
    #[track_caller]
    pub fn keep(mut self, time: impl Span) -> Self {
        self.options.keep_ms = Some(time.to_ms());
        self
    }

    /// A label by which the run is found in lists.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.labels.insert(name.into(), value.into());
        self
    }

    /// Sends a signal with the start, in one atomic step: the run has it when its code begins. If a run of the same
    /// [`id`](Self::id) goes on, whoever started it, nothing is started, and that run gets the signal. At most 16 signals, which
    /// are delivered in this order.
    pub fn signal<S: Signal>(self, signal: S) -> Self {
        self.first_signal(None, signal)
    }

    /// Like [`signal`](Self::signal), with an id of the message: a start that is repeated with it, because its outcome is
    /// unknown, delivers the signal once. That holds for the last 1,000 messages with ids that the run was sent, also if the
    /// run has ended meanwhile.
    pub fn signal_once<S: Signal>(self, id: impl Into<String>, signal: S) -> Self {
        self.first_signal(Some(id.into()), signal)
    }

    #[expect(clippy::needless_pass_by_value, reason = "the signal is handed over, as to `RunHandle::signal`")]
    fn first_signal<S: Signal>(mut self, id: Option<String>, signal: S) -> Self {
        match raw("signal", &signal) {
            Ok(body) => self.options.signals.push(FirstSignal { id, name: S::NAME.to_owned(), body }),
            Err(error) => drop(self.wrong_signal.get_or_insert(error)),
        }
        self
    }

    /// How often the code may be tried; once by default, and at most 1,000 times. A run that fails is started again with the same
    /// input, under the same id and with the same inbox, after the time that [`retry`](Self::retry) says. One that is cancelled,
    /// times out or is terminated is not.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.options.retry.attempts = Some(attempts);
        self
    }

    /// How long to wait between the attempts of a run; by default 1 s, doubling up to 1 h. It sets three attempts unless
    /// [`attempts`](Self::attempts) sets another number.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry.policy = Some(policy);
        self
    }

    async fn start(self) -> Result<RunHandle<W>> {
        self.wrong_signal.map_or(Ok(()), Err)?;
        let id = self.options.start(&self.client, Kind::new(kind_of::<W>())?, self.input?.bytes).await?;
        Ok(RunHandle::new(self.client, id))
    }
}

impl<W: Workflow> IntoFuture for Start<W> {
    type Output = Result<RunHandle<W>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<W: Workflow> std::fmt::Debug for Start<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("workflow", &W::NAME).field("id", &self.options.id).finish_non_exhaustive()
    }
}
