//! Calls that wait for a store that is unavailable for a while.

use crate::error::{OperateError, connection_failure};
use std::time::Duration;

/// How long a call waits for the store.
#[derive(Clone, Copy)]
struct Limits {
    /// The longest time in all.
    away_max: Duration,
    /// The first pause between two tries. Each pause is twice the last one.
    first: Duration,
    /// The longest pause.
    longest: Duration,
}

const LIMITS: Limits =
    Limits { away_max: Duration::from_secs(60), first: Duration::from_millis(50), longest: Duration::from_secs(1) };

/// What happens to the store while a call waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreNotice {
    /// The store does not answer; the call waits.
    Away {
        /// What the store or the connection reported.
        reason: String,
    },
    /// The store answers again.
    Back,
}

/// Repeats a call until it is answered. A retryable error is waited out for up to a minute; `notice` is called when the wait
/// begins, and when the store is back.
pub async fn wait_for_store<T>(
    notice: impl Fn(StoreNotice),
    call: impl AsyncFnMut() -> windlass::Result<T>,
) -> Result<T, OperateError> {
    LIMITS.wait(notice, call).await
}

impl Limits {
    async fn wait<T>(
        self,
        notice: impl Fn(StoreNotice),
        mut call: impl AsyncFnMut() -> windlass::Result<T>,
    ) -> Result<T, OperateError> {
        let away = match call().await {
            Err(error) if error.is_retryable() => error,
            answer => return Ok(answer?),
        };
        notice(StoreNotice::Away { reason: connection_failure(&away) });
        let mut last = away;
        let again = async {
            let mut pause = self.first;
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(self.longest);
                match call().await {
                    Err(error) if error.is_retryable() => last = error,
                    answer => return answer,
                }
            }
        };
        if let Ok(answer) = tokio::time::timeout(self.away_max, again).await {
            notice(StoreNotice::Back);
            return Ok(answer?);
        }
        let words = format!("the store has been away for {:?}: {}", self.away_max, connection_failure(&last));
        Err(OperateError::from(last).with_message(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use windlass::Error;

    fn away() -> Error {
        Error::Unavailable { reason: "nobody listens".to_owned() }
    }

    const SHORT: Limits = Limits {
        away_max: Duration::from_millis(200),
        first: Duration::from_millis(1),
        longest: Duration::from_millis(10),
    };

    /// On a paused clock, so that a busy machine does not use up the time.
    #[tokio::test(start_paused = true)]
    async fn retryable_errors_are_waited_out_and_others_are_returned_at_once() {
        let (asked, notices) = (Cell::new(0), RefCell::new(Vec::new()));
        let notice = |notice| notices.borrow_mut().push(notice);
        let passes = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 5 { Err(away()) } else { Ok(7) }
        };
        assert_eq!(SHORT.wait(notice, passes).await.unwrap(), 7);
        let away_once = StoreNotice::Away { reason: "nobody listens".to_owned() };
        assert_eq!(*notices.borrow(), [away_once, StoreNotice::Back]);

        let words = SHORT.wait(notice, async || Err::<(), _>(away())).await.unwrap_err().to_string();
        assert_eq!(words, "the store has been away for 200ms: nobody listens");

        asked.set(0);
        let lasts = async || {
            asked.set(asked.get() + 1);
            Err::<(), _>(Error::not_found("it"))
        };
        assert!(SHORT.wait(notice, lasts).await.unwrap_err().cause.is_some_and(|error| error.is_not_found()));
        assert_eq!(asked.get(), 1, "an error that stays is not waited out");
    }
}
