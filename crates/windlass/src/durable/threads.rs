//! Threads that poll workflow code.
//!
//! They have no tokio context, so that `tokio::spawn` and tokio's timers and sockets panic at their line instead of making a
//! history that no replay repeats. Their stacks are large, because the frames of deeply nested futures are.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use windlass_core::{Error, Result};

/// The stack of one thread: 64 MiB of address space, of which only what is used takes memory.
const STACK_BYTES: usize = 64 << 20;

type Work = Box<dyn FnOnce() + Send>;

/// A fixed number of threads. They end when this value is dropped.
#[derive(Debug)]
pub(super) struct PollThreads {
    work: Sender<Work>,
    #[cfg(feature = "testing")]
    runtime: tokio::runtime::Handle,
}

impl PollThreads {
    /// Starts `count` threads.
    #[cfg_attr(not(feature = "testing"), expect(unused_variables, reason = "only a virtual clock has to stand still"))]
    pub(super) fn start(count: usize, runtime: &tokio::runtime::Handle) -> io::Result<Self> {
        let (work, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..count.max(1) {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name(format!("windlass-workflow-{number}"));
            drop(thread.stack_size(STACK_BYTES).spawn(move || serve(&queue))?);
        }
        Ok(Self {
            work,
            #[cfg(feature = "testing")]
            runtime: runtime.clone(),
        })
    }

    /// Runs `work` on one of the threads.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, result) = oneshot::channel();
        let send = move || {
            // Nobody waits for the result of a decision that was dropped.
            let _ = sender.send(work());
        };
        #[cfg(feature = "testing")]
        let _standing = StandingClock::new(&self.runtime);
        let lost = || Error::Unknown { reason: "a thread that polls workflows has ended".to_owned() };
        self.work.send(Box::new(send)).map_err(|_| lost())?;
        result.await.map_err(|_| lost())
    }
}

/// While it lives, tokio's paused clock does not advance by itself: the runtime looks idle while another thread polls.
#[cfg(feature = "testing")]
struct StandingClock(#[expect(dead_code, reason = "its drop ends the task")] Sender<()>);

#[cfg(feature = "testing")]
impl StandingClock {
    fn new(runtime: &tokio::runtime::Handle) -> Self {
        let (sender, ended) = channel();
        // A paused clock stands still while a blocking task runs.
        drop(runtime.spawn_blocking(move || {
            let _ = ended.recv();
        }));
        Self(sender)
    }
}

fn serve(queue: &Mutex<Receiver<Work>>) {
    loop {
        let work = queue.lock().recv();
        match work {
            // The executor catches panics of workflow code; one of its own must not end the thread.
            Ok(work) => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))),
            Err(_) => return,
        }
    }
}
