//! Patience with a store that goes away for a while and comes back.

use crate::failure::Failure;
use crate::secrets::hide;
use crate::ui::Ui;
use std::time::Duration;
use windlass::Error;

/// How long it is waited for.
#[derive(Clone, Copy)]
struct Patience {
    /// In all.
    away_max: Duration,
    /// The first pause between two tries; each is twice the last, up to the longest.
    first: Duration,
    longest: Duration,
}

const PATIENCE: Patience =
    Patience { away_max: Duration::from_secs(60), first: Duration::from_millis(50), longest: Duration::from_secs(1) };

/// Asks until there is an answer. An error that may pass is waited out for up to a minute, and told once.
pub(crate) async fn patiently<T>(ui: Ui, ask: impl AsyncFnMut() -> windlass::Result<T>) -> Result<T, Failure> {
    PATIENCE.wait_out(ui, ask).await
}

impl Patience {
    async fn wait_out<T>(self, ui: Ui, mut ask: impl AsyncFnMut() -> windlass::Result<T>) -> Result<T, Failure> {
        let away = match ask().await {
            Err(error) if error.is_retryable() => error,
            answer => return Ok(answer?),
        };
        ui.note(hide(&format!("note: the store is away ({}); waiting for it", reason(&away))));
        let mut last = away;
        let again = async {
            let mut pause = self.first;
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(self.longest);
                match ask().await {
                    Err(error) if error.is_retryable() => last = error,
                    answer => return answer,
                }
            }
        };
        if let Ok(answer) = tokio::time::timeout(self.away_max, again).await {
            ui.note("note: the store is back");
            return Ok(answer?);
        }
        let words = format!("the store has been away for {:?}: {}", self.away_max, reason(&last));
        Err(Failure::from(last).says(words))
    }
}

/// What the store said. That nothing was applied is no news where nothing was to be.
fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable { reason } | Error::Unknown { reason } | Error::Timeout { reason } => reason.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn away() -> Error {
        Error::Unavailable { reason: "nobody listens".to_owned() }
    }

    const SHORT: Patience = Patience {
        away_max: Duration::from_millis(200),
        first: Duration::from_millis(1),
        longest: Duration::from_millis(10),
    };

    /// On a paused clock, so that a busy machine does not use up the patience.
    #[tokio::test(start_paused = true)]
    async fn what_passes_is_waited_out_and_what_does_not_is_told() {
        let (ui, asked) = (Ui::new(true), Cell::new(0));
        let passes = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 5 { Err(away()) } else { Ok(7) }
        };
        assert_eq!(SHORT.wait_out(ui, passes).await.unwrap(), 7);

        let words = SHORT.wait_out(ui, async || Err::<(), _>(away())).await.unwrap_err().to_string();
        assert_eq!(words, "the store has been away for 200ms: nobody listens");

        asked.set(0);
        let lasts = async || {
            asked.set(asked.get() + 1);
            Err::<(), _>(Error::not_found("it"))
        };
        assert!(SHORT.wait_out(ui, lasts).await.unwrap_err().error().is_some_and(Error::is_not_found));
        assert_eq!(asked.get(), 1, "what does not pass is not waited for");
    }
}
