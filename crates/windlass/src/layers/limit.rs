//! At most so many at once.

use super::Ctx;
use super::service::{Attempt, Inner, Wrap};
use std::sync::Arc;
use tokio::sync::Semaphore;

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

impl Wrap for Limit {
    fn call<S: Inner>(&self, inner: &mut S, ctx: Ctx) -> Attempt<S> {
        let slots = Arc::clone(&self.0);
        // The one that was asked whether it is ready is the one to call.
        let fresh = inner.clone();
        let mut inner = std::mem::replace(inner, fresh);
        Box::pin(async move {
            // It is never closed.
            let _slot = slots.acquire_owned().await.ok();
            inner.call(ctx).await
        })
    }
}
