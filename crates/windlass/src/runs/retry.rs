//! Calls that are repeated.

use std::time::Duration;
use windlass_core::Result;

/// How often a call is made at most.
pub(super) const TRIES: u32 = 5;
/// The pause after the first failed call. The one after the second is twice as long, and so on.
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Repeats a call that fails with a retryable error. An engine makes every call this way while it holds runs: they would wait
/// until their lease ends. The call must be safe to repeat.
pub(super) async fn retried<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> Result<T> {
    for n in 1..TRIES {
        match call().await {
            Err(error) if error.is_retryable() => tokio::time::sleep(TRY_AGAIN * n).await,
            answer => return answer,
        }
    }
    call().await
}
