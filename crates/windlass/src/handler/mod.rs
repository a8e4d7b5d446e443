//! Handlers: plain functions of a job and whatever else they ask for.

mod batch;
mod blocking;

use crate::context::{Ctx, FromContext, Needed};
use crate::error::JobError;
use crate::job::{Job, decode};
use futures::future::BoxFuture;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::payload::Payload;

pub(crate) use batch::route as batch_route;
pub use batch::{BatchAnswer, BatchHandler, Item};
pub use blocking::BlockingHandler;
pub(crate) use blocking::route as blocking_route;

/// What became of a job, as its handler sees it.
pub(crate) type Returned = Result<Option<Payload>, JobError>;
/// A handler of any job.
pub(crate) type One = Arc<dyn Fn(Ctx) -> BoxFuture<'static, Returned> + Send + Sync>;
/// A handler of several jobs at once.
pub(crate) type Many = Arc<dyn Fn(Vec<Ctx>) -> BoxFuture<'static, Vec<Returned>> + Send + Sync>;

/// How jobs of a kind are handled.
#[derive(Clone)]
pub(crate) enum Route {
    /// One by one.
    One(One),
    /// Up to `size` at once.
    Many {
        /// Handles them.
        run: Many,
        /// How many.
        size: usize,
    },
}

/// What a handler may return: `Result<J::Output, E>` for any error, or nothing.
#[diagnostic::on_unimplemented(
    message = "a handler of a job with `Output = {O}` cannot return `{Self}`",
    label = "not an answer of this handler",
    note = "return `Result<{O}, JobError>`, or `Result<{O}, E>` with any error `E`"
)]
pub trait Answer<O>: Send {
    /// As a result.
    fn into_result(self) -> Result<O, JobError>;
}

impl<O: Send, E: Into<JobError> + Send> Answer<O> for Result<O, E> {
    fn into_result(self) -> Result<O, JobError> {
        self.map_err(Into::into)
    }
}

impl Answer<()> for () {
    fn into_result(self) -> Result<(), JobError> {
        Ok(())
    }
}

/// An async function that handles a job: the job comes first, then up to four things that implement [`FromContext`].
#[diagnostic::on_unimplemented(
    message = "this is not a handler",
    label = "not a handler",
    note = "a handler is an `async fn(job: J, …) -> Result<J::Output, E>` whose first argument implements `Job` and whose \
            others implement `FromContext` (`Ctx`, `State<T>`)",
    note = "put `#[windlass::handler]` on the function, and it says what is wrong with it"
)]
pub trait Handler<Args>: Clone + Send + Sync + 'static {
    /// The job that it handles.
    type Job: Job;

    /// What the worker has to be given for it.
    fn needs() -> Vec<Needed> {
        Vec::new()
    }

    /// Handles one.
    fn handle(
        &self,
        job: Self::Job,
        ctx: Ctx,
    ) -> impl Future<Output = Result<<Self::Job as Job>::Output, JobError>> + Send;
}

macro_rules! handlers {
    ($(($($extra:ident),*))*) => {$(
        impl<F, Fut, J, $($extra,)*> Handler<(J, $($extra,)*)> for F
        where
            F: Fn(J, $($extra),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: Answer<J::Output>,
            J: Job,
            $($extra: FromContext,)*
        {
            type Job = J;

            fn needs() -> Vec<Needed> {
                let all: Vec<Option<Needed>> = vec![$($extra::needs()),*];
                all.into_iter().flatten().collect()
            }

            #[allow(unused_variables, reason = "a handler of the job alone asks for nothing")]
            async fn handle(&self, job: J, ctx: Ctx) -> Result<J::Output, JobError> {
                self(job, $($extra::from_context(&ctx)?),*).await.into_result()
            }
        }
    )*};
}

handlers! { () (A) (A, B) (A, B, C) (A, B, C, D) }

/// Makes a handler of any job out of one of one job.
pub(crate) fn route<H, Args>(handler: H) -> One
where
    H: Handler<Args>,
{
    Arc::new(move |ctx: Ctx| {
        let handler = handler.clone();
        Box::pin(async move {
            let job: H::Job = job_of(&ctx)?;
            let output = handler.handle(job, ctx).await?;
            kept(&output)
        })
    })
}

/// The job that a handler is given. One that cannot be read is tried again like any other failure: in a deploy, a worker
/// of yesterday meets jobs of today, and the next one to try may know better.
fn job_of<J: Job>(ctx: &Ctx) -> Result<J, JobError> {
    decode(&ctx.job.spec.payload)
        .map_err(|error| JobError::new(format!("its payload is not one that this worker can read: {error}")))
}

/// What is kept of what a handler returned. Nothing is not worth keeping.
fn kept(output: &impl Serialize) -> Returned {
    let bytes = serde_json::to_vec(output).map_err(|error| JobError::fatal(error.to_string()))?;
    Ok(Some(bytes).filter(|bytes| bytes != b"null").map(|bytes| Payload::new("application/json", bytes)))
}
