//! Handlers that block: plain functions, run on threads of their own.

use super::{Answer, One, job_of, kept};
use crate::context::{Ctx, FromContext, Needed};
use crate::error::JobError;
use crate::job::Job;
use crate::worker::Stop;
use std::sync::Arc;

/// A function that handles a job and may block its thread: the job comes first, then up to four things that implement
/// [`FromContext`]. It is told to stop by [`Ctx::is_stopped`] alone: nothing can end a thread from outside.
#[diagnostic::on_unimplemented(
    message = "this is not a blocking handler",
    label = "not a blocking handler",
    note = "a blocking handler is a plain `fn(job: J, …) -> Result<J::Output, E>` whose first argument implements `Job` \
            and whose others implement `FromContext` (`Ctx`, `State<T>`); an `async fn` goes to `handle`"
)]
pub trait BlockingHandler<Args>: Clone + Send + Sync + 'static {
    /// The job that it handles.
    type Job: Job;

    /// What the worker has to be given for it.
    fn needs() -> Vec<Needed> {
        Vec::new()
    }

    /// Handles one.
    fn handle(&self, job: Self::Job, ctx: &Ctx) -> Result<<Self::Job as Job>::Output, JobError>;
}

macro_rules! blocking_handlers {
    ($(($($extra:ident),*))*) => {$(
        impl<F, R, J, $($extra,)*> BlockingHandler<(J, R, $($extra,)*)> for F
        where
            F: Fn(J, $($extra),*) -> R + Clone + Send + Sync + 'static,
            R: Answer<J::Output>,
            J: Job,
            $($extra: FromContext,)*
        {
            type Job = J;

            fn needs() -> Vec<Needed> {
                let all: Vec<Option<Needed>> = vec![$($extra::needs()),*];
                all.into_iter().flatten().collect()
            }

            #[allow(unused_variables, reason = "a handler of the job alone asks for nothing")]
            fn handle(&self, job: J, ctx: &Ctx) -> Result<J::Output, JobError> {
                self(job, $($extra::from_context(ctx)?),*).into_result()
            }
        }
    )*};
}

blocking_handlers! { () (A) (A, B) (A, B, C) (A, B, C, D) }

/// Makes a handler of any job out of one of one job.
pub(crate) fn route<H, Args>(handler: H) -> One
where
    H: BlockingHandler<Args>,
{
    Arc::new(move |ctx: Ctx| {
        let (handler, world) = (handler.clone(), Arc::clone(&ctx.world));
        Box::pin(async move {
            let work = move || {
                if ctx.is_stopped() {
                    // It waited for a thread for longer than anybody waits for it.
                    return Err(JobError::new("it was over before it had a thread"));
                }
                if ctx.world.lease_is_over(&ctx.active) {
                    // Another worker may have the job by now. The outcome of a lost lease is not reported.
                    ctx.active.tell(Stop::Lost);
                    return Err(JobError::new("its lease ended before it had a thread"));
                }
                let job = job_of(&ctx)?;
                handler.handle(job, &ctx).and_then(|output| kept(&output))
            };
            world.pool.run(work).await?
        })
    })
}
