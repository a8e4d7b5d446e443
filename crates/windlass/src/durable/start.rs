//! Starting code runs.

use super::client::RunHandle;
use crate::client::Client;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use windlass_core::id::{RunId, Token};
use windlass_core::job::Due;
use windlass_core::name::Kind;
use windlass_core::payload::Payload;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{NewRun, RunReuse, RunStep};
use windlass_core::{Error, Result};
use windlass_durable::{BoxFuture, Running, Span, Wf, Workflow, kind_of};

/// What the store keeps as the definition of a code run. Absent fields have their defaults; it only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodeDefinition {
    /// How long the run may take, counted from its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
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
    let step = RunStep { wake: Some(Due::Now), summary: "has not started".to_owned(), ..RunStep::nothing() };
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
    id: Option<String>,
    reuse: ReusePolicy,
    delay_ms: Option<u64>,
    timeout_ms: Option<u64>,
    keep_ms: Option<u64>,
    labels: BTreeMap<String, String>,
    workflow: PhantomData<fn() -> W>,
}

impl Client {
    /// Starts a run of a workflow. Any worker that has [registered](crate::WorkerBuilder::workflow) it executes the run; until
    /// there is one, the run waits.
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as to a function")]
    pub fn start<W: Workflow>(&self, _workflow: impl FnOnce(Wf, W::Input) -> Running<W>, input: W::Input) -> Start<W> {
        Start {
            client: self.clone(),
            input: Payload::json(&input),
            id: None,
            reuse: ReusePolicy::default(),
            delay_ms: None,
            timeout_ms: None,
            keep_ms: None,
            labels: BTreeMap::new(),
            workflow: PhantomData,
        }
    }
}

impl<W: Workflow> Start<W> {
    /// An id of your own, such as that of the order. While a run of it goes on, a second start is refused.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What to do when a run of the same id has ended; by default the start is refused.
    pub fn reuse(mut self, policy: ReusePolicy) -> Self {
        self.reuse = policy;
        self
    }

    /// Starts the code after this time.
    #[track_caller]
    pub fn delay(mut self, time: impl Span) -> Self {
        self.delay_ms = Some(time.to_ms());
        self
    }

    /// Cancels the run after this time, counted from now. It ends as timed out.
    #[track_caller]
    pub fn timeout(mut self, time: impl Span) -> Self {
        self.timeout_ms = Some(time.to_ms());
        self
    }

    /// How long the run is kept when it has ended; by default 14 days.
    #[track_caller]
    pub fn keep(mut self, time: impl Span) -> Self {
        self.keep_ms = Some(time.to_ms());
        self
    }

    /// A label by which the run is found in lists.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    pub(super) fn into_run(self) -> Result<(Client, NewRun)> {
        let id = match &self.id {
            Some(id) => {
                windlass_core::name::check("id", id)?;
                RunId::named(id)
            }
            None => self.client.ids().next_run(),
        };
        let definition = CodeDefinition { timeout_ms: self.timeout_ms };
        let kind = Kind::new(kind_of::<W>())?;
        let mut run = code_run(id, kind, self.id, self.input?.bytes, &definition)?;
        if let Some(delay) = self.delay_ms {
            run.step.wake = Some(Due::DelayMs(delay));
        }
        (run.reuse, run.keep_ms, run.labels) = (self.reuse.into(), self.keep_ms, self.labels);
        // The call below is repeated after a lost answer; another start of the same id is another run.
        run.nonce = Some(Token::from_bits(StrongRandom::from_system().next_u64()));
        Ok((self.client, run))
    }

    async fn start(self) -> Result<RunHandle<W>> {
        let (client, run) = self.into_run()?;
        let id = run.id;
        let create = || {
            let (store, run) = (Arc::clone(client.store()), run.clone());
            async move { store.create_runs(vec![run]).await }
        };
        let answer = crate::repeat::repeat(Error::is_outcome_unknown, |_| create()).await?.pop();
        answer.unwrap_or_else(|| Err(Error::too_few_answers()))?;
        Ok(RunHandle::new(client, id))
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
        f.debug_struct("Start").field("workflow", &W::NAME).field("id", &self.id).finish_non_exhaustive()
    }
}
