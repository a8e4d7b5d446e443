//! The thread that the connections live on.
//!
//! It is not a thread of the application's runtime on purpose: a handler that blocks its thread must not keep the answers
//! from the keeper that renews leases, and a runtime that ends must not take the connections of others with it. Waits are
//! measured by this thread's clock, too, so a caller needs no timer of its own, nor does a test that stops its clock make
//! calls time out.

use futures::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use windlass_core::{Error, Result};

/// Owns the thread; dropped, it ends every task there and joins it.
pub(crate) struct Home {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Home {
    pub(crate) fn new() -> Result<Self> {
        let cannot =
            |error: std::io::Error| Error::Unavailable { reason: format!("no thread for connections: {error}") };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("windlass-redis".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
                // A name that is still being looked up must not hold up whoever closes the store.
                runtime.shutdown_background();
            })
            .map_err(cannot)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn at(&self) -> At {
        At(self.handle.clone())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        // Dropped by one of its own tasks, it ends as soon as that task does.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// A way to that thread, for tasks that must not keep it.
#[derive(Clone)]
pub(crate) struct At(Handle);

impl At {
    /// Runs a task there. The caller keeps the handle, or the task knows when to end.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(AssertUnwindSafe(task).catch_unwind().map(drop)).abort_handle()
    }

    /// Waits for at most so long, by that thread's clock; `None` when it is over.
    pub(crate) fn timeout<F: Future>(
        &self,
        limit: Duration,
        what: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let waiting = {
            let _there = self.0.enter();
            tokio::time::timeout(limit, what)
        };
        waiting.map(Result::ok)
    }

    /// Waits so long, by that thread's clock.
    pub(crate) fn sleep(&self, pause: Duration) -> tokio::time::Sleep {
        let _there = self.0.enter();
        tokio::time::sleep(pause)
    }

    /// That thread's clock.
    #[expect(clippy::disallowed_methods, reason = "paces attempts; nothing of a job is decided by it")]
    pub(crate) fn now(&self) -> Instant {
        let _there = self.0.enter();
        Instant::now()
    }
}
