//! A job as it is shown: the same names as in a listing, and payloads that can be read.

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use windlass::core::id::JobId;
use windlass::core::job::{Dedup, Failure, Job, KeepFor, LeaseView, Progress, State, TraceContext};
use windlass::core::name::{CustomId, GroupName, Kind, Labels, QueueName};
use windlass::core::payload::{JSON, Payload};
use windlass::core::retry::RetryPolicy;
use windlass::core::store::Explanation;
use windlass::core::time::Timestamp;

/// A payload in JSON: itself when it is JSON, a text when it is one, otherwise its bytes in hexadecimal.
pub(crate) fn payload(payload: &Payload) -> Option<Box<RawValue>> {
    if payload.content_type == JSON
        && let Ok(raw) = serde_json::from_slice::<Box<RawValue>>(&payload.bytes)
    {
        return Some(raw);
    }
    match std::str::from_utf8(&payload.bytes) {
        Ok(text) => to_raw_value(text).ok(),
        Err(_) => to_raw_value(&json!({ "hex": hex(&payload.bytes) })).ok(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A payload for people: indented when it is JSON.
pub(crate) fn pretty(payload: &Payload) -> String {
    if payload.content_type == JSON
        && let Ok(raw) = serde_json::from_slice::<&RawValue>(&payload.bytes)
    {
        return indented(raw.get());
    }
    match std::str::from_utf8(&payload.bytes) {
        Ok(text) => text.lines().map(crate::values::clean).collect::<Vec<_>>().join("\n"),
        Err(_) => format!("{} bytes: {}", payload.bytes.len(), crate::values::short(&hex(&payload.bytes))),
    }
}

/// JSON with each member on a line of its own. Order and numbers stay as they were written, which a value that was parsed
/// and printed again would not keep.
fn indented(json: &str) -> String {
    let (mut out, mut depth) = (String::with_capacity(json.len() * 2), 0usize);
    let (mut in_text, mut escaped, mut empty) = (false, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    for c in json.chars() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            ' ' | '\t' | '\n' | '\r' => continue,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !empty {
                    line(&mut out, depth);
                }
            }
            _ if empty => line(&mut out, depth),
            _ => {}
        }
        out.push(c);
        empty = matches!(c, '{' | '[');
        match c {
            '{' | '[' => depth += 1,
            ',' => line(&mut out, depth),
            ':' => out.push(' '),
            '"' => in_text = true,
            _ => {}
        }
    }
    out
}

/// Everything about one job.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    id: JobId,
    queue: &'a QueueName,
    kind: &'a Kind,
    group: &'a Option<GroupName>,
    custom_id: &'a Option<CustomId>,
    state: State,
    priority: i16,
    lifo: bool,
    attempt: u32,
    attempts_max: u32,
    stalls: u32,
    stalls_max: u32,
    retries: u32,
    timeout_ms: Option<u64>,
    retry: &'a RetryPolicy,
    labels: &'a Labels,
    dedup: &'a Option<Dedup>,
    keep_for: KeepFor,
    metadata: &'a BTreeMap<String, String>,
    trace: &'a Option<TraceContext>,
    due_at: Option<Timestamp>,
    lease: &'a Option<LeaseView>,
    cancel_requested: bool,
    progress: &'a Option<Progress>,
    content_type: &'a str,
    payload: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    outputs: &'a BTreeMap<String, String>,
    failures: &'a [Failure],
    created_at: Timestamp,
    claimed_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    quarantined: &'a Option<String>,
    explanation: &'a Explanation,
    text: &'a str,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(job: &'a Job, explanation: &'a Explanation, text: &'a str) -> Self {
        let spec = job.spec.as_ref();
        Self {
            id: job.id,
            queue: &spec.queue,
            kind: &spec.kind,
            group: &spec.group,
            custom_id: &spec.custom_id,
            state: job.state,
            priority: spec.priority,
            lifo: spec.lifo,
            attempt: job.attempt,
            attempts_max: spec.attempts,
            stalls: job.stalls,
            stalls_max: spec.stalls,
            retries: job.retries,
            timeout_ms: spec.timeout_ms,
            retry: &spec.retry,
            labels: &spec.labels,
            dedup: &spec.dedup,
            keep_for: spec.keep_for,
            metadata: &spec.metadata,
            trace: &spec.trace,
            due_at: job.due_at,
            lease: &job.lease,
            cancel_requested: job.cancel_requested,
            progress: &job.progress,
            content_type: &spec.payload.content_type,
            payload: payload(&spec.payload),
            result: job.result.as_ref().and_then(payload),
            outputs: &job.outputs,
            failures: &job.failures,
            created_at: job.created_at,
            claimed_at: job.claimed_at,
            finished_at: job.finished_at,
            quarantined: &job.quarantined,
            explanation,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn what_is_indented_stays_what_it_was() {
        let json = r#"{"z":12345678901234567890123,"a":[ ],"t":"x\\\",{[ \u00e9","o":{},"n":[1,{"b":null}]}"#;
        let shown = indented(json);
        assert!(shown.starts_with("{\n  \"z\": 12345678901234567890123,\n  \"a\": [],\n"), "{shown}");
        assert!(shown.ends_with("\"n\": [\n    1,\n    {\n      \"b\": null\n    }\n  ]\n}"), "{shown}");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parse(&shown), parse(json));
        assert_eq!(
            (indented("null").as_str(), indented("[]").as_str(), indented("\"a b\"").as_str()),
            ("null", "[]", "\"a b\"")
        );
    }
}
