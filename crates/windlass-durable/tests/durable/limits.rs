//! Values that are too large, and requests that no store accepts.

use super::support::{A, State, body, value, wf, world};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::retry::RetryPolicy;
use windlass_durable::{End, Start};

#[test]
fn a_large_result_becomes_an_error_of_the_call() {
    let workflow = wf(|wf| async move {
        let error = wf.call_named("large", json!(1)).await.unwrap_err();
        wf.call(A(1)).await?;
        Ok(json!(error.class.name()))
    });
    let mut large = world(workflow);
    large.limits.result_bytes_max = 100;
    large.activity = Arc::new(|job| match &*job.key.name {
        "large" => (1, Ok(body(&"x".repeat(200)))),
        _ => (1, Ok(body(&1))),
    });
    assert_eq!(value(large.go()), json!("too_large"));
    // The error is in the history: a replay under another limit gets it, too.
    large.run = None;
    large.limits.result_bytes_max = 1_000;
    let run = windlass_durable::Run::open(large.opening()).unwrap();
    assert_eq!(run.ended(), Some(End::Ok(body(&"too_large"))));
}

#[test]
fn a_large_result_of_the_workflow_is_a_failure() {
    let mut large = world(wf(|_| async move { Ok(json!("x".repeat(200))) }));
    large.limits.result_bytes_max = 100;
    let State::Ended(End::Failed(message)) = large.go() else { panic!() };
    assert!(message.contains("202 bytes"), "{message}");
}

#[test]
fn a_call_may_set_how_many_workers_may_vanish() {
    let mut calls = world(wf(|wf| async move { Ok(json!(wf.call(A(1)).stalls(7).await?)) }));
    value(calls.go());
    let Start::Job { spec, .. } = &calls.started[0].start else { panic!() };
    assert_eq!(spec.stalls, 7);
}

#[test]
fn requests_that_no_store_accepts_fail_without_a_record() {
    let workflow = wf(|wf| async move {
        let mut classes = Vec::new();
        classes.push(wf.call_named("", json!(1)).await.unwrap_err().class.name());
        classes.push(wf.call(A(1)).queue("a\nb").await.unwrap_err().class.name());
        classes.push(wf.call(A(1)).attempts(0).await.unwrap_err().class.name());
        classes.push(wf.call_named("x", json!("x".repeat(200))).await.unwrap_err().class.name());
        classes.push(wf.child_named("\n", json!(1)).await.unwrap_err().class.name());
        let wrong: BTreeMap<(u8, u8), u8> = BTreeMap::from([((1, 2), 3)]);
        let step = wf.run_ok("wrong", async || serde_json::to_value(&wrong).map_err(|e| e.to_string()).err()).await?;
        assert!(step.is_some());
        wf.call(A(7)).await?;
        Ok(json!(classes))
    });
    let mut refused = world(workflow);
    refused.limits.input_bytes_max = 100;
    assert_eq!(value(refused.go()), json!(["invalid", "invalid", "invalid", "too_large", "invalid"]));
    assert_eq!(refused.started.len(), 1);
}

#[test]
fn options_of_a_call_stand_in_its_spec() {
    let workflow = wf(|wf| async move {
        let call = wf.call(A(1)).queue("mail").label("gpu").labels(["eu"]).priority(-3).group("acme").attempts(7);
        let call = call.retry(RetryPolicy::Fixed { delay_ms: 5 }).timeout("30s").delay("2s");
        let call = call.schedule_to_start("1m").schedule_to_close("1h").heartbeat("10s");
        Ok(json!(call.await?))
    });
    let mut options = world(workflow);
    value(options.go());
    let Start::Job { spec, due, timeouts, .. } = &options.started[0].start else { panic!() };
    assert_eq!((spec.queue.as_str(), spec.priority, spec.attempts), ("mail", -3, 7));
    assert_eq!((spec.labels.len(), spec.timeout_ms), (2, Some(30_000)));
    assert_eq!(spec.group.as_ref().map(windlass_core::name::GroupName::as_str), Some("acme"));
    assert_eq!(spec.retry, RetryPolicy::Fixed { delay_ms: 5 });
    assert_eq!(*due, windlass_core::job::Due::DelayMs(2_000));
    let times = (timeouts.schedule_to_start_ms, timeouts.schedule_to_close_ms, timeouts.heartbeat_ms);
    assert_eq!(times, (Some(60_000), Some(3_600_000), Some(10_000)));
}
