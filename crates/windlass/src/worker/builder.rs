//! Setting a worker up.

use super::advance::Code;
use super::keeper_at::KeeperAt;
use super::run::{Parts, Worker};
use super::{Backoff, BootClock, Config, Handled, Health, LeaseClock, Stopper};
use crate::context::Needed;
use crate::durable::{UNWINDS, check_unwinds};
use crate::error::JobError;
use crate::handler::{BatchHandler, BlockingHandler, Handler, Route, batch_route, blocking_route, route};
use crate::job::{Job, ms};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::name::{Kind, Label, Labels, QueueName, WorkerId};
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{Kinds, Store};
use windlass_core::time::{Clock, SystemClock};
use windlass_core::{Error, Result};
use windlass_durable::{AnyWorkflow, Running, Wf, Workflow};

/// The most slots of a worker.
const SLOTS_MAX: usize = 100_000;

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
    pub(super) poll: Duration,
    pub(super) look: Duration,
    cancel_grace: Duration,
    drain: Duration,
    maintenance: bool,
    pub(super) advances_runs: bool,
    pub(super) workflows: Vec<Arc<dyn AnyWorkflow>>,
    build: Option<String>,
    history_cap: Option<u64>,
    pub(super) handlers: Vec<(&'static str, Handled, Option<usize>)>,
    /// Outermost first; of one handler, by its place, or of all.
    #[cfg(feature = "tower")]
    pub(super) layers: Vec<(Option<usize>, crate::layers::Around)>,
    state: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// What handlers ask for, by kind.
    needs: Vec<(&'static str, Needed)>,
    /// Something was said of a handler that is not there, or cannot have it.
    pub(super) wrong: Option<&'static str>,
    /// What was said of a handler cannot work.
    refused: Option<Error>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lease_clock: Arc<dyn LeaseClock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) keeper_at: KeeperAt,
}

impl WorkerBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            id: None,
            queues: Vec::new(),
            labels: Vec::new(),
            slots: 16,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            look: Duration::from_millis(500),
            cancel_grace: Duration::from_secs(5),
            drain: Duration::from_secs(25),
            maintenance: true,
            advances_runs: true,
            workflows: Vec::new(),
            build: None,
            history_cap: None,
            handlers: Vec::new(),
            #[cfg(feature = "tower")]
            layers: Vec::new(),
            state: HashMap::new(),
            needs: Vec::new(),
            wrong: None,
            refused: None,
            clock: Arc::new(SystemClock),
            lease_clock: Arc::new(BootClock),
            random: Arc::new(StrongRandom::from_system()),
            keeper_at: KeeperAt::Thread,
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

    /// For how long a job is leased; renewed at a third of it. 30 s when not said. A run is leased for the same time, and for
    /// at most 10 s.
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

    /// Leaves runs of workflows to other processes. They must have a worker, too, or an [`Engine`](crate::runs::Engine).
    pub fn without_runs(mut self) -> Self {
        self.advances_runs = false;
        self
    }

    /// Executes the runs of a durable workflow. Several versions of one workflow may be registered; each executes its own runs.
    pub fn workflow<W: Workflow>(self, workflow: impl FnOnce(Wf, W::Input) -> Running<W>) -> Self {
        self.any_workflow(windlass_durable::typed(workflow))
    }

    /// The same for a workflow without types.
    pub fn any_workflow(mut self, workflow: Arc<dyn AnyWorkflow>) -> Self {
        self.workflows.push(workflow);
        self
    }

    /// How the code of this program is named in histories and messages, such as a commit; at most 20 bytes are useful. By default a
    /// hash of the executable.
    pub fn build_id(mut self, build: impl Into<String>) -> Self {
        self.build = Some(build.into());
        self
    }

    /// The most records of the history of a workflow run, or of its segment if it has continued as new; 100,000 by default. All of them
    /// are replayed when the run is opened. A run that has more becomes stuck, with nothing lost; `windlass runs resume ID --cap N` or
    /// [`RunHandle::resume_with_cap`](crate::durable::RunHandle::resume_with_cap) lets it go on.
    pub fn history_cap(mut self, records: u64) -> Self {
        self.history_cap = Some(records);
        self
    }

    /// Something that handlers may ask for as [`State<T>`](crate::State).
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Handles a kind of job.
    pub fn handle<H, Args>(self, handler: H) -> Self
    where
        H: Handler<Args>,
    {
        self.add(H::Job::KIND, H::needs(), Route::One(route(handler)))
    }

    /// Handles a kind of job with a plain function that may block its thread: it runs on threads that are kept for this.
    pub fn handle_blocking<H, Args>(self, handler: H) -> Self
    where
        H: BlockingHandler<Args>,
    {
        self.add(H::Job::KIND, H::needs(), Route::One(blocking_route(handler)))
    }

    /// Handles up to `size` jobs of a kind at once: as many as have been claimed and fit into free slots. Each has a slot,
    /// a lease and an outcome of its own; the strictest timeout of them counts for all.
    pub fn handle_batch<H, Args>(self, size: usize, handler: H) -> Self
    where
        H: BatchHandler<Args>,
    {
        self.add(H::Job::KIND, H::needs(), Route::Many { run: batch_route(handler), size })
    }

    /// Handles the jobs of workflows that run commands, [`command::KIND`](crate::command::KIND).
    #[cfg(all(unix, feature = "commands"))]
    pub fn commands(mut self, commands: crate::command::Commands) -> Self {
        if let Err(error) = commands.check() {
            self.refused = Some(error);
        }
        let grace = commands.grace_time();
        let mut this = self.add(crate::command::KIND, Vec::new(), Route::One(commands.into_route()));
        if let Some((_, handled, _)) = this.handlers.last_mut() {
            handled.ends_within = Some(grace);
        }
        this
    }

    fn add(mut self, kind: &'static str, needs: Vec<Needed>, route: Route) -> Self {
        self.needs.extend(needs.into_iter().map(|needed| (kind, needed)));
        self.handlers.push((kind, Handled { route, backoff: None, ends_within: None }, None));
        self
    }

    /// The kind of the last handler takes at most so many slots.
    pub fn at_most(mut self, jobs: usize) -> Self {
        match self.handlers.last_mut() {
            Some((.., limit)) => *limit = Some(jobs),
            None => self.wrong = Some("at_most"),
        }
        self
    }

    /// How long to wait after an attempt of the last handler's kind failed, for jobs that leave it to their kind
    /// (`RetryPolicy::ByKind`); `None` gives up.
    pub fn backoff(mut self, backoff: impl Fn(u32, &JobError) -> Option<Duration> + Send + Sync + 'static) -> Self {
        match self.handlers.last_mut() {
            Some((_, handled, _)) => handled.backoff = Some(Arc::new(backoff) as Backoff),
            None => self.wrong = Some("backoff"),
        }
        self
    }

    /// Refuses what cannot work.
    #[cfg_attr(not(feature = "tower"), expect(unused_mut, reason = "layers change it"))]
    pub fn build(mut self) -> Result<Worker> {
        #[cfg(feature = "tower")]
        self.put_layers();
        if let Some(field) = self.wrong {
            return Err(Error::invalid(field, "is said before any handler that it could be for; say it after one"));
        }
        if let Some((kind, needed)) = self.needs.iter().find(|(_, needed)| !self.state.contains_key(&needed.id)) {
            let reason = format!("the handler of `{kind}` asks for a {}; give it by .state(…)", needed.name);
            return Err(Error::invalid("state", reason));
        }
        if let Some(error) = self.refused {
            return Err(error);
        }
        let config = self.config()?;
        let mut handlers = HashMap::new();
        let (mut limits, mut batches) = (Vec::new(), Vec::new());
        for (name, handled, limit) in self.handlers {
            let kind = Kind::try_from(name)?;
            if let Some(limit) = limit {
                limits.push((kind.clone(), checked_limit(name, limit)?));
            }
            if let Route::Many { size, .. } = handled.route {
                batches.push((kind.clone(), checked_batch(name, size, config.slots)?));
            }
            if handlers.insert(kind, handled).is_some() {
                return Err(Error::invalid(
                    "handler",
                    format!("the kind `{name}` has two; give one of them another kind"),
                ));
            }
        }
        if handlers.is_empty() && self.workflows.is_empty() {
            return Err(Error::invalid("handler", "there is none; a worker needs at least one"));
        }
        let kinds = Kinds::Only(handlers.keys().cloned().collect());
        // What the store would refuse at every claim is refused now.
        config.claim(0, config.queues.iter().map(|(name, _)| name.clone()).collect(), kinds, 1).check()?;
        let (store, state, clock, random) = (self.store, self.state, self.clock, self.random);
        let lease_clock = self.lease_clock;
        let parts = Parts { store, config, handlers, limits, batches, state, clock, lease_clock, random };
        let (maintenance, keeper_at, stopper) = (self.maintenance, self.keeper_at, Stopper::new());
        // A test bed has an engine only for workflows: nobody would wait there for runs of graphs.
        let advances_runs = self.advances_runs && (keeper_at == KeeperAt::Thread || !self.workflows.is_empty());
        if !self.workflows.is_empty() {
            check_unwinds(UNWINDS)?;
        }
        let code = Code { workflows: self.workflows, build: self.build, history_cap: self.history_cap };
        Ok(Worker { parts, maintenance, advances_runs, code, keeper_at, stopper, health: Health::default() })
    }

    pub(super) fn config(&self) -> Result<Config> {
        match self.slots {
            0 => return Err(Error::invalid("slots", "is 0; a worker needs at least one")),
            1..=SLOTS_MAX => {}
            slots => return Err(Error::limit("slots", SLOTS_MAX as u64, slots as u64)),
        }
        let queues = if self.queues.is_empty() { vec![("default".to_owned(), 1)] } else { self.queues.clone() };
        let queues: Result<Vec<(QueueName, u32)>> =
            queues.into_iter().map(|(name, weight)| Ok((QueueName::new(name)?, weight))).collect();
        let queues = queues?;
        let twice = queues.iter().enumerate().find(|(at, (name, _))| queues[..*at].iter().any(|(n, _)| n == name));
        if let Some((_, (name, _))) = twice {
            return Err(Error::invalid("queues", format!("`{name}` is named twice")));
        }
        if let Some((name, _)) = queues.iter().find(|(_, weight)| *weight == 0) {
            return Err(Error::invalid(
                "weight",
                format!("is 0 for the queue `{name}`; give 1 or more, or leave it out"),
            ));
        }
        let labels: Result<Vec<Label>> = self.labels.iter().map(|label| Label::new(label.as_str())).collect();
        let about = format!("pid {}, windlass {}", std::process::id(), env!("CARGO_PKG_VERSION"));
        let id = match &self.id {
            Some(id) => id.clone(),
            None => format!("{}-{}-{:08x}", host(), std::process::id(), self.random.next_u64() >> 32),
        };
        Ok(Config {
            id: WorkerId::new(id)?,
            queues,
            labels: Labels::new(labels?),
            slots: self.slots,
            lease_ms: ms(self.lease),
            poll: self.poll,
            look: self.look,
            cancel_grace: self.cancel_grace,
            drain: self.drain,
            about,
        })
    }
}

fn checked_limit(kind: &str, limit: usize) -> Result<usize> {
    match limit {
        0 => Err(Error::invalid("at_most", format!("is 0 for `{kind}`; leave its handler out, or pause the kind"))),
        limit => Ok(limit),
    }
}

fn checked_batch(kind: &str, size: usize, slots: usize) -> Result<usize> {
    match size {
        0 => Err(Error::invalid("batch", format!("is 0 for `{kind}`; give at least 1"))),
        size if size > slots => Err(Error::invalid(
            "batch",
            format!("is {size} for `{kind}`, and the worker has {slots} slots: each job of a batch needs one"),
        )),
        size => Ok(size),
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
