//! Calls to a store that are repeated. A call is made at most [`TRIES`] times, with a pause of [`PAUSE`] after the first
//! one, twice that after the second, and so on: half a second of pauses in all. Only a call that is safe to repeat may be
//! made this way, because a call with an unknown outcome may have been applied.

use std::time::Duration;
use windlass_core::job::NewJob;
use windlass_core::store::{EnqueueRequest, Enqueued, JobQueue};
use windlass_core::{Error, Result};

/// How often a call is made at most.
pub(crate) const TRIES: u32 = 5;
/// The pause after the first call. The pause after the n-th call is n times as long.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Makes a call again while it fails with an error for which `is_repeated` is true: [`Error::is_outcome_unknown`] for a call
/// whose answer was lost, [`Error::is_retryable`] to wait for an unavailable store as well. Returns the last answer. `call`
/// gets the number of the try; the first is 1.
pub(crate) async fn repeat<T, F>(is_repeated: fn(&Error) -> bool, call: impl Fn(u32) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    for number in 1..TRIES {
        match call(number).await {
            Err(error) if is_repeated(&error) => tokio::time::sleep(PAUSE * number).await,
            answer => return answer,
        }
    }
    call(TRIES).await
}

/// Enqueues jobs, and repeats the call while its outcome is unknown. The ids of the jobs must be fresh or custom, so that a
/// job that a repeated call finds in the store was created by an earlier try or has its custom id.
pub(crate) async fn enqueue(store: &(impl JobQueue + ?Sized), jobs: Vec<NewJob>) -> Result<Vec<Result<Enqueued>>> {
    let request = &EnqueueRequest::new(jobs);
    let call = |number| async move {
        let answers = store.enqueue(request.clone()).await?;
        let of_job = |(answer, job): (Result<Enqueued>, &NewJob)| match number {
            1 => answer,
            _ => answer.map(|answer| answer.of_repetition(job)),
        };
        Ok(answers.into_iter().zip(&request.jobs).map(of_job).collect())
    };
    repeat(Error::is_outcome_unknown, call).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use tokio::time::Instant;

    fn lost() -> Error {
        Error::Unknown { reason: "by plan".to_owned() }
    }

    fn away() -> Error {
        Error::Unavailable { reason: "by plan".to_owned() }
    }

    /// Makes a call that fails with these errors first. Returns the answer, and the numbers and times of the tries in ms.
    #[expect(clippy::disallowed_methods, reason = "the paused clock of tokio, which only the pauses move")]
    async fn play(is_repeated: fn(&Error) -> bool, errors: &[Error]) -> (Result<u32>, Vec<(u32, u128)>) {
        let (began, tries) = (Instant::now(), RefCell::new(Vec::new()));
        let call = |number: u32| {
            tries.borrow_mut().push((number, began.elapsed().as_millis()));
            let error = errors.get(tries.borrow().len() - 1).cloned();
            std::future::ready(error.map_or(Ok(number), Err))
        };
        let answer = repeat(is_repeated, call).await;
        (answer, tries.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_made_five_times_with_growing_pauses_and_its_last_error_is_returned() {
        let errors = [lost(), lost(), lost(), lost(), away(), lost()];
        let times = vec![(1, 0), (2, 50), (3, 150), (4, 300), (5, 500)];
        assert_eq!(play(Error::is_retryable, &errors).await, (Err(away()), times));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_made_again_after_an_answer_or_another_error() {
        assert_eq!(play(Error::is_retryable, &[lost(), away()]).await, (Ok(3), vec![(1, 0), (2, 50), (3, 150)]));
        assert_eq!(play(Error::is_outcome_unknown, &[away()]).await, (Err(away()), vec![(1, 0)]));
        assert_eq!(play(Error::is_outcome_unknown, &[lost()]).await, (Ok(2), vec![(1, 0), (2, 50)]));
    }
}
