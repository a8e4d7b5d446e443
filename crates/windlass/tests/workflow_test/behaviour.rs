//! Calls, times, messages.

use crate::{Approve, Charge, Refund, Ship, approve, failure};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use windlass::core::store::RunState;
use windlass::core::time::Timestamp;
use windlass::durable::{CallError, Error, ErrorClass, PromiseToken, Wf, join, select, workflow};
use windlass::testing::WorkflowTest;
use windlass::{Job, JobError};

const HOUR: Duration = Duration::from_secs(3_600);

#[workflow]
async fn order(wf: Wf, number: u64) -> Result<String, Error> {
    let mut saga = wf.saga();
    let paid = wf.call(Charge { order: number }).timeout("1h").await?;
    saga.undo(Refund { order: number });
    let by = select! {
        approve = wf.recv::<Approve>() => approve?.by,
        late = wf.sleep("30d") => { late?; return Err("nobody approved it".into()) },
    };
    let parcel = wf.call(Ship { order: number }).await?;
    Ok(format!("{parcel} for {paid}, approved by {by}"))
}

fn mocked() -> WorkflowTest {
    WorkflowTest::new()
        .mock(|job: Charge| Ok(job.order * 10))
        .mock(|_: Refund| Ok(()))
        .mock(|job: Ship| Ok(format!("parcel {}", job.order)))
}

#[tokio::test]
async fn results_times_and_inputs_of_calls_are_observed() {
    let test = mocked().takes("2h").signal_at("3d", approve("ann")).poke().crash_everywhere();
    let run = test.run(order, 7).await;
    assert_eq!(run.elapsed, 74 * HOUR);
    assert_eq!(run.calls::<Charge>()[0].order, 7);
    assert_eq!(run.call_times::<Ship>(), [72 * HOUR]);
    run.assert_calls::<Ship>(1);
    run.assert_calls::<Refund>(0);
    run.assert_called::<Ship>(|job| job.order == 7);
    assert_eq!(run.crashes, 9, "{run:?}");
    let history = run.history();
    for line in [
        "call `charge` #0   at ",
        "end of call `charge` #0 (1): 70",
        "+3d",
        "signal `approve` {\"by\":\"ann\"}",
        "cancels sleep",
    ] {
        assert!(history.contains(line), "{line}:\n{history}");
    }
    assert_eq!(run.output(), "parcel 7 for 70, approved by ann");
}

#[tokio::test]
async fn a_wait_of_30_days_ends_in_a_failure_and_its_compensation() {
    let run = mocked().crash_everywhere().run(order, 7).await;
    assert_eq!(run.elapsed, 30 * 24 * HOUR);
    assert_eq!(run.failure().message, "nobody approved it");
    assert_eq!(run.failure().state, RunState::Failed);
    run.assert_calls::<Refund>(1);
}

#[tokio::test]
async fn a_cancellation_and_a_timeout_end_in_different_states() {
    let cancelled = mocked().cancel_at("1d", "a mistake").run(order, 7).await;
    assert_eq!((cancelled.failure().state, cancelled.elapsed), (RunState::Cancelled, 24 * HOUR));
    cancelled.assert_calls::<Refund>(1);
    let late = mocked().timeout("2d").run(order, 7).await;
    assert_eq!((late.failure().state, late.elapsed), (RunState::TimedOut, 48 * HOUR));
}

#[workflow]
async fn charge_once(wf: Wf, number: u64) -> Result<(u64, u32, String), Error> {
    Ok(match wf.call(Charge { order: number }).attempts(4).timeout("1m").await {
        Ok(cents) => (cents, 0, String::new()),
        Err(error) => (0, error.attempts, format!("{}: {error}", error.class)),
    })
}

#[tokio::test]
async fn attempts_and_pauses_follow_the_policy_of_the_job() {
    let mut failures = 0;
    let flaky = WorkflowTest::new().mock(move |job: Charge| {
        failures += 1;
        if failures < 3 { Err("the bank is closed".into()) } else { Ok(job.order) }
    });
    let run = flaky.crash_everywhere().run(charge_once, 5).await;
    assert_eq!(run.elapsed, Duration::from_secs(1 + 2), "pauses of 1 s and 2 s");
    assert_eq!(run.output(), (5, 0, String::new()), "the mock was called three times in all executions");

    let dead = WorkflowTest::new().mock(|_: Charge| Err(JobError::fatal("no such card"))).run(charge_once, 5).await;
    assert_eq!(dead.output(), (0, 1, "failed: no such card".to_owned()));

    let later =
        WorkflowTest::new().mock(|_: Charge| Err(JobError::new("429").retry_after(HOUR))).run(charge_once, 5).await;
    assert_eq!(later.elapsed, 3 * HOUR);
    assert_eq!(later.output(), (0, 4, "failed: 429".to_owned()));

    let slow = WorkflowTest::new().mock(|_: Charge| Ok(1)).takes("2h").run(charge_once, 5).await;
    assert_eq!(slow.elapsed, Duration::from_secs(4 * 60 + 1 + 2 + 4));
    let (_, attempts, error) = slow.output();
    assert!(attempts == 4 && error.starts_with("timed_out: "), "{error}");

    let error = CallError::new(ErrorClass::TooLarge, "too large");
    let large = WorkflowTest::new().mock_error::<Charge>(error).run(charge_once, 5).await;
    assert_eq!(large.output().2, "too_large: too large");
}

#[workflow]
async fn gives_up(wf: Wf, _: ()) -> Result<(), Error> {
    select! {
        charged = wf.call(Charge { order: 1 }).attempts(100) => drop(charged),
        time = wf.sleep("150m") => time?,
    }
    Ok(wf.sleep("1d").await?)
}

#[tokio::test]
async fn a_cancelled_job_is_not_tried_again() {
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&attempts);
    let test = WorkflowTest::new().mock(move |_: Charge| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(JobError::new("closed").retry_after(HOUR))
    });
    test.crash_everywhere().run(gives_up, ()).await.output();
    assert_eq!(attempts.load(Ordering::Relaxed), 3, "now, after an hour and after two");
}

#[workflow]
async fn untyped(wf: Wf, _: ()) -> Result<(serde_json::Value, u64), Error> {
    let (named, typed) =
        join!(wf.call_named("resize image", serde_json::json!({"width": 3})), wf.call(Charge { order: 1 }));
    Ok((named?, typed?))
}

#[tokio::test]
async fn kinds_are_mocked_by_name_and_attempts_take_different_times() {
    let mut hours = 0;
    let test = WorkflowTest::new()
        .mock_kind("resize image", |job| Ok(serde_json::json!([job["width"], 4])))
        .mock_timed(move |_: Charge| {
            hours += 1;
            (HOUR * hours, if hours < 3 { Err("not yet".into()) } else { Ok(9) })
        });
    let run = test.run(untyped, ()).await;
    assert_eq!(run.elapsed, HOUR * 6 + Duration::from_secs(3));
    assert_eq!(run.calls_of("resize image"), [serde_json::json!({"width": 3})]);
    assert_eq!(run.output(), (serde_json::json!([3, 4]), 9));
}

#[derive(Serialize, Deserialize, Job)]
struct AskForApproval {
    answer_to: PromiseToken,
}

#[workflow]
async fn request(wf: Wf, _: ()) -> Result<(bool, String, i64), Error> {
    let approved = wf.promise::<bool>();
    wf.call(AskForApproval { answer_to: approved.token() }).await?;
    let approved = approved.await?;
    let by = wf.recv::<Approve>().await?.by;
    Ok((approved, by, wf.now().as_ms()))
}

#[tokio::test]
async fn mocks_resolve_promises_and_send_signals() {
    let ask = WorkflowTest::new().mock_with(|job: AskForApproval, outside| {
        outside.resolve_after("2h", &job.answer_to, &true);
        outside.signal_after("1h", &approve("bob"));
        Ok(())
    });
    let run = ask.starting_at(Timestamp::from_ms(1_000)).crash_everywhere().poke().run(request, ()).await;
    assert_eq!(run.elapsed, 2 * HOUR);
    assert_eq!(run.output(), (true, "bob".to_owned(), 7_201_000));

    let cancel = WorkflowTest::new().mock_with(|_: AskForApproval, outside| {
        outside.cancel_after("1m", "too late");
        Ok(())
    });
    assert_eq!(cancel.run(request, ()).await.failure().state, RunState::Cancelled);
}

#[workflow]
async fn heartbeat(wf: Wf, _: ()) -> Result<(), Error> {
    loop {
        wf.call(Charge { order: 1 }).await?;
        wf.sleep("1d").await?;
    }
}

#[tokio::test]
async fn a_workflow_without_an_end_runs_for_a_while() {
    let run = mocked().run_for("365d", heartbeat, ()).await;
    run.assert_calls::<Charge>(366);
    assert_eq!(run.elapsed, 365 * 24 * HOUR);
    assert!(run.result.for_what[0].starts_with("timer until 2027-01-02"), "{:?}", run.result);
}

#[tokio::test]
async fn a_waiting_workflow_names_what_it_waits_for() {
    let run = WorkflowTest::new().mock_with(|_: AskForApproval, _| Ok(())).run_until_waiting(request, ()).await;
    assert!(run.result.for_what[0].starts_with("promise at "), "{:?}", run.result);

    let test = WorkflowTest::new().mock_with(|_: AskForApproval, _| Ok(())).seed(7);
    let text = failure(test.run(request, ())).await;
    assert!(text.contains("nothing will happen any more (seed 7)") && text.contains(".signal_at("), "{text}");
    assert!(text.contains("call `ask_for_approval` #0"), "{text}");
    let text = failure(mocked().run_until_waiting(charge_once, 1)).await;
    assert!(text.contains("ended with [10,0,\"\"]"), "{text}");
}

#[tokio::test]
async fn messages_whose_time_does_not_come_are_listed() {
    let run = mocked().signal_at("1d", approve("ann")).signal_at("2d", approve("bob")).run(order, 1).await;
    assert_eq!(run.undelivered, ["signal `approve` at +2d"]);
}

#[tokio::test]
async fn a_call_without_a_mock_fails_the_test_and_names_the_mock_to_add() {
    let text = failure(WorkflowTest::new().run(order, 7)).await;
    assert!(text.contains("no mock for `charge`, which was called with {\"order\":7}"), "{text}");
    assert!(text.contains("add `.mock(|job: Charge| Ok(..))`") && text.contains("seed 1"), "{text}");
    assert!(text.contains("   1  +0s          call `charge` #0   at "), "{text}");
}

#[tokio::test]
async fn assertions_print_the_history() {
    let run = mocked().run(order, 7).await;
    for failed in [
        failure(async { run.assert_calls::<Refund>(2) }).await,
        failure(async { run.assert_called::<Charge>(|job| job.order == 8) }).await,
        failure(async { run.output() }).await,
    ] {
        assert!(failed.contains("end of call `charge`"), "{failed}");
    }
    let run = mocked().run(charge_once, 7).await;
    assert!(failure(async { run.failure().clone() }).await.contains("the workflow succeeded"));
}

#[tokio::test]
async fn a_panic_of_a_mock_is_the_panic_of_the_test() {
    let test = WorkflowTest::new().mock(|job: Charge| {
        assert_eq!(job.order, 8);
        Ok(1)
    });
    assert!(failure(test.run(order, 7)).await.contains("left: 7"));
}

#[test]
fn a_workflow_without_local_steps_needs_no_runtime() {
    let run = futures::executor::block_on(mocked().signal_at("3d", approve("ann")).run(order, 7));
    assert_eq!(run.elapsed, 72 * HOUR);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_without_local_steps_runs_in_any_runtime() {
    assert_eq!(mocked().run(order, 7).await.elapsed, 720 * HOUR);
}

/// Prints how much real time a month takes; nothing is asserted about it.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "measures real time, to be read by people")]
async fn months_of_virtual_time_are_measured() {
    let mut times = Vec::new();
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        let run = mocked().run(order, 7).await;
        times.push(begun.elapsed());
        assert_eq!(run.elapsed, 30 * 24 * HOUR);
    }
    times.sort();
    println!("30 days: {:?} at best, {:?} in the middle", times[0], times[10]);
}
