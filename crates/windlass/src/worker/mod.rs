//! Workers: claim, run, renew, report.
//!
//! A worker is a pump (one task: claims ahead, starts jobs, reports), runners that take the jobs, and a thread of its own. There
//! the keeper renews the leases, signals are heard, and a stop is carried out when the runtime of the handlers cannot. So a
//! handler that blocks its thread loses no lease and does not delay a stop beyond its deadlines, and one that panics, hangs or
//! is cancelled concerns nobody else. Handlers that block on purpose have threads of their own. What it trusts: the store's
//! answers, and its own clock for nothing but waiting.

mod active;
mod advance;
mod builder;
mod execute;
#[cfg(test)]
mod frozen;
mod health;
mod keeper;
mod keeper_at;
#[cfg(feature = "tower")]
mod layering;
mod lease_clock;
mod lines;
#[cfg(test)]
mod logging;
mod own_thread;
mod pool;
mod pump;
mod run;
mod runners;
mod starts;
mod stop;
mod turns;

use crate::context::World;
use crate::error::JobError;
use crate::handler::Route;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use windlass_core::job::Lease;
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::random::Random;
use windlass_core::store::{ClaimRequest, Kinds, Outcome, Store};

pub(crate) use active::{Active, Stop};
pub use builder::WorkerBuilder;
pub use health::Health;
#[cfg(any(test, feature = "testing", all(unix, feature = "commands")))]
pub(crate) use health::now;
#[cfg(feature = "testing")]
pub(crate) use keeper_at::Bench;
pub(crate) use lease_clock::{BootClock, LeaseClock};
#[cfg(all(unix, feature = "commands"))]
pub(crate) use lines::push_all;
pub(crate) use lines::{LogCalls, lines_of};
pub(crate) use pool::Pool;
pub use run::Worker;
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
    /// How soon a cancelled job is told, and progress and lines are passed on.
    pub(crate) look: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) drain: Duration,
    pub(crate) about: String,
}

impl Config {
    fn claim(&self, request_id: u64, queues: Vec<QueueName>, kinds: Kinds, max: u32) -> ClaimRequest {
        let (worker, labels, lease_ms) = (self.id.clone(), self.labels.clone(), self.lease_ms);
        ClaimRequest { worker, request_id, queues, kinds, labels, max, lease_ms }
    }
}

/// A handler and how it is treated.
pub(crate) struct Handled {
    pub(crate) route: Route,
    pub(crate) backoff: Option<Backoff>,
    /// It keeps its time itself and ends within this much once it is told to, or its time is over. Others have the worker's
    /// grace when they are cancelled, and are dropped where they stand in all other cases.
    pub(crate) ends_within: Option<Duration>,
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
    /// Since when it was held.
    since: tokio::time::Instant,
}

/// What the parts of a worker share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) handlers: HashMap<Kind, Handled>,
    /// Kinds that may not fill all slots, and how many they may.
    pub(crate) limits: Vec<(Kind, usize)>,
    /// Kinds whose jobs are handled together, and how many at once.
    pub(crate) batches: Vec<(Kind, usize)>,
    pub(crate) actives: active::Actives,
    pub(crate) world: Arc<World>,
    pub(crate) ended: UnboundedSender<Ended>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) runners: runners::Runners,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) health: Health,
}

impl Shared {
    fn limited_kind(&self, kind: &Kind) -> Option<usize> {
        self.limits.iter().position(|(limited, _)| limited == kind)
    }

    fn batch_size(&self, kind: &Kind) -> Option<usize> {
        self.batches.iter().find(|(batched, _)| batched == kind).map(|(_, size)| *size)
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
