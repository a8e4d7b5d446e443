//! Calls that are repeated.

use crate::repeat::repeat;
use windlass_core::{Error, Result};

pub(super) use crate::repeat::PAUSE as TRY_AGAIN;

/// Repeats a call that fails with a retryable error. An engine makes every call this way while it holds runs: they would wait
/// until their lease ends. The call must be safe to repeat.
pub(super) async fn retried<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> Result<T> {
    repeat(Error::is_retryable, |_| call()).await
}
