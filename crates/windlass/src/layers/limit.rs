//! At most so many at once.

use super::{Ctx, JobError};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

/// Lets at most so many attempts run at once, over all handlers that a clone of it was put around.
///
/// One that waits keeps its slot and its lease; [`WorkerBuilder::at_most`](crate::WorkerBuilder::at_most) limits one kind
/// without that. It counts in this process alone; a queue's cap and a group's cap count over all of them.
#[derive(Clone, Debug)]
pub struct Limit(Arc<Semaphore>);

impl Limit {
    /// So many at once; 0 is taken for 1.
    pub fn new(attempts: usize) -> Self {
        Self(Arc::new(Semaphore::new(attempts.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

impl<S> Layer<S> for Limit {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService { inner, slots: Arc::clone(&self.0) }
    }
}

/// A service with a [`Limit`] around it.
#[derive(Clone, Debug)]
pub struct LimitService<S> {
    inner: S,
    slots: Arc<Semaphore>,
}

impl<S> Service<Ctx> for LimitService<S>
where
    S: Service<Ctx, Error = JobError> + Clone + Send + 'static,
    S::Response: Send,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = JobError;
    type Future = BoxFuture<'static, Result<S::Response, JobError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, ctx: Ctx) -> Self::Future {
        let slots = Arc::clone(&self.slots);
        // The one that was asked whether it is ready is the one to call.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            // It is never closed.
            let _slot = slots.acquire_owned().await.ok();
            inner.call(ctx).await
        })
    }
}
