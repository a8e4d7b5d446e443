//! Panics as errors.

use super::{Ctx, JobError};
use crate::error::words_of;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;
use windlass_core::job::FailureClass;

/// Turns a panic into an error, so that the layers outside of it see one. The worker catches panics without it, too; in
/// both cases the failure counts as a panic.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanic;

impl CatchPanic {
    /// One.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for CatchPanic {
    type Service = CatchPanicService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CatchPanicService { inner }
    }
}

/// A service with [`CatchPanic`] around it.
#[derive(Clone, Debug)]
pub struct CatchPanicService<S> {
    inner: S,
}

impl<S> Service<Ctx> for CatchPanicService<S>
where
    S: Service<Ctx, Error = JobError>,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = JobError;
    type Future = BoxFuture<'static, Result<S::Response, JobError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, ctx: Ctx) -> Self::Future {
        let panicked =
            |panic: Box<dyn std::any::Any + Send>| JobError::classed(FailureClass::Panic, words_of(panic.as_ref()));
        // A handler may panic before it has a future.
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.inner.call(ctx))) {
            Ok(call) => Box::pin(AssertUnwindSafe(call).catch_unwind().map(move |ended| ended.map_err(panicked)?)),
            Err(panic) => Box::pin(std::future::ready(Err(panicked(panic)))),
        }
    }
}
