//! The worker's own thread: renewals, signals, and stops that the runtime of the handlers cannot carry out.
//!
//! Handlers may block every thread of the runtime they run on, and then nothing else on it goes on: no timer, no signal, no task.
//! So the keeper and the signals have a thread and a runtime of their own. The pump is polled on the runtime of the handlers,
//! because each job that starts or ends would otherwise wake another thread. This thread measures the deadlines of a stop, too.
//! When the pump does not take note of one, the runtime is blocked: then the pump is moved here, and the rest of the stop
//! happens on this thread, whatever the handlers do. It trusts the store not to need the runtime of the handlers.

use super::keeper::Keeper;
use super::keeper_at::KeeperAt;
use super::stop::{Haste, LAST_WORDS, StopWatch};
use super::{Health, Stopper};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use windlass_core::{Error, Result};

/// How long the pump may take to note a step of a stop. A runtime that does not poll it for so long counts as blocked.
const NOTES_WITHIN: Duration = Duration::from_secs(2);

/// The pump, polled where it is until it is taken.
#[derive(Clone)]
pub(super) struct MovablePump {
    pump: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
    /// The last step of a stop that the pump has noted; closed when the pump has ended.
    noted: watch::Receiver<Haste>,
}

impl MovablePump {
    pub(super) fn new(pump: impl Future<Output = ()> + Send + 'static, noted: watch::Receiver<Haste>) -> Self {
        Self { pump: Arc::new(Mutex::new(Some(pump.boxed()))), noted }
    }

    /// Takes it away from where it is polled, if it has not noted this step. Waits for a poll that is under way.
    fn take_before(&self, step: Haste) -> Option<BoxFuture<'static, ()>> {
        let mut pump = self.pump.lock();
        if *self.noted.borrow() < step { pump.take() } else { None }
    }

    /// Polls it until it has ended, here or where it was moved. Dropped, it drops the pump.
    pub(super) async fn run(self) {
        let here = DropPump(self.pump);
        let poll = std::future::poll_fn(|cx| {
            let mut slot = here.0.lock();
            let polled = slot.as_mut().map_or(Poll::Pending, |pump| pump.as_mut().poll(cx));
            if polled.is_ready() {
                // Nobody may poll it again.
                *slot = None;
            }
            polled
        });
        tokio::select! {
            biased;
            () = poll => {}
            () = ended(self.noted) => {}
        }
    }
}

struct DropPump(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Drop for DropPump {
    fn drop(&mut self) {
        let pump = self.0.lock().take();
        drop(pump);
    }
}

/// Returns when the pump has ended.
async fn ended(mut noted: watch::Receiver<Haste>) {
    while noted.changed().await.is_ok() {}
}

/// Carries out a stop when the runtime of the handlers cannot.
pub(super) struct Overseer {
    pub(super) pump: MovablePump,
    pub(super) stopper: Stopper,
    pub(super) stop: StopWatch,
    pub(super) health: Health,
    /// The process ends with this worker: signals stop it, and handlers that do not let go cannot keep it.
    pub(super) owns_process: bool,
}

impl Overseer {
    /// Returns when the pump has ended and the worker's other parts have had the time to.
    async fn run(mut self) {
        match self.until_blocked().await {
            Some((step, pump)) => {
                tracing::warn!("the runtime is blocked; the worker stops without it");
                // The pump measures the further deadlines from here on, by the clock of this thread.
                self.stopper.ask(step);
                pump.await;
            }
            None => tokio::time::sleep(2 * LAST_WORDS).await,
        }
    }

    /// The pump and the step that it has not noted in time; `None` when it has ended.
    async fn until_blocked(&mut self) -> Option<(Haste, BoxFuture<'static, ()>)> {
        let mut noted = self.pump.noted.clone();
        loop {
            let step = tokio::select! {
                step = self.stop.changed() => step,
                () = ended(noted.clone()) => return None,
            };
            match tokio::time::timeout(NOTES_WITHIN, noted.wait_for(|noted| *noted >= step)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    if let Some(pump) = self.pump.take_before(step) {
                        return Some((step, pump));
                    }
                }
            }
        }
    }
}

/// The thread at work. Dropped, it ends.
pub(super) struct OwnThread {
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl OwnThread {
    pub(super) fn start(keeper: Keeper, overseer: Overseer, at: KeeperAt) -> Result<Self> {
        let (end, ending) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        #[cfg(feature = "testing")]
        if at == KeeperAt::Here {
            let run = async move {
                keeper.run(ending.map(drop)).await;
                // The one who ran the worker may be gone.
                let _ = done.send(());
            };
            drop(tokio::runtime::Handle::current().spawn(run));
            return Ok(Self { end, ended });
        }
        debug_assert_eq!(at, KeeperAt::Thread, "a test's keeper has been started");
        let failed = |error: std::io::Error| Error::no_thread(&error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        if overseer.owns_process {
            let _entered = runtime.enter();
            drop(runtime.handle().spawn(signals(overseer.stopper.clone())?));
        }
        let run = move || runtime.block_on(run(keeper, overseer, ending, done));
        std::thread::Builder::new().name("windlass-keeper".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { end, ended })
    }

    /// Returns when it has ended without being told to: true when it has stopped the worker, false when it panicked.
    pub(super) async fn ended(&mut self) -> bool {
        (&mut self.ended).await.is_ok()
    }

    /// Ends it; false when it had panicked.
    pub(super) async fn end(self) -> bool {
        // A thread that has ended needs no telling.
        let _ = self.end.send(());
        !matches!(tokio::time::timeout(2 * LAST_WORDS, self.ended).await, Ok(Err(_)))
    }
}

/// Runs the keeper until it is told to end, or until the overseer has stopped the worker.
async fn run(keeper: Keeper, overseer: Overseer, ending: oneshot::Receiver<()>, done: oneshot::Sender<()>) {
    let (health, stopper, owns_process) = (overseer.health.clone(), overseer.stopper.clone(), overseer.owns_process);
    let (stopped, stops) = oneshot::channel::<()>();
    let end = async move {
        tokio::select! {
            _ = ending => {}
            _ = stops => {}
        }
    };
    let mut keeper = tokio::runtime::Handle::current().spawn(keeper.run(end));
    let mut overseeing = std::pin::pin!(overseer.run());
    let done = tokio::select! {
        ended = &mut keeper => match ended {
            Ok(()) => {
                // The one who ran the worker may be gone.
                let _ = done.send(());
                return;
            }
            Err(_) => {
                drop(done);
                // Leases would run out while their handlers run.
                stopper.stop_now();
                overseeing.await;
                None
            }
        },
        () = &mut overseeing => {
            drop(stopped);
            // It has limits of its own.
            let _ = keeper.await;
            Some(done)
        }
    };
    if owns_process {
        // Here, too: the runtime of the handlers may have no thread left to do so.
        exit_if_stuck(&health);
    }
    let _ = done.map(|done| done.send(()));
}

/// Ends the process when handlers have not let go.
pub(super) fn exit_if_stuck(health: &Health) {
    let stuck = health.stuck();
    if stuck > 0 {
        tracing::error!(stuck, "handlers still block their threads; the process ends without them");
        std::process::exit(1)
    }
}

#[cfg(unix)]
fn signals(stopper: Stopper) -> Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| Error::Unavailable { reason: format!("signals cannot be heard: {error}") };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        let mut heard = 0;
        loop {
            tokio::select! {
                _ = terminate.recv() => heard += 1,
                _ = interrupt.recv() => heard += 1,
            }
            if heard == 1 {
                tracing::info!("draining; once more ends it at once");
                stopper.drain();
            } else {
                stopper.stop_now();
            }
        }
    })
}
