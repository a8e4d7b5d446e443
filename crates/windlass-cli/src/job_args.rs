//! A job as flags of `enqueue` and `schedules add`.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::Read;
use windlass::core::job::{DedupMode, PAYLOAD_BYTES_MAX};
use windlass::core::name::{CustomId, DedupKey, GroupName, Kind, Label, QueueName};
use windlass::core::time::Timestamp;
use windlass_operate::job_input::{JobInput, PayloadInput};
use windlass_operate::values::{RetryText, Span, pair};

/// A job as flags.
#[derive(Debug, Args)]
#[group(id = "job")]
pub(crate) struct JobArgs {
    /// The queue it waits on
    #[arg(value_name = "QUEUE")]
    pub(crate) queue: Option<QueueName>,
    /// What it is: the name of its handler
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Its input, JSON: as it stands here, `-` for standard input, `@FILE` for a file; null when it is left out
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    payload: Option<String>,
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
    metadata: Vec<(String, String)>,
}

/// See [`DedupMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

impl From<Mode> for DedupMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Reject => Self::Reject,
            Mode::Replace => Self::Replace,
            Mode::Throttle => Self::Throttle,
            Mode::KeepLast => Self::KeepLast,
        }
    }
}

impl JobArgs {
    /// The payload's text as something else, if it is that.
    pub(crate) fn payload_as<T: std::str::FromStr>(&self) -> Option<T> {
        self.payload.as_ref()?.parse().ok()
    }

    /// The job, with the payload read from where its argument says.
    pub(crate) fn read(self) -> Result<JobInput, Failure> {
        Ok(JobInput {
            queue: self.queue,
            kind: self.kind,
            payload: self.payload.map(|text| read_payload(&text)).transpose()?.map(PayloadInput::Bytes),
            content_type: self.content_type,
            priority: self.priority,
            delay: self.delay,
            run_at: self.run_at,
            attempts: self.attempts,
            stalls: self.stalls,
            timeout: self.timeout,
            retry: self.retry,
            labels: self.labels,
            group: self.group,
            id: self.id,
            unique: self.unique,
            dedup: self.dedup.map(DedupMode::from),
            dedup_key: self.dedup_key,
            dedup_ttl: self.dedup_ttl,
            lifo: self.lifo,
            keep_succeeded: self.keep_succeeded,
            keep_failed: self.keep_failed,
            metadata: self.metadata,
        })
    }
}

/// The bytes that an argument stands for: itself, `-` for standard input, `@FILE` for a file.
fn read_payload(text: &str) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        Some(path) => {
            let opened = File::open(path);
            bounded(opened.map_err(|error| Failure::usage(format!("the payload {path}: {error}")))?)
        }
        None if text == "-" => bounded(std::io::stdin().lock()),
        None => Ok(text.as_bytes().to_vec()),
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
