//! A time limit for handlers.

use super::{Ctx, JobError};
use crate::job::ms;
use futures::future::BoxFuture;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;
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

impl<S> Layer<S> for Timeout {
    type Service = TimeoutService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TimeoutService { inner, time: self.0 }
    }
}

/// A service with a [`Timeout`] around it.
#[derive(Clone, Debug)]
pub struct TimeoutService<S> {
    inner: S,
    time: Duration,
}

impl<S> Service<Ctx> for TimeoutService<S>
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
        let (time, has_its_own) = (self.time, ctx.spec().timeout_ms.is_some());
        let call = self.inner.call(ctx);
        Box::pin(async move {
            if has_its_own {
                return call.await;
            }
            let late = |_| JobError::classed(FailureClass::Timeout, format!("it took longer than {} ms", ms(time)));
            tokio::time::timeout(time, call).await.map_err(late)?
        })
    }
}
