//! What can be done to code runs from outside.

use super::message::Message;
use crate::client::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use windlass_core::id::RunId;
use windlass_core::store::{Run, RunMessage, RunRead, RunState, RunView, Store, WaitFor};
use windlass_core::{Error, Result};
use windlass_durable::{PromiseToken, Running, Signal, Wf, Workflow};

/// Poll interval: the longest delay that a lost wake-up can cause.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a caller rests after a wait that has failed.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// How a run ended that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// How it ended.
    pub state: RunState,
    /// The error of its code, or the reason of its cancellation.
    pub message: String,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run ended as {}: {}", self.state.name(), self.message)
    }
}

impl std::error::Error for RunFailure {}

/// A code run. Cheap to clone.
pub struct RunHandle<W> {
    client: Client,
    id: RunId,
    workflow: PhantomData<fn() -> W>,
}

impl<W> Clone for RunHandle<W> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.id)
    }
}

impl<W> fmt::Debug for RunHandle<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHandle({})", self.id)
    }
}

impl Client {
    /// The run of a workflow that was started with this id.
    pub fn run<W: Workflow>(
        &self,
        _workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
        id: impl AsRef<str>,
    ) -> RunHandle<W> {
        RunHandle::new(self.clone(), RunId::named(id.as_ref()))
    }

    /// A run by the id that the store gave it, without its types.
    pub fn run_by_id(&self, id: RunId) -> RunHandle<()> {
        RunHandle::new(self.clone(), id)
    }

    /// Resolves a promise. A promise that is resolved already keeps its value.
    pub async fn resolve<T: Serialize>(&self, promise: &PromiseToken, value: &T) -> Result<()> {
        let message = Message::Resolve { token: format!("{:016x}", promise.token), body: raw("value", value)? };
        send(self, message.to(promise.run)).await
    }
}

impl<W> RunHandle<W> {
    pub(super) fn new(client: Client, id: RunId) -> Self {
        Self { client, id, workflow: PhantomData }
    }

    /// The id of the run.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Sends a signal. When this returns, the signal is as safe as the store promises, also if the run does not receive it yet.
    pub async fn signal<S: Signal>(&self, signal: S) -> Result<()> {
        self.signal_named(S::NAME, &signal).await
    }

    /// Sends a signal with an id. The store drops a signal whose id is among the last 1,000 that the run was sent.
    pub async fn signal_once<S: Signal>(&self, id: impl Into<String>, signal: S) -> Result<()> {
        let message = Message::Signal { name: S::NAME.to_owned(), body: raw("signal", &signal)? }.to(self.id);
        send(&self.client, RunMessage { id: Some(id.into()), ..message }).await
    }

    /// Sends a signal by its name.
    pub async fn signal_named<T: Serialize + ?Sized>(&self, name: &str, body: &T) -> Result<()> {
        windlass_core::name::check("signal", name)?;
        send(&self.client, Message::Signal { name: name.to_owned(), body: raw("signal", body)? }.to(self.id)).await
    }

    /// Asks the code to stop: what it waits for is cancelled, and it may clean up before it ends.
    pub async fn cancel(&self, reason: &str) -> Result<()> {
        send(&self.client, Message::Cancel { reason: reason.to_owned() }.to(self.id)).await
    }

    /// Ends the run at once, whatever its code does. Its jobs are cancelled; nothing is compensated.
    pub async fn terminate(&self, reason: &str) -> Result<()> {
        send(&self.client, Message::Terminate { reason: reason.to_owned() }.to(self.id)).await
    }

    /// Tries again with a run that is stuck. Any other run is refused.
    pub async fn resume(&self) -> Result<()> {
        self.resume_as(None).await
    }

    /// Tries again with a run that is stuck because its history is too long, and lets the history of its segment grow up to this
    /// many records. See [`WorkerBuilder::history_cap`](crate::WorkerBuilder::history_cap).
    pub async fn resume_with_cap(&self, records: u64) -> Result<()> {
        self.resume_as(Some(records)).await
    }

    async fn resume_as(&self, cap: Option<u64>) -> Result<()> {
        send(&self.client, Message::Resume { cap }.to(self.id)).await
    }

    pub(super) async fn send(&self, message: RunMessage) -> Result<()> {
        send(&self.client, message).await
    }

    /// The run as a listing shows it.
    pub async fn describe(&self) -> Result<Run> {
        Ok(self.view(RunRead::brief(self.id)).await?.run)
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn view(&self, read: RunRead) -> Result<RunView> {
        let view = self.client.store().read_runs(vec![read]).await?.pop().flatten();
        view.ok_or_else(|| Error::run_not_found(self.id))
    }

    /// Waits until the run has ended, for at most `time`. `None` when it has not. A store that is unavailable for a while is waited
    /// for, too.
    async fn ended(&self, time: Duration) -> Result<Option<RunView>> {
        let read = RunRead { result: true, ..RunRead::brief(self.id) };
        let mut unavailable = None;
        let look = async {
            loop {
                wait_for_end(self.client.store().as_ref(), self.id).await;
                match self.view(read).await {
                    Ok(view) if view.run.state.is_terminal() => return Ok(view),
                    Ok(RunView { run: Run { damaged: Some(damage), .. }, .. }) => {
                        return Err(Error::corrupt(format!("the run {}: {damage}", self.id)));
                    }
                    Ok(_) => unavailable = None,
                    Err(error) if error.is_retryable() => unavailable = Some(error),
                    Err(error) => return Err(error),
                }
            }
        };
        match tokio::time::timeout(time, look).await {
            Ok(view) => view.map(Some),
            Err(_) => unavailable.map_or(Ok(None), Err),
        }
    }

    /// Waits for the result as JSON, for at most `time`; `None` when the run has not ended by then.
    pub async fn result_json(&self, time: Duration) -> Result<Option<std::result::Result<Box<RawValue>, RunFailure>>> {
        let Some(view) = self.ended(time).await? else { return Ok(None) };
        let RunView { run: Run { state, error, summary, .. }, result, .. } = view;
        if state != RunState::Succeeded {
            return Ok(Some(Err(RunFailure { state, message: error.unwrap_or(summary) })));
        }
        let bytes = result.map_or_else(|| "null".into(), |payload| payload.bytes);
        let json = serde_json::from_slice(&bytes).map_err(|error| Error::corrupt(format!("its result: {error}")))?;
        Ok(Some(Ok(json)))
    }
}

impl<W: Workflow> RunHandle<W> {
    /// Waits for the result, for at most `time`; `None` when the run has not ended by then.
    pub async fn result(&self, time: Duration) -> Result<Option<std::result::Result<W::Output, RunFailure>>>
    where
        W::Output: DeserializeOwned,
    {
        let json = match self.result_json(time).await? {
            None => return Ok(None),
            Some(Err(failure)) => return Ok(Some(Err(failure))),
            Some(Ok(json)) => json,
        };
        match serde_json::from_str(json.get()) {
            Ok(output) => Ok(Some(Ok(output))),
            Err(error) => {
                let (kind, run) = (super::kind_of::<W>(), self.describe().await?.kind);
                let why = format!("does not decode as the output of `{kind}`: {error}; the run is of the kind `{run}`");
                Err(Error::invalid("result", why))
            }
        }
    }
}

/// Waits until a run may have ended: the wait may return early, and fail.
pub(crate) async fn wait_for_end(store: &dyn Store, run: RunId) {
    if let Ok(Err(_)) = tokio::time::timeout(LOOK_AGAIN, store.wait(WaitFor::Run(run))).await {
        // The caller reads the run. That may succeed, and the next wait would fail at once.
        tokio::time::sleep(ERROR_PAUSE).await;
    }
}

pub(super) fn raw<T: Serialize + ?Sized>(field: &'static str, value: &T) -> Result<Box<RawValue>> {
    to_raw_value(value).map_err(|error| Error::invalid(field, error.to_string()))
}

async fn send(client: &Client, message: RunMessage) -> Result<()> {
    let answer = client.store().send_to_runs(vec![message]).await?.pop();
    answer.unwrap_or_else(|| Err(Error::too_few_answers()))
}
