//! The way to the server. The only module that names the `redis` crate.
//!
//! A [`Link`] holds one connection on which all calls are under way at once (`Wire`), made by the first call and made
//! again by the next call after it broke. A store lives in one slot, so on a cluster, too, one connection to the slot's
//! owner is enough; whoever the owner is, is asked again when it is gone or sends us elsewhere. What may have been applied
//! is never sent a second time: a call whose connection breaks is answered `Unknown`, and its author, who knows its ids,
//! repeats it. Sent again are only calls that a server has refused as a whole (NOSCRIPT, MOVED, ASK, TRYAGAIN, READONLY,
//! CLUSTERDOWN), for a bounded number of times.
//!
//! All I/O happens on a thread of its own (`home.rs` says why).

mod blocking;
mod check;
mod command;
mod dial;
mod exchange;
mod find;
mod home;
mod life;
pub(crate) mod rights;
mod sentinel;
mod slot;
mod subscribe;
mod wire;

pub use blocking::Blocking;
pub use command::{Call, Command, Script};
pub use redis::Value;
pub use rights::ON_KEYS;
pub use slot::slot_of;
pub use subscribe::{Event, Subscription};

use crate::error::{unavailable, unknown};
use crate::options::{Node, Options, WaitReplicas};
use exchange::{Answers, What};
use home::{At, Home};
use life::Life;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use sentinel::Sentinels;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use windlass_core::random::StrongRandom;
use windlass_core::{Error, Result};
use wire::Wire;

/// How many connections calls share that wait for replicas: while one waits, the server reads nothing else from it.
const DURABLE_WIRES: usize = 4;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To work on a store: a server or a user that would do half of it is refused.
    Work,
    /// To look at a server, also at one that a store would be refused on.
    Examine,
    /// To ask a Sentinel.
    AskSentinel,
}

/// What all parts of a link, and the tasks on its thread, have in common.
pub(crate) struct Shared {
    options: Options,
    scripts: &'static [Script],
    purpose: Purpose,
    /// There were enough replicas once: that they are too few is no slip of the options.
    had_replicas: AtomicBool,
    /// The user's own client, instead of one made from the options.
    own: Option<redis::Client>,
    at: At,
    random: StrongRandom,
    slot: u16,
    /// The node that a redirection of the cluster has named. It is tried once.
    redirect: Mutex<Option<Node>>,
    /// The primaries of the cluster and the replicas of the store's slot, as they were last reported.
    known: Mutex<Vec<Node>>,
    /// With Sentinels only.
    sentinels: Option<Sentinels>,
}

impl Shared {
    /// There is no connection in time.
    fn too_late(&self) -> Error {
        let ms = self.options.connect_timeout.as_millis();
        // A server that speaks no TLS takes our greeting for the beginning of something, and waits for the rest.
        let hint = if self.options.tls.is_some() {
            "; if the server speaks no TLS, write redis:// instead of rediss://, or leave out tls=true"
        } else {
            ""
        };
        unavailable(format!("no connection within {ms} ms{hint}"))
    }

    /// The error without our secrets.
    fn scrub(&self, error: Error) -> Error {
        let clean = |text: String| self.options.scrub(text);
        match error {
            Error::Unavailable { reason } => Error::Unavailable { reason: clean(reason) },
            Error::Invalid { field, reason } => Error::Invalid { field, reason: clean(reason) },
            Error::Incompatible { what } => Error::Incompatible { what: clean(what) },
            Error::Corrupt { what } => Error::Corrupt { what: clean(what) },
            other => other,
        }
    }
}

/// A connection, as its users have it.
#[derive(Clone)]
pub(crate) struct Conn {
    mux: MultiplexedConnection,
    life: Arc<Life>,
    node: Arc<Node>,
}

impl Conn {
    fn is_over(&self) -> bool {
        self.life.is_over()
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.life, &other.life)
    }
}

/// The way to the server; cheap to clone.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    calls: Wire,
    durable: [Wire; DURABLE_WIRES],
    next_durable: AtomicUsize,
    /// The node that takes over our slot, while it does.
    importer: Mutex<Option<Arc<Wire>>>,
    // Last, so that it is dropped last: it ends the thread.
    home: Home,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("options", &self.0.shared.options).finish_non_exhaustive()
    }
}

impl Link {
    /// A link that connects when it is first used. The scripts are left at the server with every connection.
    pub fn open(options: Options, scripts: &'static [Script]) -> Result<Self> {
        Self::build(options, scripts, Purpose::Work, None)
    }

    /// The same for another purpose.
    pub(crate) fn open_for(purpose: Purpose, options: Options, scripts: &'static [Script]) -> Result<Self> {
        Self::build(options, scripts, purpose, None)
    }

    /// A link over the user's own client for a single server, who sees to addresses, encryption and passwords. The
    /// options' prefix, timeouts and `allow_eviction` apply, their topology, user and encryption do not.
    pub fn from_client(client: &redis::Client, options: Options, scripts: &'static [Script]) -> Result<Self> {
        let own = dial::own(client)?;
        Self::build(options, scripts, Purpose::Work, Some(own))
    }

    fn build(
        options: Options,
        scripts: &'static [Script],
        purpose: Purpose,
        own: Option<redis::Client>,
    ) -> Result<Self> {
        options.validate()?;
        let home = Home::new()?;
        let sentinels = if own.is_none() { Sentinels::of(&options.topology) } else { None };
        let shared = Arc::new(Shared {
            slot: slot_of(&options.prefix),
            options,
            scripts,
            purpose,
            had_replicas: AtomicBool::new(false),
            own,
            at: home.at(),
            random: StrongRandom::from_system(),
            redirect: Mutex::default(),
            known: Mutex::default(),
            sentinels,
        });
        Ok(Self(Arc::new(Inner {
            calls: Wire::new(Arc::clone(&shared)),
            durable: std::array::from_fn(|_| Wire::durable(Arc::clone(&shared))),
            next_durable: AtomicUsize::new(0),
            importer: Mutex::default(),
            shared,
            home,
        })))
    }

    /// How it was opened.
    pub fn options(&self) -> &Options {
        &self.0.shared.options
    }

    /// The slot of the store's keys.
    pub fn slot(&self) -> u16 {
        self.0.shared.slot
    }

    /// Runs a script.
    pub async fn call(&self, call: &Call<'_>) -> Result<Value> {
        let limit = self.options().response_timeout;
        Ok(self.0.run(&self.0.calls, What::Script(call), None, limit).await?.main)
    }

    /// Runs a script, and waits until as many replicas have its changes as the options say; without `wait_replicas` it is
    /// [`Link::call`]. `Unknown` when too few have them: the primary has.
    pub async fn durable_call(&self, call: &Call<'_>) -> Result<Value> {
        let Some(wanted) = self.options().wait_replicas else { return self.call(call).await };
        let limit = self.options().response_timeout;
        let at = self.0.next_durable.fetch_add(1, Ordering::Relaxed) % DURABLE_WIRES;
        let wanted = match (wanted, &self.0.shared.sentinels) {
            (WaitReplicas::Count(count), _) => count,
            (WaitReplicas::All, Some(sentinels)) => {
                // With a connection to the primary there are reports of the Sentinels, too.
                self.0.durable[at].get().await?;
                sentinels.replicas_up()?
            }
            (WaitReplicas::All, None) => return Err(unavailable("there are no Sentinels that count the replicas")),
        };
        // So that it is the server who says that it took too long, and how far it came.
        let wait_ms = (limit * 3 / 4).as_millis().max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(wait_ms.to_string());
        let Answers { main, tail } = self.0.run(&self.0.durable[at], What::Script(call), Some(&wait), limit).await?;
        match tail {
            Some(Value::Int(got)) if got >= i64::from(wanted) => Ok(main),
            Some(Value::Int(got)) => {
                Err(unknown(format!("{got} of {wanted} replicas confirmed the change within {wait_ms} ms")))
            }
            _ => Err(unknown("the server does not say which replicas have the change")),
        }
    }

    /// Sends a command.
    pub async fn command(&self, command: &Command) -> Result<Value> {
        let limit = self.options().response_timeout;
        Ok(self.0.run(&self.0.calls, What::Plain(&command.0), None, limit).await?.main)
    }

    /// Sends commands together; each has its own answer. They are not redirected: for what concerns the server.
    pub async fn commands(&self, commands: &[Command]) -> Result<Vec<Result<Value>>> {
        self.0.send_all(commands).await
    }

    /// A connection of its own for a command that waits at the server.
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// The messages of a channel, from now until the subscription is dropped. On a cluster the channel's name must have
    /// the hash tag of the store.
    pub fn subscribe(&self, channel: impl Into<String>) -> Subscription {
        Subscription::new(self.clone(), channel.into())
    }

    /// Runs a task on the link's own thread: a runtime that ends does not end it, and the end of the link does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.at().spawn(task)
    }

    /// Waits for at most so long, by the clock of the link's thread; `None` when the time is over.
    pub(crate) async fn timeout<F: Future>(&self, limit: Duration, what: F) -> Option<F::Output> {
        self.at().timeout(limit, what).await
    }

    /// The clock of the link's thread.
    pub(crate) fn now(&self) -> tokio::time::Instant {
        self.at().now()
    }

    fn at(&self) -> At {
        self.0.home.at()
    }
}

/// The time to wait before the turn with this number.
fn pause(turn: u32) -> Duration {
    Duration::from_millis(10).saturating_mul(1 << turn.min(5))
}
