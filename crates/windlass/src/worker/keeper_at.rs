//! Where the keeper runs: on a thread of its own, or in a test beside the worker.

use super::pool::Pool;
use crate::maintenance::Maintenance;
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

    /// The kinds of the workflows whose runs it will execute.
    pub(crate) fn workflow_kinds(&self) -> Vec<String> {
        let kinds = self.workflows.iter().filter(|_| self.advances_runs);
        kinds.map(|workflow| workflow.kind().into_owned()).collect()
    }
}
