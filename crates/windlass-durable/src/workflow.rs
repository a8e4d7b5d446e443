//! Workflows: typed, untyped, and as the executor sees them.

use crate::error::{BoxError, Error, is_cancelled};
use crate::exec::BoxFuture;
use crate::record::{Body, Name};
use crate::wf::Wf;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A workflow. `#[workflow]` implements it for a function.
pub trait Workflow: Send + Sync + 'static {
    /// The name; unique among the workflows of a system.
    const NAME: &'static str;
    /// Incremented by a change that running workflows cannot take. Name and version are the kind of the run, `name@version`.
    const VERSION: u32 = 1;
    /// What a run is given.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What a run returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The error of a run.
    type Error: Into<BoxError> + Send + 'static;

    /// The code. It must be deterministic: everything that can differ between two executions comes from `wf`.
    fn run(wf: Wf, input: Self::Input) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send + 'static;
}

/// The kind of the runs of a workflow: `name@version`.
pub fn kind_of<W: Workflow>() -> String {
    format!("{}@{}", W::NAME, W::VERSION)
}

/// A message to a run. `#[derive(Signal)]` implements it.
pub trait Signal: Serialize + DeserializeOwned + Send + 'static {
    /// The name by which senders and receivers find each other.
    const NAME: &'static str;
}

/// What a workflow function returns. It can be awaited in place, and its type names the workflow.
#[must_use = "a workflow does nothing until it is awaited"]
pub struct Running<W: Workflow>(BoxFuture<'static, Result<W::Output, W::Error>>);

impl<W: Workflow> Running<W> {
    /// Wraps the future of the workflow `W`.
    pub fn new(future: impl Future<Output = Result<W::Output, W::Error>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl<W: Workflow> Unpin for Running<W> {}

impl<W: Workflow> Future for Running<W> {
    type Output = Result<W::Output, W::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<W: Workflow> fmt::Debug for Running<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Running({})", W::NAME)
    }
}

/// The two types of a `Result`, through any alias. `#[workflow]` uses it.
#[doc(hidden)]
pub trait ResultTypes {
    /// The type of the value.
    type Value;
    /// The type of the error.
    type Failure;
}

impl<T, E> ResultTypes for Result<T, E> {
    type Value = T;
    type Failure = E;
}

/// Why a workflow ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error is a cancellation or has one among its sources.
    pub is_cancelled: bool,
    /// The text of the error.
    pub message: String,
}

/// The future of a workflow without its types.
pub type RootFuture = BoxFuture<'static, Result<Body, Failure>>;

/// A workflow without its types, as the executor runs it.
pub trait AnyWorkflow: Send + Sync {
    /// The kind of its runs.
    fn kind(&self) -> Name;
    /// Starts the code. Fails when `input` does not decode.
    fn start(&self, wf: Wf, input: &[u8]) -> Result<RootFuture, String>;
}

/// Makes a workflow known to an engine by its function.
pub fn typed<W: Workflow>(_function: impl FnOnce(Wf, W::Input) -> Running<W>) -> Arc<dyn AnyWorkflow> {
    typed_of::<W>()
}

/// Makes a workflow known to an engine by its type.
pub fn typed_of<W: Workflow>() -> Arc<dyn AnyWorkflow> {
    Arc::new(Typed::<W>(PhantomData))
}

struct Typed<W>(PhantomData<fn() -> W>);

impl<W: Workflow> AnyWorkflow for Typed<W> {
    fn kind(&self) -> Name {
        kind_of::<W>().into()
    }

    fn start(&self, wf: Wf, input: &[u8]) -> Result<RootFuture, String> {
        let input: W::Input = serde_json::from_slice(input).map_err(|error| error.to_string())?;
        let code = W::run(wf.clone(), input);
        Ok(Box::pin(to_end(wf, async move { code.await.map_err(Into::into) })))
    }
}

/// A workflow of a kind that is named at run time, from JSON to JSON: for tools and for workflows in other languages.
pub fn untyped<F, Fut>(kind: impl Into<String>, code: F) -> Arc<dyn AnyWorkflow>
where
    F: Fn(Wf, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, Error>> + Send + 'static,
{
    Arc::new(Untyped { kind: kind.into(), code })
}

struct Untyped<F> {
    kind: String,
    code: F,
}

impl<F, Fut> AnyWorkflow for Untyped<F>
where
    F: Fn(Wf, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, Error>> + Send + 'static,
{
    fn kind(&self) -> Name {
        self.kind.clone().into()
    }

    fn start(&self, wf: Wf, input: &[u8]) -> Result<RootFuture, String> {
        let input = serde_json::from_slice(input).map_err(|error| error.to_string())?;
        let code = (self.code)(wf.clone(), input);
        Ok(Box::pin(to_end(wf, async move { code.await.map_err(BoxError::from) })))
    }
}

/// Runs the code, and after an error the compensations of its sagas.
async fn to_end<T: Serialize>(wf: Wf, code: impl Future<Output = Result<T, BoxError>> + Send) -> Result<Body, Failure> {
    let error = match code.await {
        Ok(value) => match Body::of(&value) {
            Ok(body) => return Ok(body),
            Err(error) => BoxError::from(format!("the result cannot be encoded as JSON: {error}")),
        },
        Err(error) => error,
    };
    let mut failure = Failure { is_cancelled: is_cancelled(&*error), message: error.to_string() };
    // The error is dropped before the next await, so that the future of the workflow stays small.
    drop(error);
    if let Err(undo) = wf.compensate_all().await {
        failure.message = format!("{}; a compensation failed: {undo}", failure.message);
    }
    Err(failure)
}
