//! Handlers of several jobs at once: one request for many mails, one insert for many rows.

use super::{Many, Returned, job_of, kept};
use crate::context::{Ctx, FromContext, Needed};
use crate::error::JobError;
use crate::job::Job;
use std::sync::Arc;

/// A job of a batch.
#[derive(Debug)]
pub struct Item<J> {
    /// The job.
    pub job: J,
    /// What is known about it: each has a lease, attempts and a log of its own.
    pub ctx: Ctx,
}

/// What a handler of batches may return: `Result<Vec<Result<J::Output, JobError>>, E>`, one for each job in their order;
/// or, for jobs that return nothing, `Result<(), E>` for all of them.
#[diagnostic::on_unimplemented(
    message = "a handler of batches of jobs with `Output = {O}` cannot return `{Self}`",
    label = "not an answer of this handler",
    note = "return `Result<Vec<Result<{O}, JobError>>, E>` with one answer for each job, in their order; for jobs whose \
            output is `()`, `Result<(), E>` answers for all of them"
)]
pub trait BatchAnswer<O>: Send {
    /// One answer for each of `jobs` jobs.
    fn into_results(self, jobs: usize) -> Vec<Result<O, JobError>>;
}

impl<O: Send, E: Into<JobError> + Send> BatchAnswer<O> for Result<Vec<Result<O, JobError>>, E> {
    fn into_results(self, jobs: usize) -> Vec<Result<O, JobError>> {
        match self {
            Ok(answers) if answers.len() == jobs => answers,
            // Which answer belongs to which job is anybody's guess.
            Ok(answers) => all_failed(&wrong_count(answers.len(), jobs), jobs),
            Err(error) => all_failed(&error.into(), jobs),
        }
    }
}

impl<E: Into<JobError> + Send> BatchAnswer<()> for Result<(), E> {
    fn into_results(self, jobs: usize) -> Vec<Result<(), JobError>> {
        match self {
            Ok(()) => (0..jobs).map(|_| Ok(())).collect(),
            Err(error) => all_failed(&error.into(), jobs),
        }
    }
}

fn wrong_count(answers: usize, jobs: usize) -> JobError {
    JobError::new(format!("the handler gave {answers} answers for {jobs} jobs"))
}

fn all_failed<O>(error: &JobError, jobs: usize) -> Vec<Result<O, JobError>> {
    (0..jobs).map(|_| Err(error.again())).collect()
}

/// An async function that handles several jobs of one kind: they come first, then up to four things that implement
/// [`FromContext`], taken from the first job's context.
#[diagnostic::on_unimplemented(
    message = "this is not a handler of batches",
    label = "not a handler of batches",
    note = "a handler of batches is an `async fn(jobs: Vec<Item<J>>, …) -> Result<Vec<Result<J::Output, JobError>>, E>` \
            where `J` implements `Job` and the other arguments implement `FromContext` (`Ctx`, `State<T>`)"
)]
pub trait BatchHandler<Args>: Clone + Send + Sync + 'static {
    /// The job that it handles.
    type Job: Job;

    /// What the worker has to be given for it.
    fn needs() -> Vec<Needed> {
        Vec::new()
    }

    /// Handles some; `first` is the context of the first of them.
    fn handle(
        &self,
        items: Vec<Item<Self::Job>>,
        first: Ctx,
    ) -> impl Future<Output = Vec<Result<<Self::Job as Job>::Output, JobError>>> + Send;
}

macro_rules! batch_handlers {
    ($(($($extra:ident),*))*) => {$(
        impl<F, Fut, J, $($extra,)*> BatchHandler<(J, $($extra,)*)> for F
        where
            F: Fn(Vec<Item<J>>, $($extra),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: BatchAnswer<J::Output>,
            J: Job,
            $($extra: FromContext,)*
        {
            type Job = J;

            fn needs() -> Vec<Needed> {
                let all: Vec<Option<Needed>> = vec![$($extra::needs()),*];
                all.into_iter().flatten().collect()
            }

            #[allow(unused_variables, non_snake_case, reason = "a handler of the jobs alone asks for nothing")]
            async fn handle(&self, items: Vec<Item<J>>, first: Ctx) -> Vec<Result<J::Output, JobError>> {
                let jobs = items.len();
                $(let $extra = match $extra::from_context(&first) {
                    Ok(extra) => extra,
                    Err(error) => return all_failed(&error, jobs),
                };)*
                self(items, $($extra),*).await.into_results(jobs)
            }
        }
    )*};
}

batch_handlers! { () (A) (A, B) (A, B, C) (A, B, C, D) }

/// Makes a handler of any jobs out of one of one kind. A job whose payload cannot be read fails alone.
pub(crate) fn route<H, Args>(handler: H) -> Many
where
    H: BatchHandler<Args>,
{
    Arc::new(move |contexts: Vec<Ctx>| {
        let handler = handler.clone();
        Box::pin(async move {
            let (mut items, mut readable) = (Vec::with_capacity(contexts.len()), Vec::new());
            let mut answers: Vec<Returned> = Vec::with_capacity(contexts.len());
            for ctx in contexts {
                match job_of::<H::Job>(&ctx) {
                    Ok(job) => {
                        readable.push(answers.len());
                        items.push(Item { job, ctx });
                        answers.push(Ok(None));
                    }
                    Err(error) => answers.push(Err(error)),
                }
            }
            let Some(first) = items.first().map(|item| item.ctx.clone()) else { return answers };
            let results = handler.handle(items, first).await;
            let wrong = (results.len() != readable.len()).then(|| wrong_count(results.len(), readable.len()));
            let mut results = results.into_iter();
            for at in readable {
                answers[at] = match (&wrong, results.next()) {
                    (None, Some(result)) => result.and_then(|output| kept(&output)),
                    (wrong, _) => Err(wrong.as_ref().map_or_else(|| wrong_count(0, 0), JobError::again)),
                };
            }
            answers
        })
    })
}
