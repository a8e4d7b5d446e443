//! A job as it is typed: the same fields as flags of `enqueue` and `schedules add`, and in each line of a bulk file.

use crate::failure::Failure;
use crate::strict;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::Read;
use windlass::core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor, PAYLOAD_BYTES_MAX};
use windlass::core::name::{CustomId, DedupKey, GroupName, Kind, Label, Labels, QueueName};
use windlass::core::payload::{JSON, Payload};
use windlass::core::time::Timestamp;
use windlass_operate::values::{RetryText, Span, pair};

/// A job as it is typed.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[group(id = "job")]
pub(crate) struct JobInput {
    /// The queue it waits on
    #[arg(value_name = "QUEUE")]
    pub(crate) queue: Option<QueueName>,
    /// What it is: the name of its handler
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Its input, JSON: as it stands here, `-` for standard input, `@FILE` for a file; null when it is left out
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    payload: Option<PayloadInput>,
    /// What the payload is, when it is not JSON
    #[arg(long, value_name = "TYPE", help_heading = "Job options")]
    content_type: Option<String>,
    /// Lower comes first; from -32768 to 32767, 0 if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Job options")]
    priority: Option<i16>,
    /// Start it after so long, by the store's clock: 500ms, 30s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", conflicts_with = "run_at", help_heading = "Job options")]
    delay: Option<Span>,
    /// Start it at this time, RFC 3339: 2026-11-15T20:00:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Job options")]
    run_at: Option<Timestamp>,
    /// How often it may be tried; 3 if not given
    #[arg(long, value_name = "N", help_heading = "Job options")]
    attempts: Option<u32>,
    /// How often its worker may vanish; 1 if not given
    #[arg(long, value_name = "N", help_heading = "Job options")]
    stalls: Option<u32>,
    /// How long one attempt may take
    #[arg(long, value_name = "TIME", help_heading = "Job options")]
    timeout: Option<Span>,
    /// Waits between attempts: none, fixed:5s, exponential:1s..1h[,factor=2][,jitter=20], delays:1s,10s,1m, `by_kind`
    #[arg(long, value_name = "POLICY", help_heading = "Job options")]
    retry: Option<RetryText>,
    /// A label that its worker must offer; may be repeated
    #[arg(long = "label", value_name = "LABEL", help_heading = "Job options")]
    labels: Vec<Label>,
    /// The group it belongs to: a tenant, an account
    #[arg(long, value_name = "GROUP", help_heading = "Job options")]
    group: Option<GroupName>,
    /// An id of your own, unique in its queue and group: the same job again is enqueued once
    #[arg(long, value_name = "ID", help_heading = "Job options")]
    id: Option<CustomId>,
    /// At most one unfinished job with this key; short for --dedup reject --dedup-key KEY
    #[arg(long, value_name = "KEY", conflicts_with_all = ["dedup", "dedup_key"], help_heading = "Job options")]
    unique: Option<DedupKey>,
    /// What happens while there is a job with the same key, or else with the same kind and payload
    #[arg(long, value_name = "MODE", value_enum, help_heading = "Job options")]
    dedup: Option<Mode>,
    /// The key that counts as the same work
    #[arg(long, value_name = "KEY", requires = "dedup", help_heading = "Job options")]
    dedup_key: Option<DedupKey>,
    /// How long the key is held at most; throttle needs it
    #[arg(long, value_name = "TIME", help_heading = "Job options")]
    dedup_ttl: Option<Span>,
    /// Put it before the others of its priority, not behind them
    #[arg(long, help_heading = "Job options")]
    lifo: bool,
    /// How long it is kept after it succeeded or was cancelled; 0s removes it at once
    #[arg(long, value_name = "TIME", help_heading = "Job options")]
    keep_succeeded: Option<Span>,
    /// How long it is kept after it failed
    #[arg(long, value_name = "TIME", help_heading = "Job options")]
    keep_failed: Option<Span>,
    /// Something to carry along, key=value; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "Job options")]
    #[serde(deserialize_with = "from_map")]
    metadata: Vec<(String, String)>,
}

fn from_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
}

/// See [`DedupMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Mode {
    /// The second one is turned away while the first one has not ended
    Reject,
    /// The second one takes the place of the first one while that waits: a debounce
    Replace,
    /// The second one is turned away until --dedup-ttl is over
    Throttle,
    /// The last one waits behind the active one
    KeepLast,
}

/// A payload as it is typed.
#[derive(Clone, Debug)]
enum PayloadInput {
    /// On the command line: itself, `-` or `@FILE`.
    Text(String),
    /// In a bulk file.
    Json(Box<RawValue>),
}

impl std::str::FromStr for PayloadInput {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for PayloadInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(Self::Json)
    }
}

impl JobInput {
    /// The payload's text as something else, if it is that.
    pub(crate) fn payload_as<T: std::str::FromStr>(&self) -> Option<T> {
        match &self.payload {
            Some(PayloadInput::Text(text)) => text.parse().ok(),
            Some(PayloadInput::Json(_)) | None => None,
        }
    }

    /// What was asked for, checked.
    pub(crate) fn into_spec(self) -> Result<(JobSpec, Due), Failure> {
        let missing = |field: &str| Failure::usage(format!("`{field}` is missing")).hint("name the queue and the kind");
        let due = self.due()?;
        let dedup = self.dedup()?;
        let payload = self.payload()?;
        let queue = self.queue.ok_or_else(|| missing("queue"))?;
        let kind = self.kind.ok_or_else(|| missing("kind"))?;
        let default = JobSpec::new(queue, kind, payload);
        let spec = JobSpec {
            priority: self.priority.unwrap_or(default.priority),
            lifo: self.lifo,
            attempts: self.attempts.unwrap_or(default.attempts),
            stalls: self.stalls.unwrap_or(default.stalls),
            timeout_ms: self.timeout.map(|span| span.ms),
            retry: self.retry.map_or(default.retry, |retry| retry.0),
            labels: Labels::new(self.labels),
            group: self.group,
            custom_id: self.id,
            dedup,
            keep_for: KeepFor {
                succeeded_ms: self.keep_succeeded.map(|span| span.ms),
                failed_ms: self.keep_failed.map(|span| span.ms),
            },
            metadata: self.metadata.into_iter().collect(),
            ..default
        };
        due.check()?;
        spec.check()?;
        Ok((spec, due))
    }

    fn due(&self) -> Result<Due, Failure> {
        match (self.delay, self.run_at) {
            (None, None) => Ok(Due::Now),
            (Some(delay), None) => Ok(Due::DelayMs(delay.ms)),
            (None, Some(time)) => Ok(Due::At(time)),
            (Some(_), Some(_)) => Err(Failure::usage("`delay` and `run_at` contradict each other; give one of them")),
        }
    }

    fn dedup(&self) -> Result<Option<Dedup>, Failure> {
        let ttl_ms = self.dedup_ttl.map(|span| span.ms);
        let mode = match self.dedup {
            Some(Mode::Replace) => DedupMode::Replace,
            Some(Mode::Throttle) => DedupMode::Throttle,
            Some(Mode::KeepLast) => DedupMode::KeepLast,
            Some(Mode::Reject) | None => DedupMode::Reject,
        };
        let by = match (&self.unique, self.dedup, &self.dedup_key) {
            (Some(key), None, None) => DedupBy::Key(key.clone()),
            (None, Some(_), Some(key)) => DedupBy::Key(key.clone()),
            (None, Some(_), None) => DedupBy::Payload,
            (None, None, None) if ttl_ms.is_none() => return Ok(None),
            (None, None, _) => {
                return Err(
                    Failure::usage("a dedup key or time without a mode").hint("give `dedup` as well, or `unique`")
                );
            }
            (Some(_), ..) => {
                return Err(Failure::usage("`unique` and `dedup` contradict each other; give one of them"));
            }
        };
        Ok(Some(Dedup { by, mode, ttl_ms }))
    }

    fn payload(&self) -> Result<Payload, Failure> {
        let bytes = match &self.payload {
            None if self.content_type.is_none() => return Ok(Payload::default()),
            None => Vec::new(),
            Some(PayloadInput::Json(raw)) => raw.get().as_bytes().to_vec(),
            Some(PayloadInput::Text(text)) => match text.strip_prefix('@') {
                Some(path) => {
                    let opened = File::open(path);
                    bounded(opened.map_err(|error| Failure::usage(format!("the payload {path}: {error}")))?)?
                }
                None if text == "-" => bounded(std::io::stdin().lock())?,
                None => text.as_bytes().to_vec(),
            },
        };
        if let Some(content_type) = self.content_type.clone().filter(|name| name != JSON) {
            return Ok(Payload::new(content_type, self.unquoted(bytes)?));
        }
        match strict::check(&bytes) {
            Ok(()) => Ok(Payload::new(JSON, bytes)),
            Err(error) => Err(Failure::usage(format!("the payload is not JSON: {error}"))
                .hint("quote text as '\"text\"', or say what it is with --content-type text/plain")),
        }
    }

    /// In a bulk file, a payload that is not JSON stands there as a text.
    fn unquoted(&self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        match &self.payload {
            Some(PayloadInput::Json(raw)) => match serde_json::from_str::<String>(raw.get()) {
                Ok(text) => Ok(text.into_bytes()),
                Err(_) => Err(Failure::usage("a payload with a content type of its own must be a text")),
            },
            _ => Ok(bytes),
        }
    }
}

/// All of it, but not more than a payload may be: its source may have no end.
fn bounded(source: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source
        .take(PAYLOAD_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("the payload: {error}")))?;
    if bytes.len() as u64 > PAYLOAD_BYTES_MAX {
        return Err(Failure::usage(format!("the payload is larger than {PAYLOAD_BYTES_MAX} bytes"))
            .hint("store it elsewhere and enqueue where it is"));
    }
    Ok(bytes)
}
