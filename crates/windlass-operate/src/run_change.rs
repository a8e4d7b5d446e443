//! Messages to runs. Graph runs and code runs are cancelled, resumed and terminated alike; only code runs take signals and
//! values of promises.

use crate::code_run::{check_is_code, is_code, read_brief};
use crate::error::OperateError;
use serde_json::value::RawValue;
use std::sync::Arc;
use windlass::core::id::RunId;
use windlass::core::store::{Run, RunState, Store};
use windlass::durable::{PromiseToken, RunHandle};
use windlass::runs::Runs;
use windlass::{Client, Error};

/// What became of a request to cancel a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCancelled {
    /// The state of the run. The code of a code run may go on for a while.
    pub state: RunState,
    /// Why no engine can advance it: then its code does not read the request.
    pub stuck: Option<String>,
    /// True for a run whose code decides when it ends.
    pub is_code: bool,
}

/// Cancels a run. A graph run starts nothing any more when this returns; the code of a code run gets the request and may clean up.
pub async fn cancel_run(store: &Arc<dyn Store>, run: RunId, reason: &str) -> Result<RunCancelled, OperateError> {
    let brief = read_brief(store.as_ref(), run).await?;
    if !is_code(&brief) {
        let state = Runs::new(Arc::clone(store)).cancel(run, reason).await?;
        return Ok(RunCancelled { state, stuck: None, is_code: false });
    }
    if !brief.state.is_terminal() {
        match handle(store, run).cancel(reason).await {
            // It ended meanwhile.
            Err(Error::RunRefused { .. }) => {}
            sent => sent?,
        }
    }
    let Run { state, stuck, .. } = read_brief(store.as_ref(), run).await?;
    Ok(RunCancelled { state, stuck: stuck.filter(|_| !state.is_terminal()), is_code: true })
}

/// Tries again with a run that is stuck. Any other run refuses it. With `cap` the history of a code run may have so many records.
pub async fn resume_run(store: &Arc<dyn Store>, run: RunId, cap: Option<u64>) -> Result<(), OperateError> {
    let brief = read_brief(store.as_ref(), run).await?;
    if !is_code(&brief) {
        if cap.is_some() {
            let why = "follows a graph, whose history has no cap; resume it without one".to_owned();
            return Err(Error::RunRefused { run, why }.into());
        }
        return Ok(Runs::new(Arc::clone(store)).resume(run).await?);
    }
    let why = match (brief.state, brief.stuck) {
        (RunState::Running, Some(_)) => {
            let run = handle(store, run);
            let resumed = match cap {
                Some(cap) => run.resume_with_cap(cap).await,
                None => run.resume().await,
            };
            return Ok(resumed?);
        }
        (RunState::Running, None) => "is not stuck: it goes on by itself".to_owned(),
        (ended, _) => {
            let start = format!("windlass runs start {} --id ID --reuse if-ended", brief.kind);
            format!("has ended: {}; `{start}` starts it again", ended.name())
        }
    };
    Err(Error::RunRefused { run, why }.into())
}

/// Ends a run at once, whatever it does. Its jobs are cancelled by the next engine that looks; nothing is compensated.
pub async fn terminate_run(store: &Arc<dyn Store>, run: RunId, reason: &str) -> Result<(), OperateError> {
    let brief = read_brief(store.as_ref(), run).await?;
    if brief.state.is_terminal() {
        let why = format!("has ended: {}; there is nothing to terminate", brief.state.name());
        return Err(Error::RunRefused { run, why }.into());
    }
    Ok(handle(store, run).terminate(reason).await?)
}

/// A signal to send.
#[derive(Clone, Debug)]
pub struct SignalInput {
    /// The name of the signal.
    pub name: String,
    /// The message.
    pub body: Box<RawValue>,
    /// An id by which the store drops repeated messages.
    pub message_id: Option<String>,
}

/// Sends a signal to a code run.
pub async fn signal_run(store: &Arc<dyn Store>, run: RunId, signal: SignalInput) -> Result<(), OperateError> {
    check_takes_messages(store, run).await?;
    Ok(handle(store, run).signal_json(&signal.name, signal.body, signal.message_id).await?)
}

/// Resolves a promise of a code run. A promise that is resolved already keeps its value.
pub async fn resolve_promise(
    store: &Arc<dyn Store>,
    promise: &PromiseToken,
    value: Box<RawValue>,
) -> Result<(), OperateError> {
    check_takes_messages(store, promise.run).await?;
    Ok(Client::new(Arc::clone(store)).resolve(promise, &value).await?)
}

async fn check_takes_messages(store: &Arc<dyn Store>, run: RunId) -> Result<(), OperateError> {
    let brief = read_brief(store.as_ref(), run).await?;
    check_is_code(&brief)?;
    if !brief.state.is_terminal() {
        return Ok(());
    }
    let why = format!("has ended: {}; it takes no messages", brief.state.name());
    let refused = OperateError::from(Error::RunRefused { run, why });
    Err(refused.hint(format!("windlass runs show {run} shows its result")))
}

fn handle(store: &Arc<dyn Store>, run: RunId) -> RunHandle<()> {
    Client::new(Arc::clone(store)).run_by_id(run)
}
