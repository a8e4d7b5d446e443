//! Threads that poll workflow code.
//!
//! They have no tokio context, so that `tokio::spawn` and tokio's timers and sockets panic at their line instead of making a
//! history that no replay repeats. Their stacks are large, because the frames of deeply nested futures are.
//!
//! Code that blocks its thread keeps it from other runs. Such a thread is replaced, and ends when the code returns.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use windlass_core::{Error, Result};

/// The stack of one thread: 64 MiB of address space, of which only what is used takes memory.
const STACK_BYTES: usize = 64 << 20;
/// A thread whose code has not returned for so long is blocked, and is replaced.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_secs(1);
/// The most blocked threads that are replaced at a time.
const REPLACED_MAX: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

/// What one thread works at.
#[derive(Default)]
struct Task {
    work: Mutex<Option<Work>>,
    /// When a thread began.
    begun: Mutex<Option<Instant>>,
    /// Only with the lock of the queue.
    thread: Mutex<Thread>,
}

/// What became of the thread of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Thread {
    /// It has not returned, or has not begun.
    #[default]
    Expected,
    /// It is blocked, and another thread has taken its place.
    Replaced,
    /// It is blocked, and too many others were replaced already.
    Missed,
    /// It has returned.
    Returned,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Arc<Task>>,
    /// The threads end.
    is_closed: bool,
    replaced: usize,
    missed: usize,
    /// Threads that were ever started.
    started: usize,
}

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    added: Condvar,
}

/// A number of threads. They end when this value is dropped.
pub(super) struct PollThreads {
    pool: Arc<Pool>,
    #[cfg(feature = "testing")]
    runtime: tokio::runtime::Handle,
}

impl PollThreads {
    /// Starts `count` threads.
    #[cfg_attr(not(feature = "testing"), expect(unused_variables, reason = "only a virtual clock has to stand still"))]
    pub(super) fn start(count: usize, runtime: &tokio::runtime::Handle) -> io::Result<Self> {
        let pool = Arc::new(Pool::default());
        let threads = Self {
            pool,
            #[cfg(feature = "testing")]
            runtime: runtime.clone(),
        };
        for _ in 0..count.max(1) {
            start_thread(&threads.pool, &mut threads.pool.queue.lock())?;
        }
        Ok(threads)
    }

    /// Runs `work` on one of the threads. `blocked` is called once if it has not returned after a second, and then as often as
    /// another second has passed; when it returns true, the result is not waited for any more: [`None`].
    #[expect(clippy::disallowed_methods, reason = "how long a thread has been blocked, on the machine's clock")]
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        mut blocked: impl FnMut(Duration) -> bool,
    ) -> Result<Option<T>> {
        let (sender, mut result) = oneshot::channel();
        let send = move || {
            // Nobody waits for the result of a decision that was dropped.
            let _ = sender.send(work());
        };
        #[cfg(feature = "testing")]
        let _standing = StandingClock::new(&self.runtime);
        // It was caught below, so that the thread goes on.
        let panicked = |_| Error::corrupt("the executor of workflows panicked");
        let task = self.pool.add(Box::new(send));
        loop {
            if let Ok(result) = tokio::time::timeout(BLOCKED_AFTER, &mut result).await {
                return result.map(Some).map_err(panicked);
            }
            let time = task.begun.lock().map(|begun| begun.elapsed());
            if let Some(time) = time.filter(|time| *time >= BLOCKED_AFTER) {
                self.pool.replace(&task);
                if blocked(time) {
                    return Ok(None);
                }
            }
        }
    }

    /// Drops a value on one of the threads, where its destructors have enough stack and do not delay the runtime.
    pub(super) fn drop_there<T: Send + 'static>(&self, value: T) {
        drop(self.pool.add(Box::new(move || drop(value))));
    }

    /// False while a thread is blocked that was not replaced.
    pub(super) fn is_ready(&self) -> bool {
        self.pool.queue.lock().missed == 0
    }
}

impl Drop for PollThreads {
    fn drop(&mut self) {
        self.pool.queue.lock().is_closed = true;
        self.pool.added.notify_all();
    }
}

impl Pool {
    fn add(&self, work: Work) -> Arc<Task> {
        let task = Arc::new(Task { work: Mutex::new(Some(work)), ..Task::default() });
        self.queue.lock().tasks.push_back(Arc::clone(&task));
        self.added.notify_one();
        task
    }

    /// Starts another thread in place of the one that works at this task.
    fn replace(self: &Arc<Self>, task: &Task) {
        let mut queue = self.queue.lock();
        let mut thread = task.thread.lock();
        if !matches!(*thread, Thread::Expected | Thread::Missed) {
            return;
        }
        let is_replaced = queue.replaced < REPLACED_MAX && start_thread(self, &mut queue).is_ok();
        match (*thread, is_replaced) {
            (Thread::Missed, true) => queue.missed -= 1,
            (Thread::Expected, false) => queue.missed += 1,
            _ => {}
        }
        queue.replaced += usize::from(is_replaced);
        *thread = if is_replaced { Thread::Replaced } else { Thread::Missed };
    }

    /// Works at tasks until the threads end or this one was replaced.
    #[expect(clippy::disallowed_methods, reason = "how long a thread has been blocked, on the machine's clock")]
    fn serve(&self) {
        loop {
            let mut queue = self.queue.lock();
            let task = loop {
                match queue.tasks.pop_front() {
                    Some(task) => break task,
                    None if queue.is_closed => return,
                    None => self.added.wait(&mut queue),
                }
            };
            drop(queue);
            let work = task.work.lock().take();
            *task.begun.lock() = Some(Instant::now());
            // The executor catches panics of workflow code; one of its own must not end the thread.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.map(|work| work()))));
            let mut queue = self.queue.lock();
            let before = std::mem::replace(&mut *task.thread.lock(), Thread::Returned);
            match before {
                Thread::Replaced => {
                    queue.replaced -= 1;
                    return;
                }
                Thread::Missed => queue.missed -= 1,
                Thread::Expected | Thread::Returned => {}
            }
        }
    }
}

fn start_thread(pool: &Arc<Pool>, queue: &mut Queue) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(format!("windlass-workflow-{}", queue.started));
    let pool = Arc::clone(pool);
    drop(thread.stack_size(STACK_BYTES).spawn(move || pool.serve())?);
    queue.started += 1;
    Ok(())
}

/// While it lives, tokio's paused clock does not advance by itself: the runtime looks idle while another thread polls.
#[cfg(feature = "testing")]
struct StandingClock(#[expect(dead_code, reason = "its drop ends the task")] std::sync::mpsc::Sender<()>);

#[cfg(feature = "testing")]
impl StandingClock {
    fn new(runtime: &tokio::runtime::Handle) -> Self {
        let (sender, ended) = std::sync::mpsc::channel::<()>();
        // A paused clock stands still while a blocking task runs.
        drop(runtime.spawn_blocking(move || {
            let _ = ended.recv();
        }));
        Self(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::RwLock;
    use tokio::runtime::Handle;
    use windlass_core::time::HANG_GUARD;

    async fn until(is_so: impl Fn() -> bool) {
        let look = async {
            while !is_so() {
                // sleeps because: the state of a thread cannot be waited for.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(HANG_GUARD, look).await.expect("it becomes so");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn four_blocked_threads_are_replaced_and_a_fifth_makes_the_pool_unready() {
        let threads = Arc::new(PollThreads::start(1, &Handle::current()).unwrap());
        let gate = Arc::new(RwLock::new(()));
        let closed = gate.write();
        let (blocked, begun) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let works = futures::future::join_all((0..5).map(|_| {
            let (threads, gate, begun, blocked) = (&threads, Arc::clone(&gate), Arc::clone(&begun), &blocked);
            async move {
                let work = move || {
                    *begun.lock() += 1;
                    drop(gate.read());
                };
                let note = |_| {
                    *blocked.lock() += 1;
                    false
                };
                threads.run(work, note).await.unwrap().unwrap();
            }
        }));
        let check = async {
            assert!(threads.is_ready());
            until(|| !threads.is_ready()).await;
            assert_eq!((*begun.lock(), threads.pool.queue.lock().started), (5, 5));
            assert!(*blocked.lock() >= 5);
            drop(closed);
        };
        futures::future::join(works, check).await;
        assert!(threads.is_ready());
        // The thread that was not replaced goes on, and the replaced ones have ended.
        assert_eq!(threads.run(|| 7, |_| false).await.unwrap(), Some(7));
        until(|| threads.pool.queue.lock().replaced == 0).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_does_not_return_is_given_up() {
        let threads = PollThreads::start(1, &Handle::current()).unwrap();
        let (returns, until) = std::sync::mpsc::channel::<()>();
        let given_up = threads.run(move || until.recv().is_err(), |time| time >= BLOCKED_AFTER).await.unwrap();
        assert_eq!(given_up, None);
        assert_eq!(threads.run(|| 7, |_| false).await.unwrap(), Some(7), "another thread has taken its place");
        drop(returns);
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error_and_does_not_end_its_thread() {
        let threads = PollThreads::start(1, &Handle::current()).unwrap();
        let error = threads.run(|| panic!("by plan"), |_| false).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
        assert_eq!(threads.run(|| 7, |_| false).await.unwrap(), Some(7));
    }
}
