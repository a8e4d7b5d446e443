//! Timeouts of calls. The engine on a `TestBed` is the model.

use crate::{Charge, Refund, failure};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::durable::{Error, Wf, join, join_all, select, workflow};
use windlass::testing::{TestBed, WorkflowTest};
use windlass::{JobError, Worker, WorkerBuilder};

const HOUR: Duration = Duration::from_secs(3_600);
const UNCLAIMED: &str = "timed_out, 0 attempts: schedule_to_start: no worker had claimed the job in time";

/// Options of a call, in hours.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Hours {
    to_start: Option<u32>,
    to_close: Option<u32>,
    timeout: Option<u32>,
    delay: u32,
    attempts: u32,
}

const ONCE: Hours = Hours { to_start: None, to_close: None, timeout: None, delay: 0, attempts: 1 };

/// How a call ends, and after how many hours.
#[workflow]
async fn limited(wf: Wf, hours: Hours) -> Result<(String, i64), Error> {
    let begun = wf.now().as_ms();
    let mut call = wf.call(Charge { order: 7 }).attempts(hours.attempts).delay(HOUR * hours.delay);
    if let Some(to_start) = hours.to_start {
        call = call.schedule_to_start(HOUR * to_start);
    }
    if let Some(to_close) = hours.to_close {
        call = call.schedule_to_close(HOUR * to_close);
    }
    if let Some(timeout) = hours.timeout {
        call = call.timeout(HOUR * timeout);
    }
    let ended = match call.await {
        Ok(cents) => format!("{cents} cents"),
        // Up to the day of a deadline.
        Err(error) => {
            let message = error.message.split_once(" by 2026-").map_or(error.message.as_str(), |(before, _)| before);
            format!("{}, {} attempts: {message}", error.class, error.attempts)
        }
    };
    let after = (wf.now().as_ms() - begun) / 3_600_000;
    // Whatever the job does after the end of its call has no effect.
    wf.sleep("1d").await?;
    Ok((ended, after))
}

/// Runs the workflow with mocks and with handlers. The results are the same.
async fn both(
    hours: Hours,
    mocked: WorkflowTest,
    handled: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> (String, i64) {
    let simulated = mocked.crash_everywhere().poke().run(limited, hours).await;
    let test = TestBed::new();
    let run = test.client().start(limited, hours).await.unwrap();
    test.run_until_idle(handled(Worker::builder(test.store()).queue("shop").workflow(limited))).await;
    let executed = run.result(Duration::ZERO).await.unwrap().expect("it ends");
    assert_eq!(simulated.result, executed, "{simulated:?}");
    simulated.output()
}

/// A job that takes so long.
async fn takes(time: Duration, hours: Hours) -> (String, i64) {
    let handler = move |_: Charge| async move {
        // sleeps because: it stands for work, on the virtual clock.
        tokio::time::sleep(time).await;
        Ok::<_, JobError>(70)
    };
    both(hours, WorkflowTest::new().mock(|_: Charge| Ok(70)).takes(time), |worker| worker.handle(handler)).await
}

#[tokio::test]
async fn a_call_that_takes_longer_than_its_schedule_to_close_times_out() {
    let late = "timed_out, 0 attempts: schedule_to_close: the call did not end".to_owned();
    assert_eq!(takes(HOUR * 6, Hours { to_close: Some(5), ..ONCE }).await, (late, 5));
    assert_eq!(takes(HOUR * 4, Hours { to_close: Some(5), ..ONCE }).await, ("70 cents".to_owned(), 4));
}

#[tokio::test]
async fn a_call_whose_attempt_takes_too_long_has_the_error_of_the_worker() {
    let late = "timed_out, 1 attempts: it took longer than its 7200000 ms".to_owned();
    assert_eq!(takes(HOUR * 6, Hours { timeout: Some(2), to_close: Some(5), ..ONCE }).await, (late, 2));
}

#[tokio::test]
async fn a_job_that_no_worker_claims_in_time_never_starts() {
    let unclaimed = || WorkflowTest::new().mock_unclaimed::<Charge>();
    let ended = both(Hours { to_start: Some(1), to_close: Some(5), ..ONCE }, unclaimed(), |worker| worker).await;
    assert_eq!(ended, (UNCLAIMED.to_owned(), 1));
    let late = "timed_out, 0 attempts: schedule_to_close: the call did not end".to_owned();
    let ended = both(Hours { to_close: Some(5), ..ONCE }, unclaimed(), |worker| worker).await;
    assert_eq!(ended, (late.clone(), 5));
    // Both at once: the call ends with the deadline of its end.
    let ended = both(Hours { to_start: Some(5), to_close: Some(5), ..ONCE }, unclaimed(), |worker| worker).await;
    assert_eq!(ended, (late, 5));
}

#[tokio::test]
async fn a_job_that_was_claimed_in_time_goes_on() {
    let ended = takes(HOUR * 3, Hours { to_start: Some(1), ..ONCE }).await;
    assert_eq!(ended, ("70 cents".to_owned(), 3));
}

#[tokio::test]
async fn a_job_that_waits_for_its_second_attempt_was_claimed() {
    let again = || JobError::new("busy").retry_after(HOUR * 2);
    let (mut mocked, handled) = (0, Arc::new(AtomicU32::new(0)));
    let mock = WorkflowTest::new().mock(move |_: Charge| {
        mocked += 1;
        if mocked == 1 { Err(again()) } else { Ok(70) }
    });
    let handler = move |_: Charge| {
        let attempt = handled.fetch_add(1, Ordering::Relaxed);
        async move { if attempt == 0 { Err(again()) } else { Ok(70) } }
    };
    let hours = Hours { to_start: Some(1), to_close: Some(5), attempts: 2, ..ONCE };
    let ended = both(hours, mock, |worker| worker.handle(handler)).await;
    assert_eq!(ended, ("70 cents".to_owned(), 2));
}

#[tokio::test]
async fn a_call_that_times_out_is_not_tried_again() {
    let again = || Err(JobError::new("busy").retry_after(HOUR * 2));
    let (mocked, handled) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&mocked);
    let mock = WorkflowTest::new().mock(move |_: Charge| {
        counted.fetch_add(1, Ordering::Relaxed);
        again()
    });
    let counted = Arc::clone(&handled);
    let handler = move |_: Charge| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { again() }
    };
    let ended = both(Hours { to_close: Some(5), attempts: 9, ..ONCE }, mock, |worker| worker.handle(handler)).await;
    assert_eq!(ended.1, 5);
    assert_eq!(mocked.load(Ordering::Relaxed), 3, "at once, after two hours and after four");
    assert_eq!(handled.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_delay_counts() {
    let delayed = Hours { delay: 2, ..ONCE };
    assert_eq!(takes(HOUR, Hours { to_start: Some(1), ..delayed }).await, (UNCLAIMED.to_owned(), 1));
    assert_eq!(takes(HOUR, Hours { to_start: Some(3), ..delayed }).await, ("70 cents".to_owned(), 3));
}

#[tokio::test]
async fn a_job_waits_until_a_worker_claims_it() {
    let claimed_after = |time| WorkflowTest::new().mock(|_: Charge| Ok(70)).claimed_after(time).takes("2h");
    let hours = Hours { to_start: Some(4), ..ONCE };
    let in_time = claimed_after("3h").crash_everywhere().run(limited, hours).await;
    assert_eq!(in_time.output(), ("70 cents".to_owned(), 5));
    let late = claimed_after("5h").crash_everywhere().run(limited, hours).await;
    assert!(late.history().contains("+4h          schedule_to_start of call `charge` #0 (1) has passed"), "{late:?}");
    assert_eq!(late.output(), (UNCLAIMED.to_owned(), 4));
    let text = failure(async { WorkflowTest::new().mock_step("step", || Ok(1)).claimed_after("1h") }).await;
    assert!(text.contains("follows the mock of a job"), "{text}");
}

#[tokio::test]
async fn a_call_without_a_deadline_waits_for_a_worker() {
    let run = WorkflowTest::new().mock_unclaimed::<Charge>().run_until_waiting(limited, ONCE).await;
    assert!(run.result.for_what[0].starts_with("call `charge` at "), "{:?}", run.result);
}

/// Calls at the same time, of which no worker claims the refunds, and one that is dropped.
#[workflow]
async fn many(wf: Wf, count: u64) -> Result<(usize, usize), Error> {
    let calls = join_all((0..count).map(|order| wf.call(Charge { order }).schedule_to_close("2h")));
    let unclaimed = (0..count).map(|order| wf.call(Refund { order }).schedule_to_start("1h").schedule_to_close("2h"));
    let (ended, unclaimed) = join!(calls, join_all(unclaimed));
    select! {
        refund = wf.call(Refund { order: 1 }).schedule_to_start("1h") => refund?,
        time = wf.sleep("1m") => time?,
    }
    wf.sleep("3h").await?;
    Ok((ended.iter().filter(|call| call.is_ok()).count(), unclaimed.iter().filter(|call| call.is_ok()).count()))
}

#[tokio::test]
async fn deadlines_of_simultaneous_calls_do_not_depend_on_their_order() {
    let test = WorkflowTest::new().mock_unclaimed::<Refund>().mock(|_: Charge| Ok(1)).takes("90m");
    let run = test.crash_everywhere().poke().run(many, 5).await;
    assert_eq!(run.orders, 20);
    assert_eq!(run.history().matches("schedule_to_start: no worker had claimed").count(), 5, "{run:?}");
    assert_eq!(run.output(), (5, 0));
}
