//! A time limit for handlers.

use super::service::{Attempt, Inner, Wrap};
use super::{Ctx, JobError};
use crate::job::ms;
use std::time::Duration;
use windlass_core::job::FailureClass;

/// Ends attempts that take too long, of jobs that say nothing about it themselves. The failure counts as a timeout.
///
/// A job's own timeout ([`Options::timeout`](crate::Options::timeout)) goes before it.
#[derive(Clone, Copy, Debug)]
pub struct Timeout(Duration);

impl Timeout {
    /// After so long.
    pub fn new(time: Duration) -> Self {
        Self(time)
    }
}

impl Wrap for Timeout {
    fn call<S: Inner>(&self, inner: &mut S, ctx: Ctx) -> Attempt<S> {
        let (time, has_its_own) = (self.0, ctx.spec().timeout_ms.is_some());
        let call = inner.call(ctx);
        Box::pin(async move {
            if has_its_own {
                return call.await;
            }
            let late = |_| JobError::classed(FailureClass::Timeout, format!("it took longer than {} ms", ms(time)));
            tokio::time::timeout(time, call).await.map_err(late)?
        })
    }
}
