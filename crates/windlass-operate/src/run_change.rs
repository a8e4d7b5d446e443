//! Messages to runs. Graph runs and code runs are cancelled, resumed and terminated alike; only code runs take signals and
//! values of promises, and only of them messages are discarded; only graph runs are run once more and forked.

use crate::code_run::{check_is_code, is_code, read_brief};
use crate::error::OperateError;
use serde_json::value::RawValue;
use std::sync::Arc;
use windlass::core::id::RunId;
use windlass::core::store::{Run, RunState, Store};
use windlass::durable::{Discard, PromiseToken, RunHandle, StoredMessage};
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
    check_takes_messages(store, run, "signals").await?;
    Ok(handle(store, run).signal_json(&signal.name, signal.body, signal.message_id).await?)
}

/// Finds the message that [`discard_message`] would drop.
pub async fn find_discardable(
    store: &Arc<dyn Store>,
    run: RunId,
    which: &Discard,
) -> Result<StoredMessage, OperateError> {
    let brief = read_brief(store.as_ref(), run).await?;
    check_has_code(&brief, "messages to discard")?;
    handle(store, run).find_discardable(which).await.map_err(|error| discard_hint(error, run))
}

/// Drops a message of a stuck code run that its code cannot read, and lets the run go on without it.
pub async fn discard_message(
    store: &Arc<dyn Store>,
    run: RunId,
    which: &Discard,
) -> Result<StoredMessage, OperateError> {
    handle(store, run).discard(which).await.map_err(|error| discard_hint(error, run))
}

fn discard_hint(error: Error, run: RunId) -> OperateError {
    let hint = match &error {
        Error::NotFound { .. } => format!("windlass runs export {run} shows the inbox and the history"),
        Error::RunRefused { .. } => format!("windlass runs show {run} shows its state and why it is stuck"),
        _ => return error.into(),
    };
    OperateError::from(error).hint(hint)
}

/// Refuses a run that follows a graph, and says what there is instead. `what` is what such a run does not have.
fn check_has_code(run: &Run, what: &str) -> Result<(), OperateError> {
    if run.damaged.is_some() || is_code(run) {
        return check_is_code(run);
    }
    let message =
        format!("the run {} is of the kind `{}`, which is no workflow in code and has no {what}", run.id, run.kind);
    let hint = "windlass runs cancel, resume and rerun are what a run of a graph reacts to";
    Err(OperateError::conflict(message).hint(hint))
}

/// Resolves a promise of a code run. A promise that is resolved already keeps its value.
pub async fn resolve_promise(
    store: &Arc<dyn Store>,
    promise: &PromiseToken,
    value: Box<RawValue>,
) -> Result<(), OperateError> {
    check_takes_messages(store, promise.run, "promises").await?;
    Ok(Client::new(Arc::clone(store)).resolve(promise, &value).await?)
}

async fn check_takes_messages(store: &Arc<dyn Store>, run: RunId, what: &str) -> Result<(), OperateError> {
    let brief = read_brief(store.as_ref(), run).await?;
    check_has_code(&brief, what)?;
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

/// Refuses a code run where only a run of a graph will do: to run it once more or to fork it.
pub async fn check_is_graph(store: &dyn Store, run: RunId) -> Result<(), OperateError> {
    let brief = read_brief(store, run).await?;
    if !is_code(&brief) {
        return Ok(());
    }
    let message = format!("the run {run} is of the kind `{}` and does not follow a graph: it has no nodes", brief.kind);
    let start = format!(
        "windlass runs start {} INPUT --id ID --reuse if-ended starts a run again, and without --id a new one",
        brief.kind
    );
    Err(OperateError::conflict(message).hint(start))
}
