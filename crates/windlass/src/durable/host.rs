//! What the executor needs from the engine: the runtime of local steps, randomness, and wake-ups.

use super::threads::PollThreads;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use windlass_core::id::RunId;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::{Error, Result};
use windlass_durable::{BoxFuture, Host};

/// The least and the most threads that poll workflow code.
const THREADS: (usize, usize) = (2, 16);

/// What all code runs of an engine share.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(super) host: Arc<EngineHost>,
    pub(super) threads: Arc<PollThreads>,
}

impl Executor {
    /// Starts the threads.
    pub(crate) fn start(build: Option<String>, runtime: &Handle) -> Result<Self> {
        let count = std::thread::available_parallelism().map_or(THREADS.0, usize::from).clamp(THREADS.0, THREADS.1);
        let threads = PollThreads::start(count, runtime).map_err(|error| Error::Unavailable {
            reason: format!("a thread for workflows cannot be started: {error}"),
        })?;
        let random: Arc<dyn Random> = Arc::new(StrongRandom::from_system());
        let host = EngineHost::new(build.unwrap_or_else(build_of_executable).into(), runtime.clone(), random);
        Ok(Self { host: Arc::new(host), threads: Arc::new(threads) })
    }

    /// The build of the code.
    pub(crate) fn build(&self) -> Arc<str> {
        Arc::clone(&self.host.build)
    }
}

/// A hash of the executable, so that every build has another name. Reading the file takes milliseconds.
fn build_of_executable() -> String {
    let hash = || -> std::io::Result<String> {
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut std::fs::File::open(std::env::current_exe()?)?, &mut hasher)?;
        Ok(hasher.finalize().to_hex()[..12].to_owned())
    };
    hash().unwrap_or_else(|_| "unknown".to_owned())
}

/// One for all runs of an engine.
pub(super) struct EngineHost {
    build: Arc<str>,
    runtime: Handle,
    random: Arc<dyn Random>,
    /// Runs whose decision waits for local steps.
    waiting: Mutex<HashMap<RunId, Arc<Notify>>>,
}

impl EngineHost {
    fn new(build: Arc<str>, runtime: Handle, random: Arc<dyn Random>) -> Self {
        Self { build, runtime, random, waiting: Mutex::default() }
    }

    /// Registers a decision that waits for local steps of the run, until the returned value is dropped.
    pub(super) fn listen(self: &Arc<Self>, run: RunId) -> StepListener {
        let woken = Arc::new(Notify::new());
        self.waiting.lock().insert(run, Arc::clone(&woken));
        StepListener { host: Arc::clone(self), run, woken }
    }
}

impl Host for EngineHost {
    fn build(&self) -> &str {
        &self.build
    }

    fn seed(&self, _run: RunId, _number: u64) -> u64 {
        self.random.next_u64()
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _runtime = self.runtime.enter();
        poll();
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let _runtime = self.runtime.enter();
        Box::pin(tokio::time::sleep(time))
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(self.runtime.spawn_blocking(work));
    }

    fn notify(&self, run: RunId) {
        if let Some(woken) = self.waiting.lock().get(&run) {
            woken.notify_one();
        }
    }
}

/// Receives wake-ups of the local steps of one run.
pub(super) struct StepListener {
    host: Arc<EngineHost>,
    run: RunId,
    woken: Arc<Notify>,
}

impl StepListener {
    /// Waits until a step wants to be polled. A wake-up that came before counts.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for StepListener {
    fn drop(&mut self) {
        let mut waiting = self.host.waiting.lock();
        // Another decision about the run may have taken its place.
        if waiting.get(&self.run).is_some_and(|woken| Arc::ptr_eq(woken, &self.woken)) {
            waiting.remove(&self.run);
        }
    }
}
