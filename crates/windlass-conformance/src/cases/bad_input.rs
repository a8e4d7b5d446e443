//! Bad input: names, ids and jobs. A typed error, no panic, and nothing has changed. The calls are in `bad_calls`.

use super::snapshot::snapshot;
use crate::ctx::Ctx;
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob, State, TraceContext};
use windlass_core::name::{CustomId, DedupKey, GroupName, Kind, Label, Labels, QueueName, ScheduleName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::retry::RetryPolicy;
use windlass_core::store::EnqueueRequest;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

cases!("bad_input":
    names,
    ids_and_other_texts,
    jobs,
    every_item_is_somewhere,
);

/// What must be answered: the variant, and the field or bound that it names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wrong {
    Invalid(&'static str),
    Limit(&'static str),
    LeaseLost,
    NotFound,
}

impl Wrong {
    /// The error is the right one, and an error that names a field says what to do about it.
    pub(super) fn assert(self, row: &str, error: &Error) {
        let right = match (self, error) {
            (Self::Invalid(want), Error::Invalid { field, reason }) => field == want && !reason.is_empty(),
            (Self::Limit(want), Error::Limit { what, max, got }) => what.starts_with(want) && got > max,
            (Self::LeaseLost, Error::LeaseLost) | (Self::NotFound, Error::NotFound { .. }) => true,
            _ => false,
        };
        assert!(right, "{row}: {self:?} was expected, not {error:?}");
        assert!(!error.is_retryable(), "{row}: it would be no better the next time");
        assert!(error.to_string().len() < 1_000, "{row}: an error does not repeat what it refuses");
    }
}

/// Items of RELIABILITY.md, "Bad input", that do not reach this layer, and where they belong.
const ELSEWHERE: &[(&str, &str)] = &[
    ("empty body, `{`, null, top-level array, depth 100,000, duplicate keys, 1e400, 2^63", "server: JSON bodies"),
    ("negative priority beyond range", "here by type (i16); server: JSON bodies"),
    ("gzip of 1 GiB zeros", "server: decompressed-size limit"),
    (
        "wrong Content-Type, invalid UTF-8, lone surrogate",
        "server: bodies; here names are `str` and payloads are bytes",
    ),
    ("limit -1, 1e9", "server: query; here by type (u32), and 0 and the largest in `bad_calls`"),
    ("unknown enum", "server: bodies; here the states in `ids_and_other_texts`"),
    ("two Authorization headers", "server: authentication"),
    ("markup in every field", "dashboard; here a name like any other, in `enqueue::hostile_names_are_only_names`"),
    ("name a}b{c, id %2e%2e%2f and ../../etc/passwd as names", "valid here: `enqueue::hostile_names_are_only_names`"),
    ("Last-Event-ID: abc", "server: SSE"),
    ("complete twice at once", "`repeats::complete_twice_at_once`"),
    ("the YAML list", "graphs: parser"),
    ("the CLI and configuration list, cron expressions apart", "cli"),
    ("cron `60 * * * *`, `0 0 30 2 *`, DST gap and fold, unknown zone", "core: schedule"),
    ("newer schema, read-only or locked directory", "sqlite"),
    ("Redis older than 7, replica URL", "redis"),
    ("Postgres behind a transaction pooler", "postgres"),
];

async fn every_item_is_somewhere(_ctx: Ctx) {
    assert!(ELSEWHERE.iter().all(|(item, place)| !item.is_empty() && !place.is_empty()));
}

type Make = fn(&str) -> Result<String>;

/// The types of names, and the field that their errors name.
const NAMES: &[(&str, Make)] = &[
    ("queue", |text| QueueName::new(text).map(String::from)),
    ("kind", |text| Kind::new(text).map(String::from)),
    ("group", |text| GroupName::new(text).map(String::from)),
    ("label", |text| Label::new(text).map(String::from)),
    ("worker", |text| WorkerId::new(text).map(String::from)),
    ("custom_id", |text| CustomId::new(text).map(String::from)),
    ("dedup.key", |text| DedupKey::new(text).map(String::from)),
    ("schedule", |text| ScheduleName::new(text).map(String::from)),
];

async fn names(_ctx: Ctx) {
    let long = "q".repeat(10_000);
    let wide = "é".repeat(128);
    for (field, make) in NAMES {
        for text in ["", "a\0b", "\0", "a\r\nb", "a\nb", "\tb", "\u{7f}", "a\u{85}b", "\u{1b}[31m"] {
            Wrong::Invalid(field).assert(&format!("{field} {text:?}"), &make(text).unwrap_err());
        }
        for text in [long.as_str(), wide.as_str()] {
            Wrong::Limit(field).assert(&format!("{field} of {} bytes", text.len()), &make(text).unwrap_err());
        }
        for text in ["a}b{c", "../../etc/passwd", "%2e%2e%2f", "<b>", &"x".repeat(255)] {
            assert_eq!(make(text).unwrap(), text, "{field}: hostile, but a name");
        }
    }
}

async fn ids_and_other_texts(_ctx: Ctx) {
    let bad_ids = [
        "",
        "../../etc/passwd",
        "%2e%2e%2f",
        "0-\r\n",
        "\0",
        "0-",
        "-",
        "0-00000000000000000000000000\r\n",
        "0-0000000000000000000000000",
        "0-000000000000000000000000000",
        "00-00000000000000000000000000",
        "+0-00000000000000000000000000",
        "65536-00000000000000000000000000",
        "-1-00000000000000000000000000",
        "0-80000000000000000000000000",
        "0-0000000000000000000000000O",
        "0-0000000000000000000000000é",
    ];
    for text in bad_ids {
        Wrong::Invalid("job id").assert(&format!("id {text:?}"), &text.parse::<JobId>().unwrap_err());
    }
    let long = "x".repeat(10_000);
    Wrong::Invalid("job id").assert("id of 10 kB", &long.parse::<JobId>().unwrap_err());
    for text in ["", "0", "g000000000000000", "+000000000000000", "00000000000000000"] {
        Wrong::Invalid("token").assert(&format!("token {text:?}"), &text.parse::<Token>().unwrap_err());
    }
    for text in ["", "Ready", "done", "ready "] {
        Wrong::Invalid("state").assert(&format!("state {text:?}"), &text.parse::<State>().unwrap_err());
    }
    for text in ["", "-1", "yesterday", "2026-02-30T00:00:00Z", "99999-01-01T00:00:00Z"] {
        Wrong::Invalid("time").assert(&format!("time {text:?}"), &text.parse::<Timestamp>().unwrap_err());
    }
}

const YEAR_9999: Timestamp = Timestamp::from_ms(253_402_300_799_000);

fn exponential(base_ms: u64, factor: u32, cap_ms: u64, jitter_percent: u8) -> RetryPolicy {
    RetryPolicy::Exponential { base_ms, factor, cap_ms, jitter_percent }
}

fn dedup(mode: DedupMode, ttl_ms: Option<u64>) -> Option<Dedup> {
    Some(Dedup { by: DedupBy::Payload, mode, ttl_ms })
}

fn many_labels(count: u32) -> Labels {
    Labels::parse((0..count).map(|i| format!("label{i}"))).unwrap()
}

fn bytes(count: usize) -> Payload {
    Payload::new("application/octet-stream", vec![0; count])
}

fn typed(content_type: &'static str) -> Payload {
    Payload::new(content_type, vec![])
}

type JobRow = (&'static str, Wrong, fn(&mut NewJob));

const JOBS: &[JobRow] = &[
    ("payload of 4 MiB and a byte", Wrong::Limit("payload"), |job| job.spec.payload = bytes((4 << 20) + 1)),
    ("payload of 64 MiB", Wrong::Limit("payload"), |job| job.spec.payload = bytes(64 << 20)),
    ("content type empty", Wrong::Invalid("payload.content_type"), |job| job.spec.payload = typed("")),
    ("content type with CRLF", Wrong::Invalid("payload.content_type"), |job| job.spec.payload = typed("a/b\r\nX: y")),
    ("content type with NUL", Wrong::Invalid("payload.content_type"), |job| job.spec.payload = typed("a\0")),
    ("attempts 0", Wrong::Invalid("attempts"), |job| job.spec.attempts = 0),
    ("attempts u32::MAX", Wrong::Limit("attempts"), |job| job.spec.attempts = u32::MAX),
    ("stalls u32::MAX", Wrong::Limit("stalls"), |job| job.spec.stalls = u32::MAX),
    ("timeout 0", Wrong::Invalid("timeout_ms"), |job| job.spec.timeout_ms = Some(0)),
    ("timeout u64::MAX", Wrong::Limit("timeout_ms"), |job| job.spec.timeout_ms = Some(u64::MAX)),
    ("run_at in year 9999", Wrong::Invalid("run_at"), |job| job.due = Due::At(YEAR_9999)),
    ("run_at -1", Wrong::Invalid("run_at"), |job| job.due = Due::At(Timestamp::from_ms(-1))),
    ("run_at i64::MIN", Wrong::Invalid("run_at"), |job| job.due = Due::At(Timestamp::from_ms(i64::MIN))),
    ("run_at i64::MAX", Wrong::Invalid("run_at"), |job| job.due = Due::At(Timestamp::from_ms(i64::MAX))),
    ("delay u64::MAX", Wrong::Limit("delay_ms"), |job| job.due = Due::DelayMs(u64::MAX)),
    ("backoff that overflows", Wrong::Limit("retry.base_ms"), |job| {
        job.spec.retry = exponential(u64::MAX, u32::MAX, u64::MAX, 0);
    }),
    ("backoff with a cap that overflows", Wrong::Limit("retry.cap_ms"), |job| {
        job.spec.retry = exponential(1, 2, u64::MAX, 0);
    }),
    ("backoff with factor 0", Wrong::Invalid("retry.factor"), |job| job.spec.retry = exponential(1, 0, 10, 0)),
    ("backoff with a cap below its base", Wrong::Invalid("retry.cap_ms"), |job| {
        job.spec.retry = exponential(10, 2, 1, 0);
    }),
    ("jitter of 101 percent", Wrong::Limit("retry.jitter_percent"), |job| job.spec.retry = exponential(1, 2, 10, 101)),
    ("fixed backoff u64::MAX", Wrong::Limit("retry.delay_ms"), |job| {
        job.spec.retry = RetryPolicy::Fixed { delay_ms: u64::MAX }
    }),
    ("no delays", Wrong::Invalid("retry.delays_ms"), |job| job.spec.retry = RetryPolicy::Delays { delays_ms: vec![] }),
    ("10,000 delays", Wrong::Limit("retry.delays_ms"), |job| {
        job.spec.retry = RetryPolicy::Delays { delays_ms: vec![1; 10_000] }
    }),
    ("17 labels", Wrong::Limit("labels"), |job| job.spec.labels = many_labels(17)),
    ("10,000 labels", Wrong::Limit("labels"), |job| job.spec.labels = many_labels(10_000)),
    ("10,000 entries of metadata", Wrong::Limit("metadata"), |job| {
        job.spec.metadata = (0..10_000).map(|i| (format!("{i}"), String::new())).collect();
    }),
    ("metadata value of 5 kB", Wrong::Limit("metadata"), |job| {
        job.spec.metadata = BTreeMap::from([("a".to_owned(), "x".repeat(5_000))]);
    }),
    ("metadata key of 5 kB", Wrong::Limit("metadata"), |job| {
        job.spec.metadata = BTreeMap::from([("x".repeat(5_000), String::new())]);
    }),
    ("trace of 5 kB", Wrong::Limit("metadata"), |job| {
        job.spec.trace = Some(TraceContext { parent: "x".repeat(5_000), state: None });
    }),
    ("trace state of 5 kB", Wrong::Limit("metadata"), |job| {
        job.spec.trace = Some(TraceContext { parent: "x".to_owned(), state: Some("x".repeat(5_000)) });
    }),
    ("throttle without a time", Wrong::Invalid("dedup.ttl_ms"), |job| {
        job.spec.dedup = dedup(DedupMode::Throttle, None);
    }),
    ("dedup time 0", Wrong::Invalid("dedup.ttl_ms"), |job| job.spec.dedup = dedup(DedupMode::Reject, Some(0))),
    ("dedup time u64::MAX", Wrong::Limit("dedup.ttl_ms"), |job| {
        job.spec.dedup = dedup(DedupMode::Throttle, Some(u64::MAX));
    }),
];

async fn jobs(ctx: Ctx) {
    ctx.enqueue(ctx.job("there", "work")).await;
    let before = snapshot(&ctx).await;
    for (row, wrong, edit) in JOBS {
        let mut job = ctx.job("new queue", "work");
        edit(&mut job);
        wrong.assert(row, &ctx.try_enqueue(job.clone()).await.unwrap_err());
        let batch = EnqueueRequest { jobs: vec![ctx.job("new queue", "work"), job], atomic: true };
        wrong.assert(row, ctx.store.enqueue(batch).await.unwrap()[1].as_ref().unwrap_err());
        assert_eq!(snapshot(&ctx).await, before, "{row}");
    }
}
