//! What a job was asked to be: everything its creator says.

use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::name::{CustomId, DedupKey, GroupName, JOB_LABELS_MAX, Kind, Labels, QueueName};
use crate::payload::Payload;
use crate::retry::{RETRY_DELAY_MS_MAX, RetryPolicy};
use crate::store::check_cap;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest payload: 4 MiB.
pub const PAYLOAD_BYTES_MAX: u64 = 4 << 20;
/// The largest result, outputs included: 1 MiB.
pub const RESULT_BYTES_MAX: u64 = 1 << 20;
/// The longest progress message, in bytes.
pub const PROGRESS_BYTES_MAX: usize = 4_096;
/// The shortest lease.
pub const LEASE_MS_MIN: u64 = 10;
/// The longest lease: one day.
pub const LEASE_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// The longest timeout: 31 days.
pub const TIMEOUT_MS_MAX: u64 = 31 * 24 * 3_600 * 1_000;
/// The most metadata entries of a job.
pub const METADATA_MAX: usize = 64;
/// The longest text of one metadata value or trace header.
const METADATA_BYTES_MAX: usize = 4_096;
/// The most attempts, and the most stalls, of a job.
const ATTEMPTS_MAX: u32 = 10_000;

/// When a job may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// So long after the store has accepted it, by the store's clock.
    DelayMs(u64),
    /// At this time.
    At(Timestamp),
}

impl Due {
    /// The time it means when the store's clock shows `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::DelayMs(ms) => now.plus_ms(ms),
            Self::At(time) => time,
        }
    }

    /// Refuses what lies outside the calendar or too far ahead.
    pub fn check(self) -> Result<()> {
        match self {
            Self::At(time) => time.check("run_at").map(drop),
            Self::DelayMs(ms) if ms > RETRY_DELAY_MS_MAX => Err(Error::limit("delay_ms", RETRY_DELAY_MS_MAX, ms)),
            Self::Now | Self::DelayMs(_) => Ok(()),
        }
    }
}

/// By what jobs count as the same work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupBy {
    /// By a key of the creator's.
    Key(DedupKey),
    /// By kind and payload.
    Payload,
}

/// What happens to a second job with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupMode {
    /// It is turned away while the first one has not ended (and its time, if given, has not run out).
    Reject,
    /// It takes the place of the first one while that is not being worked on (it waits, perhaps for another attempt): a
    /// debounce. A job that is held behind the first one is the one whose place it takes.
    ///
    /// When the answer to an enqueue got lost and a third job has taken the place since, repeating the enqueue takes it
    /// back: the id that went is not remembered.
    Replace,
    /// It is turned away until the time has run out, whatever became of the first one.
    Throttle,
    /// Like `Replace`; and while the first one is active it waits behind it, and only the last such job is kept. It goes
    /// ahead, or waits for its own time, in the step that ends the first one, whatever its outcome.
    KeepLast,
}

/// How a job is kept from being there twice. A key counts within its queue and group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedup {
    /// By what.
    pub by: DedupBy,
    /// How.
    pub mode: DedupMode,
    /// How long the key is held at most, and until nobody is held behind its holder any more; `Throttle` needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

impl Dedup {
    fn check(&self) -> Result<()> {
        match (self.ttl_ms, self.mode) {
            (None, DedupMode::Throttle) => Err(Error::invalid("dedup.ttl_ms", "throttle needs it; say for how long")),
            (Some(0), _) => Err(Error::invalid("dedup.ttl_ms", "is 0; leave it out or give milliseconds")),
            (Some(ms), _) if ms > RETRY_DELAY_MS_MAX => Err(Error::limit("dedup.ttl_ms", RETRY_DELAY_MS_MAX, ms)),
            _ => Ok(()),
        }
    }
}

/// How long an ended job is kept, in place of the queue's age limit; 0 removes it at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepFor {
    /// After it succeeded or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_ms: Option<u64>,
    /// After it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_ms: Option<u64>,
}

/// W3C trace context, carried from enqueue to handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The `traceparent` header.
    pub parent: String,
    /// The `tracestate` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// What a job was asked to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The queue it waits on.
    pub queue: QueueName,
    /// What it is; it names the handler.
    pub kind: Kind,
    /// Its input.
    #[serde(default)]
    pub payload: Payload,
    /// Lower first.
    #[serde(default)]
    pub priority: i16,
    /// Heads its priority instead of following it.
    #[serde(default)]
    pub lifo: bool,
    /// How often it may be tried.
    #[serde(default = "attempts_default")]
    pub attempts: u32,
    /// How often its worker may vanish.
    #[serde(default = "stalls_default")]
    pub stalls: u32,
    /// How long one attempt may take.
    pub timeout_ms: Option<u64>,
    /// The longest time that a handler may run without reporting progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// How long to wait between attempts.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// What a worker must offer.
    #[serde(default)]
    pub labels: Labels,
    /// The group it belongs to.
    pub group: Option<GroupName>,
    /// The id its creator gave it.
    pub custom_id: Option<CustomId>,
    /// How it is kept from being there twice.
    pub dedup: Option<Dedup>,
    /// How long it is kept when it has ended.
    #[serde(default)]
    pub keep_for: KeepFor,
    /// Anything its creator wants to carry along.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The trace it belongs to.
    pub trace: Option<TraceContext>,
    /// The run it belongs to. Only the steps of a run make such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How many jobs of its group may be active at once, as its run says. It holds while the group has no cap of its own, from
    /// when a job that says so becomes ready until the group has no ready and no active job. A new job replaces what earlier ones
    /// said; a job that becomes ready again does not. Only the steps of a run make such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_cap: Option<u32>,
}

const fn attempts_default() -> u32 {
    3
}

const fn stalls_default() -> u32 {
    1
}

impl JobSpec {
    /// A job with all defaults: 3 attempts, 1 stall, exponential back-off, priority 0.
    pub fn new(queue: QueueName, kind: Kind, payload: Payload) -> Self {
        Self {
            queue,
            kind,
            payload,
            priority: 0,
            lifo: false,
            attempts: attempts_default(),
            stalls: stalls_default(),
            timeout_ms: None,
            heartbeat_ms: None,
            retry: RetryPolicy::default(),
            labels: Labels::default(),
            group: None,
            custom_id: None,
            dedup: None,
            keep_for: KeepFor::default(),
            metadata: BTreeMap::new(),
            trace: None,
            run: None,
            group_cap: None,
        }
    }

    /// Refuses what cannot be meant. Names are valid by their type.
    pub fn check(&self) -> Result<()> {
        self.payload.check("payload", PAYLOAD_BYTES_MAX)?;
        self.retry.check()?;
        check_budget("attempts", self.attempts, 1)?;
        check_budget("stalls", self.stalls, 0)?;
        check_timeout("timeout_ms", self.timeout_ms)?;
        check_timeout("heartbeat_ms", self.heartbeat_ms)?;
        if self.labels.len() > JOB_LABELS_MAX {
            return Err(Error::limit("labels", JOB_LABELS_MAX as u64, self.labels.len() as u64));
        }
        if let Some(dedup) = &self.dedup {
            dedup.check()?;
        }
        check_cap("group_cap", self.group_cap)?;
        if self.group_cap.is_some() && self.group.is_none() {
            return Err(Error::invalid("group_cap", "is the cap of a group, and the job names none; name its group"));
        }
        self.check_metadata()
    }

    /// Refuses a job that says what only jobs of runs say: the run's own steps make those.
    pub fn check_outside(&self) -> Result<()> {
        match (self.run, self.group_cap) {
            (Some(run), _) => {
                Err(Error::invalid("run", format!("only the steps of {run} make its jobs; leave it out")))
            }
            (None, Some(_)) => {
                Err(Error::invalid("group_cap", "is only for jobs of runs; set the cap in the settings of the group"))
            }
            (None, None) => Ok(()),
        }
    }

    fn check_metadata(&self) -> Result<()> {
        if self.metadata.len() > METADATA_MAX {
            return Err(Error::limit("metadata", METADATA_MAX as u64, self.metadata.len() as u64));
        }
        let trace = self.trace.iter().flat_map(|t| [Some(&t.parent), t.state.as_ref()]).flatten();
        let texts = self.metadata.iter().flat_map(|(key, value)| [key, value]).chain(trace);
        match texts.map(String::len).max() {
            Some(longest) if longest > METADATA_BYTES_MAX => {
                Err(Error::limit("metadata, in bytes,", METADATA_BYTES_MAX as u64, longest as u64))
            }
            _ => Ok(()),
        }
    }

    /// The key under which it counts as the same work, as 16 bytes.
    pub fn dedup_hash(&self) -> Option<[u8; 16]> {
        let dedup = self.dedup.as_ref()?;
        let mut hash = blake3::Hasher::new_derive_key("windlass dedup key v1");
        hash.update(self.queue.as_str().as_bytes()).update(b"\0");
        hash.update(self.group.as_ref().map_or("", GroupName::as_str).as_bytes()).update(b"\0");
        match &dedup.by {
            DedupBy::Key(key) => hash.update(b"k").update(key.as_str().as_bytes()),
            DedupBy::Payload => {
                hash.update(b"p").update(self.kind.as_str().as_bytes()).update(b"\0");
                hash.update(self.payload.content_type.as_bytes()).update(b"\0").update(&self.payload.bytes)
            }
        };
        hash.finalize().as_bytes()[..16].try_into().ok()
    }
}

fn check_timeout(field: &'static str, timeout_ms: Option<u64>) -> Result<()> {
    match timeout_ms {
        Some(0) => Err(Error::invalid(field, "is 0; leave it out for no timeout")),
        Some(ms) if ms > TIMEOUT_MS_MAX => Err(Error::limit(field, TIMEOUT_MS_MAX, ms)),
        _ => Ok(()),
    }
}

fn check_budget(field: &'static str, value: u32, least: u32) -> Result<()> {
    if value < least {
        return Err(Error::invalid(field, format!("is {value}; give at least {least}")));
    }
    if value > ATTEMPTS_MAX {
        return Err(Error::limit(field, u64::from(ATTEMPTS_MAX), u64::from(value)));
    }
    Ok(())
}

/// A job to enqueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// Its id, made by its creator; a custom id takes its place.
    pub id: JobId,
    /// When it may start.
    #[serde(default)]
    pub due: Due,
    /// What it is.
    pub spec: JobSpec,
}

impl NewJob {
    /// A job to run as soon as a worker is free.
    pub fn new(id: JobId, spec: JobSpec) -> Self {
        Self { id, due: Due::Now, spec }
    }

    /// The same, due later.
    #[must_use]
    pub fn due(mut self, due: Due) -> Self {
        self.due = due;
        self
    }

    /// The id it will have: that of its custom id, or its own.
    pub fn effective_id(&self) -> JobId {
        match &self.spec.custom_id {
            Some(custom) => JobId::named(&self.spec.queue, self.spec.group.as_ref(), custom),
            None => self.id,
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        self.due.check()?;
        self.spec.check()
    }

    /// Tells two contents apart: the same job enqueued again has the same fingerprint.
    ///
    /// Everything of the request counts but its id, so that a repeated enqueue is told from another job with its id; and
    /// but its trace, which tells who asks and not what for: a handler that is tried again asks from another span.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = blake3::Hasher::new();
        let spec = &self.spec;
        // How many labels there are, or the last of them could pass for the text that follows them.
        hash.update(&(spec.labels.len() as u64).to_le_bytes());
        let mut text = |part: &str| {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        };
        text(spec.queue.as_str());
        text(spec.kind.as_str());
        text(&spec.payload.content_type);
        text(spec.group.as_ref().map_or("", GroupName::as_str));
        spec.labels.iter().for_each(|label| text(label.as_str()));
        if !self.is_plain() {
            // Rare fields, through their one canonical text. The trace's place in it stays empty.
            let no_trace = None::<TraceContext>;
            let rest = (&spec.timeout_ms, &spec.retry, &spec.dedup, &spec.keep_for, &spec.metadata, no_trace, self.due);
            text(&serde_json::to_string(&rest).unwrap_or_default());
        }
        if let Some(run) = spec.run {
            text(&run.to_string());
        }
        if let Some(cap) = spec.group_cap {
            text(&cap.to_string());
        }
        if let Some(ms) = spec.heartbeat_ms {
            text(&format!("heartbeat {ms}"));
        }
        hash.update(&spec.priority.to_le_bytes()).update(&[u8::from(spec.lifo)]);
        hash.update(&spec.attempts.to_le_bytes()).update(&spec.stalls.to_le_bytes());
        hash.update(&spec.payload.bytes);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }

    /// True when every rarely used field that counts has its default.
    fn is_plain(&self) -> bool {
        let spec = &self.spec;
        self.due == Due::Now
            && spec.timeout_ms.is_none()
            && spec.dedup.is_none()
            && spec.metadata.is_empty()
            && spec.keep_for == KeepFor::default()
            && spec.retry == RetryPolicy::default()
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
