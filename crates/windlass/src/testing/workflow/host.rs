//! The surroundings of the runs of a test: local steps on the runtime of the test, code on a thread without a runtime.
//!
//! The simulation runs on a thread of its own, which has a large stack and no tokio context, as in an engine. While it computes,
//! the future of the test blocks its thread, so that a paused clock stands still. While the simulation waits for local steps, the
//! future of the test awaits, so that the runtime serves them.

use super::super::clock::PausedClock;
use super::mock::mixed;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use windlass_core::id::RunId;
use windlass_core::time::{HANG_GUARD, Timestamp};
use windlass_durable::{BoxFuture, Host, RunProbe};

/// The build that stands in the histories of tests.
pub(super) const BUILD: &str = "test";
/// The stack of the thread, as in an engine.
const STACK_BYTES: usize = 64 << 20;
/// A local step that waits longer than this on a paused clock waits for ever.
pub(super) const STEP_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;

pub(super) struct TestHost {
    seed: u64,
    runtime: Option<Handle>,
    woken: Arc<Notify>,
    bridge: Mutex<Bridge>,
    watch: Arc<Watch>,
}

/// What shows that the simulation proceeds.
#[derive(Default)]
struct Watch {
    steps: AtomicU64,
    probe: Mutex<Option<RunProbe>>,
}

/// What the simulation sends to the future of the test.
enum Message {
    /// Wait until a local step is ready, for at most so many milliseconds.
    Wait(Option<u64>),
    /// The simulation has ended.
    Ended,
}

/// The ends of the channels that the simulation holds.
struct Bridge {
    requests: Sender<Message>,
    elapsed: Receiver<Result<u64, &'static str>>,
}

impl TestHost {
    /// Waits until a local step is ready, for at most so long. Returns how much virtual time has passed.
    pub(super) fn wait(&self, time_ms: Option<u64>) -> Result<u64, &'static str> {
        let bridge = self.bridge.lock();
        let gone = "the future of the test was dropped";
        bridge.requests.send(Message::Wait(time_ms)).map_err(|_| gone)?;
        bridge.elapsed.recv().map_err(|_| gone)?
    }

    pub(super) fn note_progress(&self) {
        self.watch.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_probe(&self, probe: RunProbe) {
        *self.watch.probe.lock() = Some(probe);
    }
}

impl Host for TestHost {
    fn build(&self) -> &str {
        BUILD
    }

    fn seed(&self, run: RunId, number: u64) -> u64 {
        let run = run.bits();
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let run = (run as u64) ^ ((run >> 64) as u64);
        mixed(self.seed ^ run, number)
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        poll();
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn_blocking(work)),
            None => work(),
        }
    }

    fn notify(&self, _run: RunId) {
        self.woken.notify_one();
    }
}

/// Calls `work` on a thread for workflow code, and serves its local steps meanwhile.
///
/// # Panics
///
/// When `work` panics, and when it does not proceed for minutes.
#[expect(clippy::panic, reason = "a failed check of a test is a panic")]
pub(super) async fn run_there<T: Send + 'static>(
    seed: u64,
    work: impl FnOnce(Arc<TestHost>) -> T + Send + 'static,
) -> T {
    let (requests, asked) = channel();
    let (answers, elapsed) = channel();
    let (woken, watch) = (Arc::new(Notify::new()), Arc::new(Watch::default()));
    let runtime = Handle::try_current().ok();
    let pausable = runtime.as_ref().is_some_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
    // Local steps start timers while the future of the test does not run.
    let clock = pausable.then(|| PausedClock::starting_at(Timestamp::from_ms(0)));
    let ended = requests.clone();
    let bridge = Mutex::new(Bridge { requests, elapsed });
    let host =
        TestHost { seed, runtime: runtime.clone(), woken: Arc::clone(&woken), bridge, watch: Arc::clone(&watch) };
    let thread = std::thread::Builder::new().name("windlass-workflow-test".to_owned()).stack_size(STACK_BYTES);
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(Arc::new(host))));
        // Wakers may hold the host, and with it the channel, for longer than this thread lives.
        let _ = ended.send(Message::Ended);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    };
    let thread = match thread.spawn(work) {
        Ok(thread) => thread,
        Err(error) => panic!("a thread for the workflow cannot be started: {error}"),
    };
    let mut steps = 0;
    loop {
        match asked.recv_timeout(HANG_GUARD) {
            Ok(Message::Wait(time_ms)) => {
                let elapsed = match (&clock, &runtime) {
                    (Some(clock), _) => Ok(wait(clock, &woken, time_ms).await),
                    (None, Some(_)) => {
                        Err("local steps need tokio's current-thread runtime, which `#[tokio::test]` has")
                    }
                    (None, None) => Err("local steps that wait need a tokio runtime: use `#[tokio::test]`"),
                };
                // When the simulation has ended by itself, the thread says how.
                let _ = answers.send(elapsed);
            }
            Ok(Message::Ended) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let now = watch.steps.load(Ordering::Relaxed);
                let place = watch.probe.lock().as_ref().map_or_else(|| "its start".to_owned(), RunProbe::last_place);
                assert!(
                    now != steps,
                    "after {place} the code has not returned for {HANG_GUARD:?}: it blocks its thread"
                );
                steps = now;
            }
        }
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Waits on the paused clock until a step is woken. Returns how much time has passed.
async fn wait(clock: &PausedClock, woken: &Notify, time_ms: Option<u64>) -> u64 {
    let begun = clock.elapsed();
    let elapsed_ms = || u64::try_from((clock.elapsed() - begun).as_millis()).unwrap_or(u64::MAX);
    let time_ms = time_ms.unwrap_or(STEP_MS_MAX).min(STEP_MS_MAX);
    tokio::select! {
        biased;
        () = woken.notified() => elapsed_ms().min(time_ms),
        () = tokio::time::sleep(Duration::from_millis(time_ms)) => time_ms,
    }
}
