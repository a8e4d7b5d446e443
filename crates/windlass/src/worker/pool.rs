//! Threads for handlers that block. They are made when they are needed and end when they have been idle for a while.
//!
//! A thread cannot be ended from outside. A handler that goes on after its job timed out or was cancelled keeps its
//! thread, while its slot is free again; so there may be more threads than slots, up to a bound at which jobs wait.

use crate::error::JobError;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

std::thread_local! {
    /// True on threads of a pool.
    static OWNED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The threads. Dropped, it lets the idle ones go; the others end with what they do.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    queue: Mutex<Queue>,
    more: Condvar,
    threads_max: usize,
    /// So that a handler may use async code where it has to.
    runtime: tokio::runtime::Handle,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(threads_max: usize, runtime: tokio::runtime::Handle) -> Self {
        let (queue, more) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Inner { queue, more, threads_max, runtime }))
    }

    /// One that runs everything in place: for tests on a virtual clock, which would run on while a thread works.
    #[cfg(feature = "testing")]
    pub(crate) fn in_place(runtime: tokio::runtime::Handle) -> Self {
        Self::new(0, runtime)
    }

    /// True on a thread of a pool: one that may be blocked.
    pub(crate) fn owns_this_thread() -> bool {
        OWNED.get()
    }

    /// Runs `work` on a thread of the pool. Its panic becomes a panic here.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobError> {
        if self.0.threads_max == 0 {
            return Ok(work());
        }
        let (done, end) = oneshot::channel();
        let work = move || {
            // Whoever waited may have gone.
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
        };
        Inner::push(&self.0, Box::new(work))?;
        match end.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(JobError::new("the worker ended before the job had a thread")),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        queue.work.clear();
        self.0.more.notify_all();
    }
}

impl Inner {
    fn push(this: &Arc<Self>, work: Work) -> Result<(), JobError> {
        let mut queue = this.queue.lock();
        queue.work.push_back(work);
        if queue.idle >= queue.work.len() {
            this.more.notify_one();
        } else if queue.threads < this.threads_max {
            let inner = Arc::clone(this);
            let thread = std::thread::Builder::new().name("windlass-blocking".to_owned());
            let made = thread.spawn(move || inner.work_off());
            if let Err(error) = made {
                if queue.threads == 0 {
                    queue.work.pop_back();
                    return Err(JobError::new(format!("no thread could be started: {error}")));
                }
            } else {
                queue.threads += 1;
            }
        }
        Ok(())
    }

    fn work_off(&self) {
        OWNED.set(true);
        let _entered = self.runtime.enter();
        while let Some(work) = self.next() {
            work();
        }
    }

    /// The next work; `None` when this thread is not needed any more.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(work) = queue.work.pop_front() {
                return Some(work);
            }
            queue.idle += 1;
            let late = !queue.closed && self.more.wait_for(&mut queue, IDLE).timed_out();
            queue.idle -= 1;
            if queue.work.is_empty() && (late || queue.closed) {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn pool(threads_max: usize) -> Pool {
        Pool::new(threads_max, tokio::runtime::Handle::current())
    }

    #[tokio::test]
    async fn work_runs_side_by_side_and_threads_are_used_again() {
        let pool = pool(4);
        let together = Arc::new(Barrier::new(4));
        for _ in 0..3 {
            let work = (0..4).map(|n| {
                let together = Arc::clone(&together);
                pool.run(move || {
                    together.wait();
                    n
                })
            });
            let answers = futures::future::join_all(work).await;
            assert_eq!(answers.into_iter().collect::<Result<Vec<_>, _>>().unwrap(), [0, 1, 2, 3]);
        }
        assert!(pool.0.queue.lock().threads <= 4);
    }

    #[tokio::test]
    async fn more_work_than_threads_waits_for_one() {
        let pool = pool(1);
        let answers = futures::future::join_all((0..100).map(|n| pool.run(move || n))).await;
        assert_eq!(answers.len(), 100);
        assert_eq!(pool.0.queue.lock().threads, 1);
    }

    #[tokio::test]
    async fn a_panic_comes_out_where_it_is_waited_for_and_the_thread_lives() {
        use futures::FutureExt;
        let pool = pool(1);
        let panicked = AssertUnwindSafe(pool.run(|| panic!("no"))).catch_unwind().await;
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"no"));
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_blocking_handler_may_use_async_code() {
        let pool = pool(1);
        let work = || tokio::runtime::Handle::current().block_on(async { 7 });
        assert_eq!(pool.run(work).await.unwrap(), 7);
    }
}
