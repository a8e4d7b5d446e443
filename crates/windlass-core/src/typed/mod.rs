//! Typed jobs: what is enqueued, and how.

#[doc(hidden)]
pub mod trace;

use crate::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor, TraceContext};
use crate::name::{CustomId, DedupKey, Kind, Labels, QueueName};
use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::time::Timestamp;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A job: a value that a worker can be handed. Its kind names the handler.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass_core::typed::{Job, Options};
///
/// #[derive(Serialize, Deserialize)]
/// struct Welcome { to: String }
///
/// impl Job for Welcome {
///     const KIND: &'static str = "welcome";
///     const QUEUE: &'static str = "mail";
///     type Output = ();
///
///     fn options(&self) -> Options {
///         Options::new().attempts(5).unique(&self.to)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "not a job",
    note = "implement `windlass::Job` for `{Self}`, or put `#[derive(Serialize, Deserialize, Job)]` on it"
)]
pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What it is; unique among the jobs of a system, and never changed while one is stored.
    const KIND: &'static str;
    /// The queue it waits on.
    const QUEUE: &'static str = "default";
    /// What its handler returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// How it is to be treated; what is asked for at the call comes on top.
    fn options(&self) -> Options {
        Options::new()
    }
}

/// How a job is to be treated. Whatever is not said has its default: 3 attempts, 1 stall, exponential back-off from one
/// second, priority 0, at once.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    queue: Option<String>,
    priority: Option<i16>,
    lifo: bool,
    attempts: Option<u32>,
    stalls: Option<u32>,
    timeout: Option<Duration>,
    heartbeat: Option<Duration>,
    retry: Option<RetryPolicy>,
    labels: Vec<String>,
    group: Option<String>,
    id: Option<String>,
    dedup: Option<(Option<String>, DedupMode, Option<Duration>)>,
    due: Option<Due>,
    keep_succeeded: Option<Duration>,
    keep_failed: Option<Duration>,
    metadata: Vec<(String, String)>,
    trace: Option<TraceContext>,
}

impl Options {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// On another queue than its own.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Lower goes first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// At the head of its priority instead of its end.
    pub fn lifo(mut self) -> Self {
        self.lifo = true;
        self
    }

    /// How often it may be tried.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// How often its worker may vanish under it.
    pub fn stalls(mut self, stalls: u32) -> Self {
        self.stalls = Some(stalls);
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long an attempt may go without a heartbeat or a report of progress. Its worker then ends it like one that takes longer
    /// than its timeout.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// How long to wait between attempts.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// What its worker must offer.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// The group it belongs to: a tenant, an account.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// An id of your own: while the job is kept, a second one with it is the same job, and one with another content is
    /// refused.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// At most one unfinished job with this key: a second one is turned away and answered with the first.
    pub fn unique(self, key: impl Into<String>) -> Self {
        self.dedup(Some(key.into()), DedupMode::Reject, None)
    }

    /// Dedup in any of its modes: by `key`, or by the payload when there is none.
    pub fn dedup(mut self, key: Option<String>, mode: DedupMode, ttl: Option<Duration>) -> Self {
        self.dedup = Some((key, mode, ttl));
        self
    }

    /// Not before this much time has passed, by the store's clock.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Some(Due::DelayMs(ms(delay)));
        self
    }

    /// Not before this time.
    pub fn run_at(mut self, at: Timestamp) -> Self {
        self.due = Some(Due::At(at));
        self
    }

    /// How long it is kept after it succeeded; zero removes it at once.
    pub fn keep_succeeded(mut self, time: Duration) -> Self {
        self.keep_succeeded = Some(time);
        self
    }

    /// How long it is kept after it failed.
    pub fn keep_failed(mut self, time: Duration) -> Self {
        self.keep_failed = Some(time);
        self
    }

    /// Something to carry along.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// The trace it belongs to: what it is handled in becomes a child of this span. One that cannot be read is refused
    /// with `Invalid`. Without it: that of `windlass::observe::with_trace`, of the handler that enqueues it, or of the
    /// current span (feature `opentelemetry` of `windlass`).
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// `self`, and where it says nothing, `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            queue: self.queue.or(other.queue),
            priority: self.priority.or(other.priority),
            lifo: self.lifo || other.lifo,
            attempts: self.attempts.or(other.attempts),
            stalls: self.stalls.or(other.stalls),
            timeout: self.timeout.or(other.timeout),
            heartbeat: self.heartbeat.or(other.heartbeat),
            retry: self.retry.or(other.retry),
            labels: if self.labels.is_empty() { other.labels } else { self.labels },
            group: self.group.or(other.group),
            id: self.id.or(other.id),
            dedup: self.dedup.or(other.dedup),
            due: self.due.or(other.due),
            keep_succeeded: self.keep_succeeded.or(other.keep_succeeded),
            keep_failed: self.keep_failed.or(other.keep_failed),
            metadata: if self.metadata.is_empty() { other.metadata } else { self.metadata },
            trace: self.trace.or(other.trace),
        }
    }

    /// What a store is told: the spec and when it is due.
    pub fn into_spec(self, queue: &str, kind: &str, payload: Payload) -> Result<(JobSpec, Due)> {
        self.into_spec_of(&Names { queue: queue.try_into()?, kind: kind.try_into()? }, payload)
    }

    /// The same for one of many jobs of a type, whose names were checked once.
    #[doc(hidden)]
    pub fn into_spec_of(self, names: &Names, payload: Payload) -> Result<(JobSpec, Due)> {
        let queue = match self.queue {
            Some(other) => QueueName::new(other)?,
            None => names.queue.clone(),
        };
        let plain = JobSpec::new(queue, names.kind.clone(), payload);
        if let Some(trace) = &self.trace {
            trace::check(trace)?;
        }
        let spec = JobSpec {
            priority: self.priority.unwrap_or(plain.priority),
            lifo: self.lifo,
            attempts: self.attempts.unwrap_or(plain.attempts),
            stalls: self.stalls.unwrap_or(plain.stalls),
            timeout_ms: self.timeout.map(ms),
            heartbeat_ms: self.heartbeat.map(ms),
            retry: self.retry.unwrap_or_default(),
            // The empty set is one for all, and takes no memory.
            labels: if self.labels.is_empty() { plain.labels } else { Labels::parse(self.labels)? },
            group: self.group.as_deref().map(TryInto::try_into).transpose()?,
            custom_id: self.id.map(CustomId::new).transpose()?,
            dedup: self.dedup.map(into_dedup).transpose()?,
            keep_for: KeepFor { succeeded_ms: self.keep_succeeded.map(ms), failed_ms: self.keep_failed.map(ms) },
            metadata: self.metadata.into_iter().collect(),
            trace: self.trace,
            ..plain
        };
        Ok((spec, self.due.unwrap_or(Due::Now)))
    }
}

/// The names of a type of job, checked.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Names {
    queue: QueueName,
    kind: Kind,
}

impl Names {
    /// The names that the type `J` declares.
    pub fn of<J: Job>() -> Result<Self> {
        Ok(Self { queue: J::QUEUE.try_into()?, kind: J::KIND.try_into()? })
    }
}

fn into_dedup((key, mode, ttl): (Option<String>, DedupMode, Option<Duration>)) -> Result<Dedup> {
    let by = match key {
        Some(key) => DedupBy::Key(DedupKey::new(key)?),
        None => DedupBy::Payload,
    };
    Ok(Dedup { by, mode, ttl_ms: ttl.map(ms) })
}

/// Whole milliseconds; less than one counts as one, so that nothing meant becomes nothing.
#[doc(hidden)]
pub fn ms(time: Duration) -> u64 {
    let whole = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if whole == 0 && !time.is_zero() { 1 } else { whole }
}

/// Reads the payload of a job.
#[doc(hidden)]
pub fn decode<J: DeserializeOwned>(payload: &Payload) -> Result<J> {
    serde_json::from_slice(&payload.bytes).map_err(|error| Error::invalid("payload", error.to_string()))
}
