//! A job as people type it: the same fields, notation and errors for flags, bulk files, schedules and forms.

use crate::error::OperateError;
use crate::strict_json;
#[cfg(feature = "clap")]
use crate::values::pair;
use crate::values::{RetryText, Span};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use windlass::core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor};
use windlass::core::name::{CustomId, DedupKey, GroupName, Kind, Label, Labels, QueueName};
use windlass::core::payload::{JSON, Payload};
use windlass::core::time::Timestamp;

/// A job as it is typed. Fields that are left out have the defaults of [`JobSpec`]; unknown fields are an error.
///
/// With the feature `clap`, the fields are flags and their descriptions its help. The payload is not among them: a command
/// line reads it from where an argument says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(id = "job"))]
pub struct JobInput {
    /// The queue it waits on
    #[cfg_attr(feature = "clap", arg(value_name = "QUEUE"))]
    pub queue: Option<QueueName>,
    /// What it is: the name of its handler
    #[cfg_attr(feature = "clap", arg(value_name = "KIND"))]
    pub kind: Option<Kind>,
    /// The payload; `null` when it is left out.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub payload: Option<PayloadInput>,
    /// What the payload is, when it is not JSON
    #[cfg_attr(feature = "clap", arg(long, value_name = "TYPE", help_heading = "Job options"))]
    pub content_type: Option<String>,
    /// Lower comes first; from -32768 to 32767, 0 if not given
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Job options")
    )]
    pub priority: Option<i16>,
    /// Start it after so long, by the store's clock: 500ms, 30s, 5m, 2h, 7d
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", conflicts_with = "run_at", help_heading = "Job options")
    )]
    pub delay: Option<Span>,
    /// Start it at this time, RFC 3339: 2026-11-15T20:00:00Z
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Job options")
    )]
    pub run_at: Option<Timestamp>,
    /// How often it may be tried; 3 if not given
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", help_heading = "Job options"))]
    pub attempts: Option<u32>,
    /// How often its worker may vanish; 1 if not given
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", help_heading = "Job options"))]
    pub stalls: Option<u32>,
    /// How long one attempt may take
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", help_heading = "Job options"))]
    pub timeout: Option<Span>,
    #[allow(rustdoc::broken_intra_doc_links, reason = "the text is also the help of the command line")]
    /// Waits between attempts: none, fixed:5s, exponential:1s..1h[,factor=2][,jitter=20], delays:1s,10s,1m, `by_kind`
    #[cfg_attr(feature = "clap", arg(long, value_name = "POLICY", help_heading = "Job options"))]
    pub retry: Option<RetryText>,
    /// A label that its worker must offer; may be repeated
    #[cfg_attr(feature = "clap", arg(long = "label", value_name = "LABEL", help_heading = "Job options"))]
    pub labels: Vec<Label>,
    /// The group it belongs to: a tenant, an account
    #[cfg_attr(feature = "clap", arg(long, value_name = "GROUP", help_heading = "Job options"))]
    pub group: Option<GroupName>,
    /// An id of your own, unique in its queue and group: the same job again is enqueued once
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID", help_heading = "Job options"))]
    pub id: Option<CustomId>,
    /// At most one unfinished job with this key; short for --dedup reject --dedup-key KEY
    #[cfg_attr(feature = "clap", arg(long, value_name = "KEY", conflicts_with_all = ["dedup", "dedup_key"], help_heading = "Job options"))]
    pub unique: Option<DedupKey>,
    /// What happens while there is a job with the same key, or else with the same kind and payload
    #[cfg_attr(feature = "clap", arg(long, value_name = "MODE", value_parser = dedup_mode(), help_heading = "Job options"))]
    pub dedup: Option<DedupMode>,
    /// The key that counts as the same work
    #[cfg_attr(feature = "clap", arg(long, value_name = "KEY", requires = "dedup", help_heading = "Job options"))]
    pub dedup_key: Option<DedupKey>,
    /// How long the key is held at most; throttle needs it
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", help_heading = "Job options"))]
    pub dedup_ttl: Option<Span>,
    /// Put it before the others of its priority, not behind them
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Job options"))]
    pub lifo: bool,
    /// How long it is kept after it succeeded or was cancelled; 0s removes it at once
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", help_heading = "Job options"))]
    pub keep_succeeded: Option<Span>,
    /// How long it is kept after it failed
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", help_heading = "Job options"))]
    pub keep_failed: Option<Span>,
    /// Something to carry along, key=value; may be repeated
    #[cfg_attr(feature = "clap", arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "Job options"))]
    #[serde(deserialize_with = "pairs_of_map")]
    pub metadata: Vec<(String, String)>,
}

#[cfg(feature = "clap")]
fn dedup_mode() -> impl clap::builder::TypedValueParser<Value = DedupMode> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
    let modes = [
        ("reject", "The second one is turned away while the first one has not ended"),
        ("replace", "The second one takes the place of the first one while that waits: a debounce"),
        ("throttle", "The second one is turned away until --dedup-ttl is over"),
        ("keep_last", "The last one waits behind the active one"),
    ];
    let parser = PossibleValuesParser::new(modes.map(|(name, help)| PossibleValue::new(name).help(help)));
    parser.try_map(|name| serde_json::from_value(serde_json::Value::String(name)))
}

fn pairs_of_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
}

/// A payload as it is typed.
#[derive(Clone, Debug)]
pub enum PayloadInput {
    /// The bytes of the payload.
    Bytes(Vec<u8>),
    /// The payload inside of JSON. With a content type other than JSON it must be a string, whose text is the payload.
    Json(Box<RawValue>),
}

impl<'de> Deserialize<'de> for PayloadInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(Self::Json)
    }
}

impl JobInput {
    /// The job to enqueue and when it is due, checked.
    pub fn into_spec(self) -> Result<(JobSpec, Due), OperateError> {
        let missing =
            |field: &str| OperateError::invalid(format!("`{field}` is missing")).hint("name the queue and the kind");
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

    fn due(&self) -> Result<Due, OperateError> {
        match (self.delay, self.run_at) {
            (None, None) => Ok(Due::Now),
            (Some(delay), None) => Ok(Due::DelayMs(delay.ms)),
            (None, Some(time)) => Ok(Due::At(time)),
            (Some(_), Some(_)) => {
                Err(OperateError::invalid("`delay` and `run_at` contradict each other; give one of them"))
            }
        }
    }

    fn dedup(&self) -> Result<Option<Dedup>, OperateError> {
        let ttl_ms = self.dedup_ttl.map(|span| span.ms);
        let mode = self.dedup.unwrap_or(DedupMode::Reject);
        let by = match (&self.unique, self.dedup, &self.dedup_key) {
            (Some(key), None, None) | (None, Some(_), Some(key)) => DedupBy::Key(key.clone()),
            (None, Some(_), None) => DedupBy::Payload,
            (None, None, None) if ttl_ms.is_none() => return Ok(None),
            (None, None, _) => {
                return Err(OperateError::invalid("a dedup key or time without a mode")
                    .hint("give `dedup` as well, or `unique`"));
            }
            (Some(_), ..) => {
                return Err(OperateError::invalid("`unique` and `dedup` contradict each other; give one of them"));
            }
        };
        Ok(Some(Dedup { by, mode, ttl_ms }))
    }

    fn payload(&self) -> Result<Payload, OperateError> {
        let bytes = match &self.payload {
            None if self.content_type.is_none() => return Ok(Payload::default()),
            None => Vec::new(),
            Some(PayloadInput::Json(raw)) => raw.get().as_bytes().to_vec(),
            Some(PayloadInput::Bytes(bytes)) => bytes.clone(),
        };
        if let Some(content_type) = self.content_type.clone().filter(|name| name != JSON) {
            return Ok(Payload::new(content_type, self.unquoted(bytes)?));
        }
        match strict_json::check(&bytes) {
            Ok(()) => Ok(Payload::new(JSON, bytes)),
            Err(error) => Err(OperateError::invalid(format!("the payload is not JSON: {error}"))
                .hint("quote text as '\"text\"', or say what it is with --content-type text/plain")),
        }
    }

    /// The bytes of a payload that is not JSON: inside of JSON it is a string.
    fn unquoted(&self, bytes: Vec<u8>) -> Result<Vec<u8>, OperateError> {
        match &self.payload {
            Some(PayloadInput::Json(raw)) => match serde_json::from_str::<String>(raw.get()) {
                Ok(text) => Ok(text.into_bytes()),
                Err(_) => Err(OperateError::invalid("a payload with a content type of its own must be a text")),
            },
            _ => Ok(bytes),
        }
    }
}
