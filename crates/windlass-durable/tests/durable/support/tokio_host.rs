//! Local steps in a tokio runtime, polled on threads that are not its own.

use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;
use windlass_core::id::RunId;
use windlass_core::time::HANG_GUARD;
use windlass_durable::{BoxFuture, Host};

/// One runtime for all tests. A host must not own one: wakers hold the host, and the runtime's threads may drop them last.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap())
}

pub(crate) struct TokioHost {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl TokioHost {
    pub(crate) fn new() -> Self {
        Self { is_woken: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until a step of any run is ready.
    pub(crate) fn wait(&self) {
        let woken = self.is_woken.lock().unwrap();
        let (mut woken, timeout) = self.changed.wait_timeout_while(woken, HANG_GUARD, |woken| !*woken).unwrap();
        assert!(!timeout.timed_out(), "no step was woken");
        *woken = false;
    }
}

impl Host for TokioHost {
    fn build(&self) -> &str {
        "b1"
    }

    fn seed(&self, _run: RunId, number: u64) -> u64 {
        super::mix(number)
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _runtime = runtime().enter();
        poll();
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time)) // sleeps because: it is the timer of steps
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        runtime().spawn_blocking(work);
    }

    fn notify(&self, _run: RunId) {
        *self.is_woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}
