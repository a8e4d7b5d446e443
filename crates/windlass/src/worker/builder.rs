//! Setting a worker up, and running it.

use super::keeper::Keeper;
use super::pump::Pump;
use super::{Backoff, Config, Handled, Health, Shared, Stopper};
use crate::client::Client;
use crate::context::World;
use crate::error::JobError;
use crate::handler::{Handler, route};
use crate::job::{Job, ms};
use crate::maintenance::Maintenance;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use windlass_core::name::{Kind, Label, Labels, QueueName, WorkerId};
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::Store;
use windlass_core::time::{Clock, SystemClock};
use windlass_core::{Error, Result};

/// What a worker will be.
///
/// ```no_run
/// # use serde::{Deserialize, Serialize};
/// use windlass::{Ctx, Job, JobError, Worker};
///
/// # #[derive(Serialize, Deserialize)]
/// # struct Welcome { to: String }
/// # impl Job for Welcome { const KIND: &'static str = "welcome"; const QUEUE: &'static str = "mail"; type Output = (); }
/// async fn welcome(job: Welcome, ctx: Ctx) -> Result<(), JobError> {
///     println!("attempt {}: welcome, {}", ctx.attempt(), job.to);
///     Ok(())
/// }
///
/// # async fn example() -> windlass::Result<()> {
/// let store = windlass::open("sqlite://jobs.db")?;
/// Worker::builder(store).queue("mail").slots(64).handle(welcome).build()?.run().await // until SIGTERM or Ctrl-C
/// # }
/// ```
#[must_use]
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    id: Option<String>,
    queues: Vec<(String, u32)>,
    labels: Vec<String>,
    slots: usize,
    lease: Duration,
    poll: Duration,
    cancel_grace: Duration,
    drain: Duration,
    maintenance: bool,
    handlers: Vec<(&'static str, Handled, Option<usize>)>,
    state: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl WorkerBuilder {
    fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            id: None,
            queues: Vec::new(),
            labels: Vec::new(),
            slots: 16,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            cancel_grace: Duration::from_secs(5),
            drain: Duration::from_secs(25),
            maintenance: true,
            handlers: Vec::new(),
            state: HashMap::new(),
            clock: Arc::new(SystemClock),
            random: Arc::new(StrongRandom::from_system()),
        }
    }

    /// Looks for work on this queue, too. With none named: the queue `default`.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.weighted_queue(queue, 1)
    }

    /// The same; a queue with weight 3 is asked first three times as often as one with weight 1.
    pub fn weighted_queue(mut self, queue: impl Into<String>, weight: u32) -> Self {
        self.queues.push((queue.into(), weight));
        self
    }

    /// How many jobs run at once; 16 when not said.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// What this worker offers: jobs that require it may come here.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// For how long a job is leased; renewed at a third of it. 30 s when not said.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a started job may go on after the worker was asked to stop. 25 s when not said.
    pub fn drain_time(mut self, time: Duration) -> Self {
        self.drain = time;
        self
    }

    /// How long a handler has to stop by itself when its job was cancelled. 5 s when not said.
    pub fn cancel_grace(mut self, time: Duration) -> Self {
        self.cancel_grace = time;
        self
    }

    /// Its name; by default host, process and a random number. No two workers may share one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Leaves reaping, promoting, pruning and schedules to others.
    pub fn without_maintenance(mut self) -> Self {
        self.maintenance = false;
        self
    }

    /// Something that handlers may ask for as [`State<T>`](crate::State).
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Handles a kind of job.
    pub fn handle<H, Args>(mut self, handler: H) -> Self
    where
        H: Handler<Args>,
    {
        self.handlers.push((H::Job::KIND, Handled { route: route(handler), backoff: None }, None));
        self
    }

    /// The kind of the last handler takes at most so many slots.
    pub fn at_most(mut self, jobs: usize) -> Self {
        if let Some((.., limit)) = self.handlers.last_mut() {
            *limit = Some(jobs);
        }
        self
    }

    /// How long to wait after an attempt of the last handler's kind failed, for jobs that leave it to their kind
    /// (`RetryPolicy::ByKind`); `None` gives up.
    pub fn backoff(mut self, backoff: impl Fn(u32, &JobError) -> Option<Duration> + Send + Sync + 'static) -> Self {
        if let Some((_, handled, _)) = self.handlers.last_mut() {
            handled.backoff = Some(Arc::new(backoff) as Backoff);
        }
        self
    }

    /// Refuses what cannot work.
    pub fn build(self) -> Result<Worker> {
        let config = self.config()?;
        let mut handlers = HashMap::new();
        let mut limits = Vec::new();
        for (name, handled, limit) in self.handlers {
            let kind = Kind::try_from(name)?;
            if let Some(limit) = limit {
                limits.push((kind.clone(), limit.max(1)));
            }
            if handlers.insert(kind, handled).is_some() {
                return Err(Error::invalid(
                    "handler",
                    format!("the kind `{name}` has two; give one of them another kind"),
                ));
            }
        }
        if handlers.is_empty() {
            return Err(Error::invalid("handler", "there is none; a worker needs at least one"));
        }
        let world = Arc::new(World { client: Client::new(Arc::clone(&self.store)), state: self.state });
        let (store, clock, random) = (self.store, self.clock, self.random);
        let parts = Parts { store, config, handlers, limits, world, clock, random };
        Ok(Worker { parts, maintenance: self.maintenance, stopper: Stopper::new() })
    }

    fn config(&self) -> Result<Config> {
        if self.slots == 0 {
            return Err(Error::invalid("slots", "is 0; a worker needs at least one"));
        }
        let queues = if self.queues.is_empty() { vec![("default".to_owned(), 1)] } else { self.queues.clone() };
        let queues: Result<Vec<(QueueName, u32)>> =
            queues.into_iter().map(|(name, weight)| Ok((QueueName::new(name)?, weight))).collect();
        let labels: Result<Vec<Label>> = self.labels.iter().map(|label| Label::new(label.as_str())).collect();
        let about = format!("pid {}, windlass {}", std::process::id(), env!("CARGO_PKG_VERSION"));
        let id = match &self.id {
            Some(id) => id.clone(),
            None => format!("{}-{}-{:08x}", host(), std::process::id(), self.random.next_u64() >> 32),
        };
        Ok(Config {
            id: WorkerId::new(id)?,
            queues: queues?,
            labels: Labels::new(labels?),
            slots: self.slots,
            lease_ms: ms(self.lease),
            poll: self.poll,
            cancel_grace: self.cancel_grace,
            drain: self.drain,
            about,
        })
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "worker".to_owned() } else { name.to_owned() }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("queues", &self.queues)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

struct Parts {
    store: Arc<dyn Store>,
    config: Config,
    handlers: HashMap<Kind, Handled>,
    limits: Vec<(Kind, usize)>,
    world: Arc<World>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// A worker that is ready to run.
pub struct Worker {
    parts: Parts,
    maintenance: bool,
    stopper: Stopper,
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

    /// Runs until SIGTERM or SIGINT, drains, and returns; a second signal ends it at once.
    pub async fn run(self) -> Result<()> {
        let stopper = self.stopper();
        let signals = signals(stopper)?;
        tokio::select! {
            done = self.run_until_stopped() => done,
            never = signals => never,
        }
    }

    /// Runs until its [`Stopper`] says so.
    pub async fn run_until_stopped(self) -> Result<()> {
        let Parts { store, config, handlers, limits, world, clock, random } = self.parts;
        let (ended, ends) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            store,
            config,
            handlers,
            limits,
            actives: super::active::Actives::default(),
            world,
            ended,
            runtime: tokio::runtime::Handle::current(),
            clock,
            random,
            health: Health::default(),
        });
        let keeper = KeeperThread::start(Keeper::new(Arc::clone(&shared)))?;
        let maintenance = self.maintenance.then(|| Maintenance::new(Arc::clone(&shared.store)));
        let pump = Pump::new(Arc::clone(&shared), ends).run(self.stopper.watch(shared.config.drain));
        match maintenance {
            Some(maintenance) => tokio::select! {
                () = pump => {}
                () = maintenance.run() => {}
            },
            None => pump.await,
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

/// The keeper, on its thread.
struct KeeperThread {
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl KeeperThread {
    fn start(keeper: Keeper) -> Result<Self> {
        let (end, ending) = oneshot::channel();
        let (done, ended) = oneshot::channel();
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

    async fn end(self) {
        // A thread that has ended needs no telling.
        let _ = self.end.send(());
        let _ = self.ended.await;
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
