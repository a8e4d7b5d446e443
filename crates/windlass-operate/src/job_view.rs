//! Jobs as people and programs see them: names as in a listing, payloads in a readable form.

use crate::text::{excerpt, printable};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use windlass::core::job::{Job, JobSummary, State, Verb};
use windlass::core::payload::{JSON, Payload};
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
#[derive(Clone, Copy, Debug)]
pub struct JobView<'a> {
    /// The job.
    pub job: &'a Job,
    /// Why it has its state.
    pub explanation: &'a Explanation,
    /// The explanation as a sentence, see [`crate::explain::sentence`].
    pub text: &'a str,
}

impl Serialize for JobView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (job, spec) = (self.job, self.job.spec.as_ref());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &job.id)?;
        map.serialize_entry("queue", &spec.queue)?;
        map.serialize_entry("kind", &spec.kind)?;
        map.serialize_entry("group", &spec.group)?;
        map.serialize_entry("custom_id", &spec.custom_id)?;
        map.serialize_entry("state", &job.state)?;
        map.serialize_entry("priority", &spec.priority)?;
        map.serialize_entry("lifo", &spec.lifo)?;
        map.serialize_entry("attempt", &job.attempt)?;
        map.serialize_entry("attempts_max", &spec.attempts)?;
        map.serialize_entry("stalls", &job.stall_count)?;
        map.serialize_entry("stalls_max", &spec.stalls)?;
        map.serialize_entry("retries", &job.retry_count)?;
        map.serialize_entry("timeout_ms", &spec.timeout_ms)?;
        map.serialize_entry("retry", &spec.retry)?;
        map.serialize_entry("labels", &spec.labels)?;
        map.serialize_entry("dedup", &spec.dedup)?;
        map.serialize_entry("keep_for", &spec.keep_for)?;
        map.serialize_entry("metadata", &spec.metadata)?;
        map.serialize_entry("trace", &spec.trace)?;
        map.serialize_entry("due_at", &job.due_at)?;
        map.serialize_entry("lease", &job.lease)?;
        map.serialize_entry("cancel_requested", &job.cancel_requested)?;
        map.serialize_entry("progress", &job.progress)?;
        map.serialize_entry("content_type", &spec.payload.content_type)?;
        map.serialize_entry("payload", &payload_json(&spec.payload))?;
        map.serialize_entry("result", &job.result.as_ref().and_then(payload_json))?;
        map.serialize_entry("outputs", &job.outputs)?;
        map.serialize_entry("failures", &job.failures)?;
        map.serialize_entry("created_at", &job.created_at)?;
        map.serialize_entry("claimed_at", &job.claimed_at)?;
        map.serialize_entry("finished_at", &job.finished_at)?;
        map.serialize_entry("quarantined", &job.quarantined)?;
        map.serialize_entry("explanation", &self.explanation)?;
        map.serialize_entry("text", &self.text)?;
        map.end()
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
