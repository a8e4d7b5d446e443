//! Runs that fail and are started again. The engine on a `TestBed` is the model.

use crate::{Approve, Charge, Refund, approve, failure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use windlass::core::retry::RetryPolicy;
use windlass::core::store::RunState;
use windlass::durable::{Error, Wf, workflow};
use windlass::testing::{TestBed, WorkflowTest};
use windlass::{JobError, Worker, WorkerBuilder};

const HOUR: Duration = Duration::from_secs(3_600);

fn hourly() -> RetryPolicy {
    RetryPolicy::Fixed { delay_ms: 3_600_000 }
}

/// Succeeds in this attempt. The others are compensated.
#[workflow]
async fn lucky(wf: Wf, needed: u32) -> Result<(u64, u32), Error> {
    let mut saga = wf.saga();
    let attempt = wf.attempt();
    let paid = wf.call(Charge { order: attempt.into() }).await?;
    saga.undo(Refund { order: attempt.into() });
    if attempt < needed {
        return Err(format!("attempt {attempt} fails").into());
    }
    saga.commit();
    Ok((paid, attempt))
}

fn mocked() -> WorkflowTest {
    WorkflowTest::new().mock(|job: Charge| Ok(job.order * 10)).mock(|_: Refund| Ok(()))
}

fn worker(test: &TestBed) -> WorkerBuilder {
    let charge = |job: Charge| async move { Ok::<_, JobError>(job.order * 10) };
    let refund = |_: Refund| async move { Ok::<_, JobError>(()) };
    let worker = Worker::builder(test.store()).queue("shop").handle(charge).handle(refund);
    worker.workflow(lucky).workflow(receives).workflow(parent).workflow(goes_on)
}

#[tokio::test]
async fn a_run_that_fails_is_started_again_after_its_pause() {
    for (needed, attempts) in [(3, 3), (3, 2), (1, 2)] {
        let simulated = mocked().attempts(attempts).retry(hourly()).crash_everywhere().poke().run(lucky, needed).await;
        let test = TestBed::new();
        let run = test.client().start(lucky, needed).attempts(attempts).retry(hourly()).await.unwrap();
        test.run_until_idle(worker(&test)).await;
        assert_eq!(Some(&simulated.result), run.result(Duration::ZERO).await.unwrap().as_ref(), "{simulated:?}");
        match simulated.result {
            Ok(output) => assert_eq!(output, (10 * u64::from(needed), needed)),
            Err(ref failure) => assert_eq!(failure.message, format!("attempt {attempts} fails")),
        }
        assert_eq!(simulated.elapsed, HOUR * (needed.min(attempts) - 1));
        let failed = u64::from(if simulated.result.is_ok() { needed - 1 } else { attempts });
        let undone: Vec<u64> = simulated.calls::<Refund>().iter().map(|job| job.order).collect();
        assert_eq!(undone, (1..=failed).collect::<Vec<_>>(), "each attempt is compensated");
    }
}

#[tokio::test]
async fn attempts_are_in_the_history() {
    let run = mocked().attempts(2).retry(hourly()).run(lucky, 2).await;
    assert!(run.history().contains("failed, attempt 2 follows at +1h: attempt 1 fails"), "{run:?}");
    assert!(run.history().contains("  +1h          start\n"), "{run:?}");
}

#[tokio::test]
async fn pauses_have_no_jitter() {
    let run = mocked().attempts(4).run(lucky, 4).await;
    assert_eq!(run.elapsed, Duration::from_secs(1 + 2 + 4));
    let jitter = RetryPolicy::Exponential { base_ms: 10_000, factor: 10, cap_ms: 50_000, jitter_percent: 90 };
    let run = mocked().retry(jitter).run(lucky, 9).await;
    assert_eq!(run.elapsed, Duration::from_secs(10 + 50), "a policy alone means three attempts");
    assert_eq!(run.failure().message, "attempt 3 fails");
}

#[tokio::test]
async fn without_attempts_a_run_is_tried_once() {
    assert_eq!(mocked().run(lucky, 2).await.failure().message, "attempt 1 fails");
    let text = failure(async { mocked().attempts(0) }).await;
    assert!(text.contains("attempts: is 0; use 1 or more"), "{text}");
    let text = failure(async { mocked().retry(RetryPolicy::ByKind) }).await;
    assert!(text.contains("use another policy"), "{text}");
}

/// Fails once, and then receives three signals.
#[workflow]
async fn receives(wf: Wf, _: ()) -> Result<Vec<String>, Error> {
    if wf.attempt() == 1 {
        wf.sleep("1h").await?;
        return Err("the first attempt".into());
    }
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(wf.recv::<Approve>().await?.by);
    }
    Ok(names)
}

#[tokio::test]
async fn signals_that_were_not_received_go_to_the_next_attempt() {
    let test = WorkflowTest::new().signal_at("30m", approve("ann")).signal_at("90m", approve("bob"));
    let test = test.signal_at("10h", approve("eve")).attempts(2).retry(hourly());
    let simulated = test.crash_everywhere().poke().run(receives, ()).await;
    assert_eq!(simulated.elapsed, HOUR * 10);

    let test = TestBed::new();
    let run = test.client().start(receives, ()).attempts(2).retry(hourly()).await.unwrap();
    for (minutes, by) in [(30, "ann"), (60, "bob"), (510, "eve")] {
        test.run_for(worker(&test), Duration::from_secs(minutes * 60)).await;
        run.signal(approve(by)).await.unwrap();
    }
    test.run_until_idle(worker(&test)).await;
    assert_eq!(Some(&simulated.result), run.result(Duration::ZERO).await.unwrap().as_ref(), "{simulated:?}");
    assert_eq!(simulated.output(), ["ann", "bob", "eve"]);
}

#[tokio::test]
async fn a_replay_does_not_end_between_signals_for_the_next_attempt() {
    let test = WorkflowTest::new().signal_at("30m", approve("ann")).signal_at("30m", approve("bob"));
    let test = test.signal_at("30m", approve("eve")).order_matters().attempts(2).retry(hourly());
    let run = test.crash_everywhere().run(receives, ()).await;
    assert_eq!(run.orders, 20);
    assert_eq!(run.output(), ["ann", "bob", "eve"]);
}

#[tokio::test]
async fn a_signal_does_not_end_a_pause() {
    let test = WorkflowTest::new().signal_at("90m", approve("bob")).attempts(2).retry(hourly());
    let run = test.run_for("100m", receives, ()).await;
    assert_eq!(run.result.for_what, ["attempt 2 at 2026-01-01T02:00:00.000Z"]);
}

#[tokio::test]
async fn a_cancellation_ends_a_pause_and_so_does_the_timeout() {
    let retried = |test: WorkflowTest| test.attempts(9).retry(hourly()).crash_everywhere();
    let cancelled = retried(WorkflowTest::new()).cancel_at("90m", "no more").run(receives, ()).await;
    assert_eq!((cancelled.failure().state, cancelled.elapsed), (RunState::Cancelled, HOUR * 3 / 2));
    let late = retried(WorkflowTest::new()).timeout("90m").run(receives, ()).await;
    assert_eq!((late.failure().state, late.elapsed), (RunState::TimedOut, HOUR * 3 / 2));

    let bed = TestBed::new();
    let start = |bed: &TestBed| bed.client().start(receives, ()).attempts(9).retry(hourly());
    let run = start(&bed).await.unwrap();
    bed.run_for(worker(&bed), HOUR * 3 / 2).await;
    run.cancel("no more").await.unwrap();
    let done = bed.run_until_idle(worker(&bed)).await;
    assert!(done.elapsed < HOUR / 60, "{:?}", done.elapsed);
    assert_eq!(run.result(Duration::ZERO).await.unwrap().as_ref(), Some(&cancelled.result));

    let bed = TestBed::new();
    let run = start(&bed).timeout("90m").await.unwrap();
    let done = bed.run_until_idle(worker(&bed)).await;
    assert_eq!(done.elapsed.as_secs() / 60, 90);
    assert_eq!(run.result(Duration::ZERO).await.unwrap().as_ref(), Some(&late.result));
}

/// A child with attempts, and how long it took in minutes.
#[workflow]
async fn parent(wf: Wf, (attempts, minutes): (u32, u64)) -> Result<(String, i64), Error> {
    let begun = wf.now().as_ms();
    let child = wf.child(lucky, 3).attempts(attempts).retry(hourly()).timeout(Duration::from_secs(minutes * 60));
    let ended = match child.await {
        Ok((paid, _)) => paid.to_string(),
        // The message of a timeout is of the code, which a mock does not have.
        Err(error) if error.is_timed_out() => "timed_out".to_owned(),
        Err(error) => format!("{}, {} attempts: {}", error.class, error.attempts, error.message),
    };
    Ok((ended, (wf.now().as_ms() - begun) / 60_000))
}

#[tokio::test]
async fn children_are_tried_again_with_their_code_and_with_a_mock() {
    let cases =
        [(3, 600, ("30", 120)), (2, 600, ("failed, 1 attempts: attempt 2 fails", 60)), (3, 90, ("timed_out", 90))];
    for (attempts, minutes, (ended, after)) in cases {
        let input = || (attempts, minutes);
        let code = mocked().workflow(lucky).crash_everywhere().poke().run(parent, input()).await;
        let mut attempt = 0;
        let mock = WorkflowTest::new().mock_workflow(lucky, move |needed| {
            attempt += 1;
            if attempt < needed { Err(format!("attempt {attempt} fails").into()) } else { Ok((30, attempt)) }
        });
        let mock = mock.crash_everywhere().poke().run(parent, input()).await;
        let test = TestBed::new();
        let run = test.client().start(parent, input()).await.unwrap();
        test.run_until_idle(worker(&test)).await;
        let executed = run.result(Duration::ZERO).await.unwrap().expect("it ends");
        assert_eq!((&code.result, &mock.result), (&executed, &executed), "{code:?}");
        assert_eq!(code.output(), (ended.to_owned(), after));
    }
}

/// Gives a mocked child up between its attempts.
#[workflow]
async fn gives_up(wf: Wf, _: ()) -> Result<(), Error> {
    windlass::durable::select! {
        child = wf.child(lucky, 9).attempts(9).retry(hourly()) => drop(child),
        time = wf.sleep("90m") => time?,
    }
    Ok(wf.sleep("1d").await?)
}

#[tokio::test]
async fn a_mocked_child_that_was_given_up_is_not_tried_again() {
    static CALLED: AtomicU64 = AtomicU64::new(0);
    let test = WorkflowTest::new().mock_workflow(lucky, |_| {
        CALLED.fetch_add(1, Ordering::Relaxed);
        Err("no".into())
    });
    test.crash_everywhere().run(gives_up, ()).await.output();
    assert_eq!(CALLED.load(Ordering::Relaxed), 2, "at once and after an hour");
}

/// Each segment fails once.
#[workflow]
async fn goes_on(wf: Wf, left: u32) -> Result<u32, Error> {
    if wf.attempt() == 1 {
        return Err("once".into());
    }
    if left == 0 {
        return Ok(wf.attempt());
    }
    wf.continue_as_new(goes_on, left - 1).await
}

#[tokio::test]
async fn a_segment_that_continues_begins_with_the_first_attempt() {
    let simulated = WorkflowTest::new().attempts(2).retry(hourly()).crash_everywhere().run(goes_on, 2).await;
    let test = TestBed::new();
    let run = test.client().start(goes_on, 2).attempts(2).retry(hourly()).await.unwrap();
    test.run_until_idle(worker(&test)).await;
    assert_eq!(run.result(Duration::ZERO).await.unwrap().as_ref(), Some(&simulated.result));
    assert_eq!((simulated.elapsed, simulated.output()), (HOUR * 3, 2));
}

static ERRORS: AtomicU64 = AtomicU64::new(0);

/// Each execution has another error.
#[workflow]
async fn counted_error(wf: Wf, _: ()) -> Result<(), Error> {
    wf.sleep("1d").await?;
    Err(format!("error {}", ERRORS.fetch_add(1, Ordering::Relaxed)).into())
}

#[tokio::test]
async fn shadow_replay_compares_the_errors_of_attempts() {
    let text = failure(WorkflowTest::new().attempts(2).run(counted_error, ())).await;
    assert!(text.contains("the code made the end Retried { message: \"error 1\""), "{text}");
}
