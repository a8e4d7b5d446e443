//! Local steps.

use crate::{Charge, failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use windlass::durable::{Error, Wf, join, select, workflow};
use windlass::testing::WorkflowTest;

static EXECUTED: AtomicU64 = AtomicU64::new(0);

#[workflow]
async fn report(wf: Wf, user: u64) -> Result<String, Error> {
    let balance: u64 = wf
        .run("balance", || async move {
            EXECUTED.fetch_add(1, Ordering::Relaxed);
            // sleeps because: it stands for a request.
            tokio::time::sleep(Duration::from_secs(90)).await;
            Ok::<_, String>(user * 10)
        })
        .await?;
    let sum = wf.run_blocking("sum", move || Ok::<_, String>((0..balance).sum::<u64>())).await?;
    wf.sleep("1d").await?;
    Ok(format!("{balance} {sum}"))
}

#[tokio::test]
async fn steps_run_on_the_runtime_of_the_test_and_their_time_is_virtual() {
    let run = WorkflowTest::new().run(report, 2).await;
    assert_eq!(EXECUTED.load(Ordering::Relaxed), 1);
    assert_eq!(run.elapsed.as_secs(), 24 * 3_600 + 90);
    assert_eq!(run.output(), "20 190");

    let run = WorkflowTest::new().crash_everywhere().run(report, 2).await;
    assert_eq!(run.crashes, 6, "{run:?}");
    assert_eq!(EXECUTED.load(Ordering::Relaxed), 4, "again after the crashes before its end");
}

#[tokio::test]
async fn steps_are_mocked_by_name() {
    let test = WorkflowTest::new().mock_step("balance", || Ok(3)).mock_step("sum", || Ok(7)).crash_everywhere();
    let run = test.poke().run(report, 2).await;
    assert_eq!(run.elapsed.as_secs(), 24 * 3_600);
    assert_eq!(run.output(), "3 7");
    let failed = WorkflowTest::new().mock_step::<u64>("balance", || Err("no".to_owned())).run(report, 2).await;
    assert_eq!(failed.failure().message, "no");
}

#[workflow]
async fn retried(wf: Wf, _: ()) -> Result<String, Error> {
    let attempts = Arc::new(AtomicU64::new(0));
    let step = wf.run("flaky", || async {
        match attempts.fetch_add(1, Ordering::Relaxed) {
            0 => std::future::pending().await,
            1 => Err("no"),
            _ => Ok(()),
        }
    });
    step.attempts(3).timeout("1h").await?;
    select! {
        done = wf.run_ok("slow", std::future::pending::<()>) => { done?; Ok("done".to_owned()) }
        time = wf.sleep("2h") => { time?; Ok("gave up".to_owned()) }
    }
}

#[tokio::test]
async fn timeouts_and_pauses_of_steps_take_virtual_time() {
    let run = WorkflowTest::new().run(retried, ()).await;
    assert_eq!(run.elapsed.as_secs(), 3 * 3_600, "and the pauses, which are less than a second");
    assert_eq!(run.output(), "gave up");
}

#[workflow]
async fn hangs(wf: Wf, _: ()) -> Result<(), Error> {
    wf.run_ok("for ever", std::future::pending::<()>).await?;
    Ok(())
}

#[tokio::test]
async fn a_step_that_nothing_wakes_fails_the_test() {
    let text = failure(WorkflowTest::new().run(hangs, ())).await;
    assert!(text.contains("local step `for ever` at ") && text.contains("nothing woke it"), "{text}");
}

#[test]
fn a_step_that_waits_needs_a_runtime() {
    let text = futures::executor::block_on(failure(WorkflowTest::new().run(hangs, ())));
    assert!(text.contains("need a tokio runtime: use `#[tokio::test]`"), "{text}");
}

#[workflow]
async fn uses_tokio(wf: Wf, _: ()) -> Result<(), Error> {
    wf.call(Charge { order: 1 }).await?;
    // sleeps because: that is the mistake of this workflow.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[tokio::test]
async fn workflow_code_has_no_runtime() {
    let text = failure(WorkflowTest::new().mock(|_: Charge| Ok(1)).run(uses_tokio, ())).await;
    assert!(text.contains("call `charge` #0: the workflow panicked: ") && text.contains("steps.rs:"), "{text}");
}

static RENDERED: AtomicU64 = AtomicU64::new(0);

/// The step takes longer than the call.
#[workflow]
async fn race(wf: Wf, _: ()) -> Result<String, Error> {
    let (first, second) = join!(wf.call(Charge { order: 1 }), wf.call(Charge { order: 2 }));
    assert!(first? < second?);
    select! {
        text = wf.run_ok("render", || async {
            RENDERED.fetch_add(1, Ordering::Relaxed);
            // sleeps because: it stands for a request.
            tokio::time::sleep(Duration::from_secs(90)).await;
            "rendered".to_owned()
        }) => Ok(text?),
        time = wf.sleep("60s") => { time?; Ok("too late".to_owned()) },
    }
}

#[tokio::test]
async fn other_orders_do_not_execute_steps_again_and_steps_keep_their_time() {
    let test = || WorkflowTest::new().mock(|job: Charge| Ok(job.order));
    let run = test().run(race, ()).await;
    assert_eq!((run.orders, run.output()), (20, "too late".to_owned()));
    // A step that does not end has no result that could be used again.
    assert_eq!(RENDERED.swap(0, Ordering::Relaxed), 21);
    let run = test().run(ends_in_time, ()).await;
    assert_eq!((run.orders, run.elapsed.as_secs()), (20, 90));
    assert_eq!(run.output(), "rendered");
    assert_eq!(RENDERED.load(Ordering::Relaxed), 1);
}

#[workflow]
async fn ends_in_time(wf: Wf, _: ()) -> Result<String, Error> {
    let (first, second) = join!(wf.call(Charge { order: 1 }), wf.call(Charge { order: 2 }));
    assert!(first? < second?);
    select! {
        time = wf.sleep("100s") => { time?; Ok("too late".to_owned()) },
        text = wf.run_ok("render", || async {
            RENDERED.fetch_add(1, Ordering::Relaxed);
            // sleeps because: it stands for a request.
            tokio::time::sleep(Duration::from_secs(90)).await;
            "rendered".to_owned()
        }) => Ok(text?),
    }
}

#[tokio::test]
async fn mocked_steps_take_time() {
    let test = || WorkflowTest::new().mock(|job: Charge| Ok(job.order)).mock_step("render", || Ok("mocked".to_owned()));
    let run = test().takes("30s").poke().crash_everywhere().run(race, ()).await;
    assert_eq!((run.elapsed.as_secs(), run.output()), (30, "mocked".to_owned()));
    let run = test().takes("61s").crash_everywhere().run(race, ()).await;
    assert_eq!((run.elapsed.as_secs(), run.output()), (60, "too late".to_owned()));
}

#[workflow]
async fn two_steps(wf: Wf, _: ()) -> Result<u64, Error> {
    let (first, second) = join!(wf.run_ok("first", async || 1_u64), wf.run_ok("second", async || 2_u64));
    Ok(first? + second?)
}

#[tokio::test]
async fn a_mocked_step_that_takes_time_beside_one_without_a_mock_fails_the_test() {
    let text = failure(WorkflowTest::new().mock_step("first", || Ok(3)).takes("1s").run(two_steps, ())).await;
    assert!(text.contains("run `first` #0 in ") && text.contains("mock all local steps"), "{text}");
    assert_eq!(WorkflowTest::new().mock_step("first", || Ok(3)).run(two_steps, ()).await.output(), 5);
}
