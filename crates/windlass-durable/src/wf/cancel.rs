//! Scopes of cancellation.

use super::Wf;
use crate::exec::{CancelGuard, NodeId, Shared, lock};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A node of the tree of cancellation. Its slot is freed when neither the future nor a handle needs it.
struct NodeRef {
    shared: Arc<Shared>,
    id: NodeId,
}

impl Drop for NodeRef {
    fn drop(&mut self) {
        if !self.shared.is_dead() {
            lock(&self.shared.state).tree.remove(self.id);
        }
    }
}

/// A future in a scope of cancellation.
#[must_use = "a future does nothing until it is awaited"]
pub struct Scoped<F> {
    // Dropped before the node that its operations belong to.
    future: Option<Pin<Box<F>>>,
    node: Arc<NodeRef>,
}

impl<F> Scoped<F> {
    pub(super) fn new(shared: Arc<Shared>, node: NodeId, future: F) -> Self {
        Self { future: Some(Box::pin(future)), node: Arc::new(NodeRef { shared, id: node }) }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _scope = CancelGuard::enter(self.node.id);
        match self.future.as_mut() {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<F> fmt::Debug for Scoped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scoped")
    }
}

/// Cancels a scope.
#[derive(Clone)]
pub struct CancelHandle {
    wf: Wf,
    node: Arc<NodeRef>,
}

impl CancelHandle {
    pub(super) fn new<F>(wf: Wf, scoped: &Scoped<F>) -> Self {
        Self { wf, node: scoped.node.clone() }
    }

    /// Cancels the scope: everything that is open in it returns `Cancelled`. A second call does nothing.
    #[track_caller]
    pub fn cancel(&self) {
        if self.wf.shared.check("cancel").is_some() {
            let wakers = lock(&self.wf.shared.state).cancel_scope(self.node.id);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelHandle")
    }
}
