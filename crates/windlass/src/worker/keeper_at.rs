//! Where the keeper runs: on a thread of its own, or in a test beside the worker.

use super::keeper::Keeper;
use super::pool::Pool;
use super::stop::LAST_WORDS;
use crate::maintenance::Maintenance;
use tokio::sync::oneshot;
use windlass_core::{Error, Result};
#[cfg(feature = "testing")]
use {
    super::WorkerBuilder,
    super::lease_clock::TokioClock,
    crate::handler::{One, Route},
    std::sync::Arc,
    std::time::Duration,
    windlass_core::name::QueueName,
    windlass_core::random::Random,
    windlass_core::time::Clock,
};

/// Where the keeper runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeeperAt {
    /// On a thread of its own, where no handler can keep it from its work.
    Thread,
    /// Beside the worker, where it shares the virtual time of a test.
    #[cfg(feature = "testing")]
    Here,
}

impl KeeperAt {
    /// Where handlers run that block.
    pub(super) fn pool(self, slots: usize, runtime: tokio::runtime::Handle) -> Pool {
        match self {
            Self::Thread => Pool::new(2 * slots + 64, runtime),
            #[cfg(feature = "testing")]
            Self::Here => Pool::in_place(runtime),
        }
    }

    /// Maintenance, at the pace of the clock that the keeper has.
    pub(super) fn pace(self, maintenance: Maintenance) -> Maintenance {
        match self {
            Self::Thread => maintenance,
            #[cfg(feature = "testing")]
            Self::Here => maintenance.follow_the_feed(),
        }
    }
}

/// What a test lays its hands on.
#[cfg(feature = "testing")]
pub(crate) struct Bench {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// How long to go without a look, if the store says nothing.
    pub(crate) poll: Duration,
    /// How often the keeper looks after jobs that run.
    pub(crate) look: Duration,
    /// Put around every handler.
    pub(crate) around: Box<dyn Fn(One) -> One>,
}

/// The keeper at work.
pub(super) struct RunningKeeper {
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl RunningKeeper {
    pub(super) fn start(keeper: Keeper, at: KeeperAt) -> Result<Self> {
        let (end, ending) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        #[cfg(feature = "testing")]
        if at == KeeperAt::Here {
            let run = async move {
                keeper.run(ending).await;
                // Whoever ran the worker may be gone.
                let _ = done.send(());
            };
            drop(tokio::runtime::Handle::current().spawn(run));
            return Ok(Self { end, ended });
        }
        debug_assert_eq!(at, KeeperAt::Thread, "a test's keeper has been started");
        let failed =
            |error: std::io::Error| Error::Unavailable { reason: format!("no thread could be started: {error}") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let run = move || {
            runtime.block_on(keeper.run(ending));
            // Whoever ran the worker may be gone.
            let _ = done.send(());
        };
        std::thread::Builder::new().name("windlass-keeper".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { end, ended })
    }

    /// Returns when it has ended without being told to: it panicked.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.ended).await;
    }

    pub(super) async fn end(self) {
        // A thread that has ended needs no telling.
        let _ = self.end.send(());
        let _ = tokio::time::timeout(2 * LAST_WORDS, self.ended).await;
    }
}

#[cfg(feature = "testing")]
impl WorkerBuilder {
    /// On a test's time and randomness, with nothing on another thread.
    pub(crate) fn on(mut self, bench: Bench) -> Self {
        let Bench { clock, random, poll, look, around } = bench;
        for (_, handled, _) in &mut self.handlers {
            if let Route::One(route) = &mut handled.route {
                *route = around(Arc::clone(route));
            }
        }
        (self.clock, self.random, self.poll, self.look) = (clock, random, poll, look);
        self.lease_clock = Arc::new(TokioClock::start());
        self.keeper_at = KeeperAt::Here;
        self
    }

    /// The queues that it will serve.
    pub(crate) fn queue_names(&self) -> Vec<QueueName> {
        self.config().map(|config| config.queues.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
    }
}
