//! Jobs as people and programs see them: names as in a listing, payloads in a readable form.

use crate::text::{excerpt, printable};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use windlass::core::id::JobId;
use windlass::core::job::{Dedup, Failure, Job, JobSummary, KeepFor, LeaseView, Progress, State, TraceContext, Verb};
use windlass::core::name::{CustomId, GroupName, Kind, Labels, QueueName};
use windlass::core::payload::{JSON, Payload};
use windlass::core::retry::RetryPolicy;
use windlass::core::store::{Explanation, Transition};
use windlass::core::time::Timestamp;

/// A payload as JSON: unchanged when it is JSON, a string when it is UTF-8, otherwise `{"hex": …}`.
pub fn payload_json(payload: &Payload) -> Option<Box<RawValue>> {
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

/// A payload for people: indented when it is JSON, lines without control characters when it is UTF-8.
pub fn payload_text(payload: &Payload) -> String {
    if payload.content_type == JSON
        && let Ok(raw) = serde_json::from_slice::<&RawValue>(&payload.bytes)
    {
        return indented(raw.get());
    }
    match std::str::from_utf8(&payload.bytes) {
        Ok(text) => text.lines().map(printable).collect::<Vec<_>>().join("\n"),
        Err(_) => format!("{} bytes: {}", payload.bytes.len(), excerpt(&hex(&payload.bytes))),
    }
}

/// JSON with each member on its own line. The order of members and the digits of numbers stay as they are written; parsing
/// and printing would lose them.
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

/// All fields of one job, with the explanation of its state, as `windlass jobs show --json` prints them.
#[derive(Debug, Serialize)]
pub struct JobView<'a> {
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

impl<'a> JobView<'a> {
    /// `text` is the explanation as a sentence, see [`crate::explain::sentence`].
    pub fn new(job: &'a Job, explanation: &'a Explanation, text: &'a str) -> Self {
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
            payload: payload_json(&spec.payload),
            result: job.result.as_ref().and_then(payload_json),
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

/// The time that matters most for a job in a listing: its end, else when it is due, else its claim, else its creation.
pub fn listed_time(job: &JobSummary) -> Timestamp {
    let claimed_at = job.claimed_at.filter(|_| job.worker.is_some());
    job.finished_at.or(job.due_at).or(claimed_at).unwrap_or(job.created_at)
}

/// The note of a job in a listing: its worker, its last error, or its group.
pub fn listed_note(job: &JobSummary) -> Option<String> {
    match (&job.last_error, &job.worker) {
        _ if job.quarantined => Some("quarantined: its stored form cannot be read".to_owned()),
        (_, Some(worker)) => Some(format!("by {worker}")),
        (Some(error), None) => Some(error.clone()),
        (None, None) => job.group.as_ref().map(|group| format!("group {group}")),
    }
}

/// What a change of a job means, in words for people.
pub fn transition_text(job: &Transition) -> String {
    let attempt = job.attempt;
    match (job.verb, job.to) {
        (Verb::Enqueue, Some(State::Scheduled)) => "enqueued, for later".to_owned(),
        (Verb::Enqueue, _) => "enqueued".to_owned(),
        (Verb::Promote, _) => "due".to_owned(),
        (Verb::Claim, _) => format!("attempt {attempt} begins"),
        (Verb::Progress, _) => "progress".to_owned(),
        (Verb::Fail, Some(State::Scheduled | State::Ready)) => format!("attempt {attempt} failed; another one follows"),
        (Verb::Fail | Verb::Release, Some(State::Failed)) => format!("attempt {attempt} failed, and it was the last"),
        (Verb::Release, Some(State::Ready)) => "given back by its worker".to_owned(),
        (Verb::Reap, Some(State::Failed)) => "its worker vanished once too often: failed".to_owned(),
        (Verb::Reap, Some(State::Ready | State::Scheduled)) => "its worker vanished; it will run again".to_owned(),
        (Verb::Cancel, Some(State::Active)) => "asked to stop".to_owned(),
        (Verb::Retry, _) => "retried, with all its attempts".to_owned(),
        (Verb::Reschedule, _) => "moved to another time".to_owned(),
        (Verb::Reprioritise, _) => "given another priority".to_owned(),
        (Verb::UpdatePayload, _) => "given another payload".to_owned(),
        (_, None) => "removed".to_owned(),
        (_, Some(state)) => state.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn indentation_changes_neither_order_nor_numbers() {
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
