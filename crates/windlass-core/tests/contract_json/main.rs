//! The JSON form of the contract: one example of every call and every answer, in a file that changes only on purpose.
//!
//! `WINDLASS_WRITE_GOLDEN=1` writes the file anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

mod calls;
mod values;

use calls::*;
use serde_json::Value;
use std::fmt::Write;
use values::*;
use windlass_core::Error;
use windlass_core::job::{JobSpec, NewJob, State};
use windlass_core::payload::Payload;
use windlass_core::retry::RetryPolicy;
use windlass_core::schedule::Rule;
use windlass_core::store::*;

fn examples() -> Vec<(Call, Answer)> {
    [job_queue(), jobs_and_queues(), logs_workers_schedules(), runs(), messages_and_lists(), feed_and_store()].concat()
}

/// Further variants that the examples have no room for.
fn variants() -> Vec<(&'static str, Value)> {
    let reasons = [
        Reason::Delayed { until: at(5) },
        Reason::Due,
        Reason::HeldBehind { job: job_id(2) },
        Reason::QueuePaused,
        Reason::KindPaused { kind: kind() },
        Reason::QueueAtCap { cap: 1 },
        Reason::QueueRateLimited { until: at(5) },
        Reason::GroupAtCap { group: "g".try_into().unwrap(), cap: 1 },
        Reason::GroupRateLimited { group: "g".try_into().unwrap(), until: at(5) },
        Reason::NoWorkerForQueue,
        Reason::NoWorkerForKind { kind: kind() },
        Reason::NoWorkerWithLabels { missing: vec!["gpu".try_into().unwrap()] },
        Reason::WaitsItsTurn,
        Reason::Running { worker: worker(), until: at(5) },
        Reason::Cancelling { worker: worker() },
        Reason::LeaseExpired { worker: worker() },
        Reason::Ended { error: Some("no route".to_owned()) },
        Reason::Quarantined { detail: "unreadable".to_owned() },
    ];
    let many = [
        ChangeManyOp::Drain { scheduled: true },
        ChangeManyOp::Obliterate { force: true },
        ChangeManyOp::RetryFailed,
        ChangeManyOp::PromoteAll,
        ChangeManyOp::CancelAll,
    ];
    let retries = [RetryPolicy::None, RetryPolicy::Fixed { delay_ms: 5 }, RetryPolicy::default(), RetryPolicy::ByKind];
    let waits =
        [WaitFor::Job(job_id(1)), WaitFor::Run(run_id(1)), WaitFor::Runs(WorkMark(3)), WaitFor::Feed(FeedCursor(3))];
    let value = |value: Result<Value, _>| value.unwrap();
    vec![
        ("reason", value(serde_json::to_value(reasons))),
        ("change_many", value(serde_json::to_value(many))),
        ("retry", value(serde_json::to_value(retries))),
        ("wait", value(serde_json::to_value(waits))),
        ("maintenance_claim", value(serde_json::to_value(MaintenanceClaim::Granted))),
        ("fire_outcome", value(serde_json::to_value([FireOutcome::Skipped, FireOutcome::Stale]))),
        ("rule", value(serde_json::to_value(Rule::every_ms(60_000)))),
        ("run_reuse", value(serde_json::to_value([RunReuse::Never, RunReuse::IfEnded]))),
        ("new_run", value(serde_json::to_value(NewRun::new(run_id(1), kind())))),
        ("last_step", value(serde_json::to_value(last_step()))),
        (
            "only_if_stuck",
            value(serde_json::to_value(RunMessage { only_if_stuck: true, ..RunMessage::new(run_id(1), "") })),
        ),
        ("terminates", value(serde_json::to_value(RunMessage { terminates: true, ..RunMessage::new(run_id(1), "") }))),
        ("states", value(serde_json::to_value((State::ALL, RunState::ALL, SweepKind::ALL)))),
    ]
}

#[test]
fn every_call_and_answer_has_an_example() {
    let examples = examples();
    let calls: Vec<Method> = examples.iter().map(|(call, _)| call.method()).collect();
    let answers: Vec<Method> = examples.iter().map(|(_, answer)| answer.method()).collect();
    assert_eq!(calls, Method::ALL);
    assert_eq!(answers, Method::ALL);
}

#[test]
fn the_json_form_is_that_of_the_golden_file() {
    let mut text = String::new();
    for (call, answer) in examples() {
        writeln!(text, "call {}", String::from_utf8(call.to_json().unwrap()).unwrap()).unwrap();
        writeln!(text, "answer {}", String::from_utf8(answer.to_json().unwrap()).unwrap()).unwrap();
    }
    for (name, value) in variants() {
        writeln!(text, "{name} {value}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/contract.txt");
    if std::env::var_os("WINDLASS_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (written, kept) in text.lines().zip(golden.lines()) {
        assert_eq!(written, kept, "the JSON form changed; programs in other languages rely on it");
    }
    assert_eq!(text.lines().count(), golden.lines().count());
}

#[test]
fn every_example_comes_back_from_its_json() {
    for (call, answer) in examples() {
        assert_eq!(Call::from_json(&call.to_json().unwrap()), Ok(call));
        assert_eq!(Answer::from_json(&answer.to_json().unwrap()), Ok(answer));
    }
}

#[test]
fn payloads_come_back_byte_for_byte() {
    let exact: &[&[u8]] = &[
        b"null",
        b"{\"a\": 1,\n \"a\":1e400}",
        b" 1",
        b"1 ",
        b"",
        b"{\"broken\":",
        b"\"\\ud800\"",
        b"\xff",
        "\"\u{2028}é\"".as_bytes(),
        &[b'['; 1_000],
    ];
    for bytes in exact {
        for content_type in ["application/json", "text/plain"] {
            let payload = Payload::new(content_type, bytes.to_vec());
            let text = serde_json::to_vec(&payload).unwrap();
            assert_eq!(serde_json::from_slice::<Payload>(&text).unwrap(), payload, "{}", text.escape_ascii());
        }
    }
}

#[test]
fn a_payload_is_read_from_every_form_it_was_ever_stored_in() {
    let read = |text: &str| serde_json::from_str::<Payload>(text);
    assert_eq!(read("{}").unwrap(), Payload::default());
    assert_eq!(read(r#"{"json":null}"#).unwrap(), Payload::default());
    let stored = r#"{"content_type":"application/json","bytes":[91,93]}"#;
    assert_eq!(read(stored).unwrap(), Payload::new("application/json", "[]"));
    assert!(read(r#"{"json":1,"base64":""}"#).is_err());
    assert!(read(r#"{"base64":"?"}"#).is_err());
}

#[test]
fn a_call_with_an_unknown_field_is_refused_and_an_answer_with_one_is_read() {
    let spec = r#"{"queue":"q","kind":"k","dedup":{"by":"payload","mode":"reject","ttl":5}}"#;
    let job =
        format!(r#"{{"enqueue":{{"request":{{"jobs":[{{"id":"0-00000000000000000000000001","spec":{spec}}}]}}}}}}"#);
    let rule = r#"{"cron":{"expression":"@daily","zome":"UTC"}}"#;
    let schedule =
        format!(r#"{{"put_schedule":{{"schedule":{{"name":"s","rule":{rule},"spec":{{"queue":"q","kind":"k"}}}}}}}}"#);
    for (call, unknown) in [(job, "request.jobs.0.spec.dedup.ttl"), (schedule, "schedule.rule.zome")] {
        let refused = Call::from_json(call.as_bytes()).unwrap_err();
        let Error::Invalid { field, .. } = refused else { panic!("{refused}") };
        assert_eq!(field, unknown, "a typo is not a default");
    }
    let answer = Answer::from_json(br#"{"sweep":{"handled":1,"more":false,"new":1}}"#);
    assert_eq!(answer, Ok(Answer::Sweep(Swept { handled: 1, more: false, next_at: None })));
}

#[test]
fn absent_fields_have_their_defaults() {
    let call = r#"{"enqueue":{"request":{"jobs":[{"id":"0-00000000000000000000000001","spec":{"queue":"mail","kind":"send"}}]}}}"#;
    let spec = JobSpec::new(queue(), kind(), Payload::default());
    let request = EnqueueRequest::new(vec![NewJob::new(job_id(1), spec)]);
    assert_eq!(Call::from_json(call.as_bytes()), Ok(Call::Enqueue { request }));
    let claim = r#"{"claim":{"request":{"worker":"worker-1","request_id":5,"queues":["mail"],"kinds":"any","max":1,"lease_ms":30000}}}"#;
    let request = ClaimRequest::new(worker(), 5, queue());
    assert_eq!(Call::from_json(claim.as_bytes()), Ok(Call::Claim { request }));
}

#[test]
fn the_code_of_every_error_is_that_of_its_json() {
    for error in every_error() {
        assert_eq!(serde_json::to_value(&error).unwrap()["code"], error.code());
    }
}
