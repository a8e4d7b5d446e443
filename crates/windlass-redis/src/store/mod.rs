//! The store: what it holds, and how it speaks to the scripts.

mod caller;
mod change;
mod claim;
mod enqueue;
mod explain;
mod feed;
mod gather;
pub(crate) mod info;
mod list;
mod logs;
mod queue;
mod runs;
mod schedules;
mod status;
mod wait;
mod workers;

use crate::directory::{Directory, Queue};
use crate::keys::Keys;
use crate::link::{Link, Purpose, Script};
use crate::options::Options;
use crate::reply::Items;
use crate::scripts;
use caller::Caller;
use gather::Gathering;
use std::fmt;
use std::sync::Arc;
use wait::{Lines, Listener};
use windlass_core::engine::{Prepared, Signals};
use windlass_core::name::QueueName;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{NewRun, RunMessage};
use windlass_core::time::{Clock, Timestamp};
use windlass_core::{Error, Result};

/// A Redis store: a single server, a Sentinel set or a Cluster.
///
/// ```no_run
/// # async fn example() -> windlass_core::Result<()> {
/// use windlass_core::store::Store as _;
/// let store = windlass_redis::RedisStore::open_url("redis://localhost:6379?prefix=shop")?;
/// println!("{:?}", store.info().await?);
/// # Ok(())
/// # }
/// ```
pub struct RedisStore {
    pub(crate) caller: Arc<Caller>,
    pub(crate) directory: Directory,
    random: Arc<dyn Random>,
    /// Tells this process from all others that use the store.
    handle: String,
    enqueues: Gathering<Prepared>,
    new_runs: Gathering<NewRun>,
    run_messages: Gathering<RunMessage>,
    listener: Listener,
    lines: Lines,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("link", &self.caller.link).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Opens the store at a URL: `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://`. Connects when it is
    /// first used.
    pub fn open_url(url: &str) -> Result<Self> {
        Self::open(Options::from_url(url)?)
    }

    /// Opens a store.
    pub fn open(options: Options) -> Result<Self> {
        let link = Link::open(options, scripts::all())?;
        Ok(Self::over(link, scripts::all(), None, Arc::new(StrongRandom::from_system())))
    }

    /// Opens a store to be looked at, also where a store would be refused.
    pub(crate) fn open_to_examine(options: Options) -> Result<Self> {
        let link = Link::open_for(Purpose::Examine, options, scripts::all())?;
        Ok(Self::over(link, scripts::all(), None, Arc::new(StrongRandom::from_system())))
    }

    /// Opens a store on a clock and randomness of the caller's, for tests: all who use the store must have the same clock.
    #[doc(hidden)]
    pub fn open_with(options: Options, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Result<Self> {
        Self::open_with_scripts(options, clock, random, scripts::all())
    }

    /// The same with other texts of the scripts, for tests: of an older version, or with a guard in front. They stand in
    /// the order of [`scripts::all`].
    #[doc(hidden)]
    pub fn open_with_scripts(
        options: Options,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        scripts: &'static [Script],
    ) -> Result<Self> {
        let link = Link::open(options, scripts)?;
        Ok(Self::over(link, scripts, Some(clock), random))
    }

    /// Opens a store over a client of the caller's, for one server: addresses, encryption and passwords are the client's.
    /// Of the options, prefix, timeouts, `wait_replicas` and `allow_eviction` count.
    pub fn open_client(client: &redis::Client, options: Options) -> Result<Self> {
        let link = Link::from_client(client, options, scripts::all())?;
        Ok(Self::over(link, scripts::all(), None, Arc::new(StrongRandom::from_system())))
    }

    fn over(link: Link, scripts: &'static [Script], clock: Option<Arc<dyn Clock>>, random: Arc<dyn Random>) -> Self {
        let keys = Keys::new(&link.options().prefix);
        // Always of the system, and never the seeded one: two handles of one test must not be the same.
        let handle = format!("{:016x}", StrongRandom::from_system().next_u64());
        let caller = Arc::new(Caller { link, keys, scripts, clock, signals: Signals::default() });
        Self {
            enqueues: Gathering::new(Arc::clone(&caller)),
            new_runs: Gathering::new(Arc::clone(&caller)),
            run_messages: Gathering::new(Arc::clone(&caller)),
            caller,
            directory: Directory::default(),
            random,
            handle,
            listener: Listener::default(),
            lines: Lines::default(),
        }
    }

    /// How it was opened.
    pub fn options(&self) -> &Options {
        self.caller.link.options()
    }

    /// Looks at queues; at all of them when none is named.
    async fn look_at(&self, names: &[QueueName]) -> Result<Vec<(QueueName, Arc<Queue>)>> {
        self.look(names, false).await
    }

    /// The same; counting the lanes in use is work for the server.
    async fn look(&self, names: &[QueueName], count_lanes: bool) -> Result<Vec<(QueueName, Arc<Queue>)>> {
        let mut call = self.caller.script(scripts::AT.queues);
        call.arg(if count_lanes { "1" } else { "0" });
        for name in names {
            call.arg(name.as_str());
        }
        let items = self.caller.items(call).await?;
        // Those that are gone must not be planned by what they were.
        self.directory.forget(names);
        self.directory.learn(items)
    }

    /// The store's time.
    async fn time(&self) -> Result<Timestamp> {
        if let Some(clock) = &self.caller.clock {
            self.caller.signals.check_open()?;
            return Ok(clock.now());
        }
        self.caller.signals.check_open()?;
        let value = self.caller.link.command(&crate::link::Command::new("TIME")).await?;
        let mut parts = Items::of(value)?;
        let (seconds, micros) = (parts.number()?, parts.number()?);
        let ms = i64::try_from(seconds.saturating_mul(1_000).saturating_add(micros / 1_000));
        ms.map(Timestamp::from_ms).map_err(|_| Error::corrupt("the server's clock is out of range"))
    }
}
