//! A worker that runs: its parts, started and ended together.

use super::advance::{Code, RunningEngine};
use super::builder::WorkerBuilder;
use super::keeper::Keeper;
use super::keeper_at::KeeperAt;
use super::own_thread::{MovablePump, Overseer, OwnThread, exit_if_stuck};
use super::pump::Pump;
use super::stop::Haste;
use super::{Config, Handled, Health, LeaseClock, Shared, Stopper};
use crate::client::Client;
use crate::context::World;
use crate::maintenance::Maintenance;
use crate::observe::Attempts;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use windlass_core::id::Ids;
use windlass_core::name::Kind;
use windlass_core::random::Random;
use windlass_core::store::Store;
use windlass_core::time::Clock;
use windlass_core::{Error, Result};

/// What a worker is made of.
pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: Config,
    pub(super) handlers: HashMap<Kind, Handled>,
    pub(super) limits: Vec<(Kind, usize)>,
    pub(super) batches: Vec<(Kind, usize)>,
    pub(super) state: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lease_clock: Arc<dyn LeaseClock>,
    pub(super) random: Arc<dyn Random>,
}

/// A worker that is ready to run.
pub struct Worker {
    pub(super) parts: Parts,
    pub(super) maintenance: bool,
    pub(super) advances_runs: bool,
    pub(super) code: Code,
    pub(super) keeper_at: KeeperAt,
    pub(super) stopper: Stopper,
    pub(super) health: Health,
}

impl Worker {
    /// Sets one up over a store.
    pub fn builder(store: Arc<dyn Store>) -> WorkerBuilder {
        WorkerBuilder::new(store)
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// How it is: for a readiness probe.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until SIGTERM or SIGINT, drains, and returns; a second signal ends it at once.
    ///
    /// This is for programs that end with their worker. When handlers block their threads and do not let go, their jobs
    /// are given back and the process is ended here, with exit code 1: otherwise it would hang for as long as they do.
    pub async fn run(self) -> Result<()> {
        let health = self.health();
        let done = self.run_as(true).await;
        exit_if_stuck(&health);
        done
    }

    /// Runs until its [`Stopper`] says so. [`Health::stuck`] says how many handlers it had to leave behind.
    pub async fn run_until_stopped(self) -> Result<()> {
        self.run_as(false).await
    }

    async fn run_as(self, owns_process: bool) -> Result<()> {
        let Parts { store, config, handlers, limits, batches, state, clock, lease_clock, random } = self.parts;
        let (ended, ends) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Handle::current();
        let world = Arc::new(World {
            client: Client::with(Arc::clone(&store), Ids::new(Arc::clone(&clock), Arc::clone(&random))),
            state,
            clock,
            lease_clock,
            attempts: Attempts::new(),
            log_calls: super::LogCalls::default(),
            pool: self.keeper_at.pool(config.slots, runtime.clone()),
        });
        let shared = Arc::new(Shared {
            store,
            config,
            handlers,
            limits,
            batches,
            actives: super::active::Actives::default(),
            world,
            ended,
            runners: super::runners::Runners::new(&runtime),
            runtime,
            random,
            health: self.health,
        });
        let maintenance = self.maintenance.then(|| {
            let maintenance = Maintenance::new(Arc::clone(&shared.store)).with_random(Arc::clone(&shared.random));
            self.keeper_at.pace(maintenance)
        });
        let code = self.code;
        let (stopper, drain) = (self.stopper, shared.config.drain);
        let engine = self.advances_runs.then(|| RunningEngine::start(&shared, code, stopper.watch(drain)));
        let engine = engine.transpose()?;
        let (note, noted) = watch::channel(Haste::No);
        let pump = MovablePump::new(Pump::new(Arc::clone(&shared), ends).run(stopper.watch(drain), note), noted);
        let overseer = Overseer {
            pump: pump.clone(),
            stopper: stopper.clone(),
            stop: stopper.watch(drain),
            health: shared.health.clone(),
            owns_process,
        };
        let mut own_thread = OwnThread::start(Keeper::new(shared), overseer, self.keeper_at)?;
        let mut work = std::pin::pin!(work(pump, maintenance, engine));
        let is_well = tokio::select! {
            () = &mut work => own_thread.end().await,
            has_stopped = own_thread.ended() => {
                if !has_stopped {
                    // Leases would run out while their handlers run.
                    stopper.stop_now();
                    work.await;
                }
                // Otherwise, what is left of the work needs a runtime that is blocked.
                has_stopped
            }
        };
        if is_well {
            return Ok(());
        }
        Err(Error::Unavailable { reason: "the thread that renews the leases has ended".to_owned() })
    }
}

/// What a worker does on the runtime of its handlers; the pump ends first.
async fn work(pump: MovablePump, maintenance: Option<Maintenance>, engine: Option<RunningEngine>) {
    let (pump_ended, ended) = oneshot::channel::<()>();
    let pump = async {
        pump.run().await;
        drop(pump_ended);
    };
    let maintenance = async {
        if let Some(maintenance) = maintenance {
            maintenance.run_until(async { ended.await.unwrap_or_default() }).await;
        }
    };
    futures::future::join(pump, maintenance).await;
    if let Some(engine) = engine {
        engine.end().await;
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("config", &self.parts.config).finish_non_exhaustive()
    }
}
