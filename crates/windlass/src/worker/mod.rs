//! Workers: claim, run, renew, report.
//!
//! A worker is a pump (one task: claims ahead, starts jobs, reports), a task for each job, and a keeper on a thread of its
//! own that renews the leases. So a handler that blocks its thread loses no lease, and one that panics, hangs or is
//! cancelled concerns nobody else. What it trusts: the store's answers, and its own clock for nothing but waiting.

mod active;
mod builder;
mod execute;
mod keeper;
mod pump;
mod stop;

use crate::context::World;
use crate::error::JobError;
use crate::handler::Route;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use windlass_core::job::Lease;
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::random::Random;
use windlass_core::store::{Outcome, Store};
use windlass_core::time::Clock;

pub(crate) use active::Active;
pub use builder::{Worker, WorkerBuilder};
use stop::StopWatch;
pub use stop::Stopper;

/// How a worker is set.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) id: WorkerId,
    pub(crate) queues: Vec<(QueueName, u32)>,
    pub(crate) labels: Labels,
    pub(crate) slots: usize,
    pub(crate) lease_ms: u64,
    pub(crate) poll: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) drain: Duration,
    pub(crate) about: String,
}

/// A handler and how it is treated.
pub(crate) struct Handled {
    pub(crate) route: Route,
    pub(crate) backoff: Option<Backoff>,
}

/// How long to wait after an attempt failed; `None` gives up.
pub(crate) type Backoff = Arc<dyn Fn(u32, &JobError) -> Option<Duration> + Send + Sync>;

/// What became of a job that was started.
#[derive(Debug)]
pub(crate) struct Ended {
    lease: Lease,
    /// `None` when its lease is lost and nobody wants to know.
    outcome: Option<Outcome>,
    kind_at: Option<usize>,
}

/// What the parts of a worker share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) handlers: HashMap<Kind, Handled>,
    /// Kinds that may not fill all slots, and how many they may.
    pub(crate) limits: Vec<(Kind, usize)>,
    pub(crate) actives: active::Actives,
    pub(crate) world: Arc<World>,
    pub(crate) ended: UnboundedSender<Ended>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) health: Health,
}

/// What a worker tells about itself.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// When the store last answered, in milliseconds; 0 when it never has.
    answered_at_ms: AtomicI64,
}

impl Shared {
    fn limited_kind(&self, kind: &Kind) -> Option<usize> {
        self.limits.iter().position(|(limited, _)| limited == kind)
    }

    fn note_answer(&self) {
        self.health.answered_at_ms.store(self.clock.now().as_ms(), Ordering::Relaxed);
    }

    /// From 0 to 1.
    fn fraction(&self) -> f64 {
        let bits = u32::try_from(self.random.next_u64() >> 32).unwrap_or(0);
        f64::from(bits) / f64::from(u32::MAX)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}
