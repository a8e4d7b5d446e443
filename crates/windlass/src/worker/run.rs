//! A worker that runs: its parts, started and ended together.

use super::advance::RunningEngine;
use super::builder::WorkerBuilder;
use super::keeper::Keeper;
use super::keeper_at::{KeeperAt, RunningKeeper};
use super::pump::Pump;
use super::{Config, Handled, Health, LeaseClock, Shared, Stopper};
use crate::client::Client;
use crate::context::World;
use crate::maintenance::Maintenance;
use crate::observe::Attempts;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
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
        let (stopper, health) = (self.stopper(), self.health());
        let signals = signals(stopper)?;
        let done = tokio::select! {
            done = self.run_until_stopped() => done,
            never = signals => never,
        };
        match health.stuck() {
            0 => done,
            stuck => {
                tracing::error!(stuck, "handlers still block their threads; the process ends without them");
                std::process::exit(1)
            }
        }
    }

    /// Runs until its [`Stopper`] says so. [`Health::stuck`] says how many handlers it had to leave behind.
    pub async fn run_until_stopped(self) -> Result<()> {
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
        let mut keeper = RunningKeeper::start(Keeper::new(Arc::clone(&shared)), self.keeper_at)?;
        let maintenance = self.maintenance.then(|| {
            let maintenance = Maintenance::new(Arc::clone(&shared.store)).with_random(Arc::clone(&shared.random));
            self.keeper_at.pace(maintenance)
        });
        let engine = self.advances_runs.then(|| RunningEngine::start(Arc::clone(&shared.store), &shared.runtime));
        let engine = engine.transpose()?;
        let pump = Pump::new(Arc::clone(&shared), ends).run(self.stopper.watch(shared.config.drain));
        let (pump_ended, ended) = oneshot::channel::<()>();
        let pump = async {
            pump.await;
            drop(pump_ended);
        };
        let maintenance = async {
            if let Some(maintenance) = maintenance {
                maintenance.run_until(async { ended.await.unwrap_or_default() }).await;
            }
        };
        let mut work = std::pin::pin!(futures::future::join(pump, maintenance));
        tokio::select! {
            _ = &mut work => {}
            () = keeper.lost() => {
                // Leases would run out under its hands, and nobody would know.
                self.stopper.stop_now();
                work.await;
                return Err(Error::Unavailable { reason: "the thread that renews the leases has ended".to_owned() });
            }
        }
        if let Some(engine) = engine {
            engine.end().await;
        }
        keeper.end().await;
        Ok(())
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("config", &self.parts.config).finish_non_exhaustive()
    }
}

#[cfg(unix)]
fn signals(stopper: Stopper) -> Result<impl Future<Output = Result<()>>> {
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
