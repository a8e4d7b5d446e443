//! A span for every attempt.

use super::{Ctx, JobError};
use futures::future::BoxFuture;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
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

impl<S> Layer<S> for Trace {
    type Service = TraceService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TraceService { inner }
    }
}

/// A service with [`Trace`] around it.
#[derive(Clone, Debug)]
pub struct TraceService<S> {
    inner: S,
}

impl<S> Service<Ctx> for TraceService<S>
where
    S: Service<Ctx, Error = JobError>,
    S::Response: Send,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = JobError;
    type Future = BoxFuture<'static, Result<S::Response, JobError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, ctx: Ctx) -> Self::Future {
        let span = tracing::info_span!(
            "attempt",
            job = %ctx.id(),
            kind = %ctx.spec().kind,
            queue = %ctx.spec().queue,
            attempt = ctx.attempt(),
            outcome = tracing::field::Empty,
            ms = tracing::field::Empty,
        );
        let call = span.in_scope(|| self.inner.call(ctx));
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
