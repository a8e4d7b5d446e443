//! Errors that mocks return. The engine on a `TestBed` is the model.

use crate::Charge;
use serde_json::{Value, json};
use std::time::Duration;
use windlass::durable::{CallError, Error, ErrorClass, Wf, workflow};
use windlass::testing::{TestBed, WorkflowTest};
use windlass::{JobError, Worker};

#[workflow]
async fn declined(wf: Wf, _: ()) -> Result<(String, Value), Error> {
    let error = wf.call(Charge { order: 1 }).attempts(2).await.unwrap_err();
    Ok((format!("{} after {}", error.message, error.attempts), error.detail.unwrap_or_default()))
}

/// Runs the workflow with a mock and with a handler that fail with the same error.
async fn both(fail: impl Fn() -> JobError + Clone + Send + Sync + 'static) -> (String, Value) {
    let mocked = fail.clone();
    let simulated = WorkflowTest::new().mock(move |_: Charge| Err(mocked())).crash_everywhere();
    let simulated = simulated.run(declined, ()).await;
    let test = TestBed::new();
    let run = test.client().start(declined, ()).await.unwrap();
    let handler = move |_: Charge| {
        let error = fail();
        async move { Err::<u64, _>(error) }
    };
    test.run_until_idle(Worker::builder(test.store()).queue("shop").handle(handler).workflow(declined)).await;
    let executed = run.result(Duration::ZERO).await.unwrap().expect("it ends");
    assert_eq!(simulated.result, executed, "{simulated:?}");
    simulated.output()
}

#[tokio::test]
async fn the_detail_of_an_error_arrives() {
    let (message, detail) = both(|| JobError::fatal("declined").detail(json!({ "code": 51 }))).await;
    assert_eq!((message.as_str(), detail), ("declined after 1", json!({ "code": 51 })));
    let (message, detail) = both(|| JobError::new("busy")).await;
    assert_eq!((message.as_str(), detail), ("busy after 2", Value::Null));
}

#[tokio::test]
async fn a_detail_that_is_too_large_is_left_out() {
    let (message, detail) = both(|| JobError::fatal("declined").detail("x".repeat(20_000))).await;
    assert_eq!(detail, Value::Null);
    assert!(message.starts_with("declined (its detail of 20002 bytes was left out"), "{message}");
}

#[tokio::test]
async fn a_given_error_keeps_its_detail() {
    let error = CallError { detail: Some(json!([1])), ..CallError::new(ErrorClass::Failed, "no") };
    let run = WorkflowTest::new().mock_error::<Charge>(error).run(declined, ()).await;
    assert!(run.history().contains("error (failed, after 1 attempts): no, detail [1]"), "{run:?}");
    assert_eq!(run.output(), ("no after 1".to_owned(), json!([1])));
}
