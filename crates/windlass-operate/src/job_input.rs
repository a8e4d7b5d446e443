//! A job as people type it: the same fields, notation and errors for flags, bulk files, schedules and forms.

use crate::error::OperateError;
use crate::strict_json;
use crate::values::{RetryText, Span};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use windlass::core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor};
use windlass::core::name::{CustomId, DedupKey, GroupName, Kind, Label, Labels, QueueName};
use windlass::core::payload::{JSON, Payload};
use windlass::core::time::Timestamp;

/// A job as it is typed. Fields that are left out have the defaults of [`JobSpec`]; unknown fields are an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobInput {
    /// The queue; required.
    pub queue: Option<QueueName>,
    /// The kind, which names its handler; required.
    pub kind: Option<Kind>,
    /// The payload; `null` when it is left out.
    pub payload: Option<PayloadInput>,
    /// The content type of a payload that is not JSON.
    pub content_type: Option<String>,
    /// Lower comes first.
    pub priority: Option<i16>,
    /// The time to wait before the first attempt, by the store's clock; excludes `run_at`.
    pub delay: Option<Span>,
    /// The time of the first attempt; excludes `delay`.
    pub run_at: Option<Timestamp>,
    /// How many attempts the job has.
    pub attempts: Option<u32>,
    /// How often its worker may vanish.
    pub stalls: Option<u32>,
    /// How long one attempt may take.
    pub timeout: Option<Span>,
    /// The delays between attempts.
    pub retry: Option<RetryText>,
    /// Labels that its worker must offer.
    pub labels: Vec<Label>,
    /// The group.
    pub group: Option<GroupName>,
    /// The custom id, unique in its queue and group.
    pub id: Option<CustomId>,
    /// A dedup key with the mode `reject`; excludes `dedup` and `dedup_key`.
    pub unique: Option<DedupKey>,
    /// What happens while there is a job with the same key.
    pub dedup: Option<DedupMode>,
    /// The dedup key; kind and payload when it is left out. Requires `dedup`.
    pub dedup_key: Option<DedupKey>,
    /// How long the key is held at most.
    pub dedup_ttl: Option<Span>,
    /// Whether it goes before the others of its priority.
    pub lifo: bool,
    /// How long it is kept after it succeeded or was cancelled.
    pub keep_succeeded: Option<Span>,
    /// How long it is kept after it failed.
    pub keep_failed: Option<Span>,
    /// Pairs to carry along.
    #[serde(deserialize_with = "pairs_of_map")]
    pub metadata: Vec<(String, String)>,
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
