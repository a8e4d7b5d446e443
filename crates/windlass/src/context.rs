//! What a handler is told about its job, and what it may ask for.

use crate::client::Client;
use crate::error::JobError;
use crate::observe::{Attempts, trace_in_handler};
use crate::worker::{Active, LeaseClock, LogCalls, Pool, lines_of};
use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use windlass_core::id::JobId;
use windlass_core::job::{JobSpec, PROGRESS_BYTES_MAX, Progress, TraceContext};
use windlass_core::store::ClaimedJob;
use windlass_core::time::Clock;
#[cfg(all(unix, feature = "commands"))]
use {crate::worker::push_all, windlass_core::store::LogLine};

/// The job that is being worked on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ctx {
    pub(crate) job: Arc<ClaimedJob>,
    pub(crate) active: Arc<Active>,
    pub(crate) world: Arc<World>,
    /// The call of the handler inside of layers.
    pub(crate) call: Option<Arc<Call>>,
}

/// A call of a handler by a layer, which may drop it before the attempt ends.
#[derive(Debug, Default)]
pub(crate) struct Call {
    is_over: AtomicBool,
    over: Notify,
}

/// Ends a [`Call`] when it is dropped.
#[cfg(feature = "tower")]
#[derive(Debug)]
pub(crate) struct CallGuard(Arc<Call>);

#[cfg(feature = "tower")]
impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.over.notify_waiters();
    }
}

impl Call {
    async fn over(&self) {
        let mut over = std::pin::pin!(self.over.notified());
        // From here on no call is missed.
        over.as_mut().enable();
        if !self.is_over.load(Ordering::SeqCst) {
            over.await;
        }
    }
}

/// What all jobs of a worker share.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) state: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lease_clock: Arc<dyn LeaseClock>,
    pub(crate) attempts: Attempts,
    pub(crate) log_calls: LogCalls,
    /// Where handlers run that block.
    pub(crate) pool: Pool,
}

impl World {
    /// True when the job's lease may have ended: its whole length has passed since it was claimed or renewed.
    pub(crate) fn lease_is_over(&self, active: &Active) -> bool {
        active.lease_is_over(self.lease_clock.now())
    }
}

opaque_debug!(World);

impl Ctx {
    /// The job's id.
    pub fn id(&self) -> JobId {
        self.job.lease.job
    }

    /// Which attempt this is; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.job.lease.attempt
    }

    /// True when no attempt is left after this one.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt() >= self.job.spec.attempts
    }

    /// What the job was asked to be.
    pub fn spec(&self) -> &JobSpec {
        &self.job.spec
    }

    /// The trace that this attempt belongs to, for what it asks of others: the job's trace, with a span id of this
    /// attempt. `None` when whoever enqueued the job said none.
    ///
    /// Jobs that the handler enqueues carry it on by themselves; those of a task that it spawned do so inside of
    /// [`observe::with_trace`](crate::observe::with_trace).
    pub fn trace(&self) -> Option<TraceContext> {
        trace_in_handler(self.job.spec.trace.as_ref(), self.job.lease)
    }

    /// Enqueues further jobs.
    pub fn client(&self) -> &Client {
        &self.world.client
    }

    /// The context for one call by a layer, and what ends that call.
    #[cfg(feature = "tower")]
    pub(crate) fn of_call(mut self) -> (Self, CallGuard) {
        let call = Arc::new(Call::default());
        self.call = Some(Arc::clone(&call));
        (self, CallGuard(call))
    }

    /// True when the job was cancelled or timed out, its lease was lost, a layer has dropped the handler, or the worker goes:
    /// the outcome is not wanted any more.
    pub fn is_stopped(&self) -> bool {
        self.active.is_stopped() || self.call.as_ref().is_some_and(|call| call.is_over.load(Ordering::SeqCst))
    }

    /// Returns when [`is_stopped`](Self::is_stopped) turns true: for handlers that can stop half-way.
    pub async fn stopped(&self) {
        match &self.call {
            Some(call) => tokio::select! {
                () = self.active.stopped() => {}
                () = call.over() => {}
            },
            None => self.active.stopped().await,
        }
    }

    /// Says how far the job is, from 0 to 100. It is passed on within a second. A message of more than 4 KiB is cut.
    pub fn progress(&self, percent: u8, message: impl Into<String>) {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(PROGRESS_BYTES_MAX));
        self.active.set_progress(Progress { percent: percent.min(100), message });
    }

    /// Says that the handler is alive, for jobs with a heartbeat timeout ([`Options::heartbeat`](crate::Options::heartbeat)):
    /// an attempt that reports neither this nor [`progress`](Self::progress) for so long ends as timed out. It costs nothing
    /// and stores nothing.
    pub fn heartbeat(&self) {
        self.active.beat();
    }

    /// Adds a line to the job's log, or several when it holds line ends. It is passed on within a second, and in any case
    /// before the job ends.
    ///
    /// A job that logs faster than the store takes its lines is slowed: in a blocking handler this call waits, and an async
    /// handler goes on from its next `await` when the store has caught up. Of one that logs without an `await` 10,000 lines
    /// or 16 MiB wait at most; a line in the log says how many were left out.
    pub fn log(&self, line: impl AsRef<str>) {
        if self.active.is_full() && Pool::owns_this_thread() {
            self.world.log_calls.pass_on_soon();
            self.active.wait_for_room(|| self.is_stopped());
        }
        self.active.push_log(lines_of(self.world.clock.now(), line.as_ref()));
    }

    /// Adds lines as they are, and waits while the store has not taken enough of those before.
    #[cfg(all(unix, feature = "commands"))]
    pub(crate) async fn push_lines(&self, lines: Vec<LogLine>) {
        push_all(&self.world, &self.active, lines).await;
    }

    /// A named value for whoever comes after this job; passed on when it succeeds.
    pub fn output(&self, name: impl Into<String>, value: impl Into<String>) {
        self.active.set_output(name.into(), value.into());
    }
}

/// Something that a handler may ask for, beside its job.
#[diagnostic::on_unimplemented(
    message = "a handler cannot ask for `{Self}`",
    label = "not something a handler can ask for",
    note = "a handler takes its job first, then any of: `Ctx`, `State<T>`, or a type that implements `FromContext`"
)]
pub trait FromContext: Sized + Send {
    /// Takes it from the context.
    fn from_context(ctx: &Ctx) -> Result<Self, JobError>;

    /// What the worker has to be given for it; a worker without it is refused when it is built.
    fn needs() -> Option<Needed> {
        None
    }
}

/// A type of which the worker must have a value, see [`WorkerBuilder::state`](crate::WorkerBuilder::state).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

impl Needed {
    /// A value of this type.
    pub fn of<T: 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

impl FromContext for Ctx {
    fn from_context(ctx: &Ctx) -> Result<Self, JobError> {
        Ok(ctx.clone())
    }
}

/// What was given to the worker by [`WorkerBuilder::state`](crate::WorkerBuilder::state): a connection pool, a client, settings.
#[derive(Debug)]
pub struct State<T>(pub Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for State<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> FromContext for State<T> {
    fn from_context(ctx: &Ctx) -> Result<Self, JobError> {
        let found = ctx.world.state.get(&TypeId::of::<T>()).cloned();
        let found = found.and_then(|any| any.downcast::<T>().ok());
        let missing = || JobError::fatal(format!("the worker has no state of type {}", type_name::<T>()));
        found.map(Self).ok_or_else(missing)
    }

    fn needs() -> Option<Needed> {
        Some(Needed::of::<T>())
    }
}
