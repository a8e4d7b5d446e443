//! A span for every attempt.

use super::service::{Attempt, Inner, Wrap};
use super::{Ctx, JobError};
use tokio::time::Instant;
use tracing::{Instrument, Span};

/// Runs every attempt in a span `attempt` with `job`, `kind`, `queue` and `attempt`; when it ends, `outcome` (`succeeded`,
/// `failed`, or `stopped` when it was ended from outside, also by a panic) and `ms` are added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace;

impl Trace {
    /// One.
    pub fn new() -> Self {
        Self
    }
}

impl Wrap for Trace {
    fn call<S: Inner>(&self, inner: &mut S, ctx: Ctx) -> Attempt<S> {
        let span = tracing::info_span!(
            "attempt",
            job = %ctx.id(),
            kind = %ctx.spec().kind,
            queue = %ctx.spec().queue,
            attempt = ctx.attempt(),
            outcome = tracing::field::Empty,
            ms = tracing::field::Empty,
        );
        let call = span.in_scope(|| inner.call(ctx));
        let ending = Ending::begin(span.clone());
        let traced = async move {
            let result = call.await;
            ending.end(result.as_ref().err());
            result
        };
        Box::pin(traced.instrument(span))
    }
}

/// Says how an attempt ended, also when it is dropped.
struct Ending {
    span: Span,
    begun: Instant,
    outcome: &'static str,
}

impl Ending {
    #[expect(clippy::disallowed_methods, reason = "how long an attempt took is for the eyes of people")]
    fn begin(span: Span) -> Self {
        Self { span, begun: Instant::now(), outcome: "stopped" }
    }

    fn end(mut self, error: Option<&JobError>) {
        self.outcome = if error.is_some() { "failed" } else { "succeeded" };
        match error {
            Some(error) => tracing::warn!(%error, "the attempt failed"),
            None => tracing::debug!("the attempt succeeded"),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.span.record("outcome", self.outcome).record("ms", ms);
    }
}
