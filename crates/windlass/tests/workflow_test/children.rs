//! Children, segments.

use crate::{Approve, Charge, failure};
use std::time::Duration;
use windlass::durable::{Error, ErrorClass, ParentClosePolicy, Wf, join_all, select, workflow};
use windlass::testing::WorkflowTest;

#[workflow]
async fn invoice(wf: Wf, number: u64) -> Result<u64, Error> {
    wf.sleep("1d").await?;
    let cents = wf.call(Charge { order: number }).await?;
    if cents > 100 { Err("too expensive".into()) } else { Ok(cents) }
}

#[workflow]
async fn invoices(wf: Wf, numbers: Vec<u64>) -> Result<Vec<String>, Error> {
    let children = join_all(numbers.iter().map(|number| wf.child(invoice, *number))).await;
    Ok(children.into_iter().map(|child| child.map_or_else(|e| e.to_string(), |cents| cents.to_string())).collect())
}

#[tokio::test]
async fn the_code_of_children_runs_on_the_same_clock() {
    let test = WorkflowTest::new().workflow(invoice).mock(|job: Charge| Ok(job.order * 10)).takes("1h");
    let run = test.crash_everywhere().poke().run(invoices, vec![1, 2, 11]).await;
    assert_eq!(run.elapsed, Duration::from_secs(25 * 3_600));
    assert_eq!(run.children(invoice), [1, 2, 11]);
    run.assert_calls::<Charge>(3);
    assert!(run.crashes > 20 && run.orders == 20, "{} {}", run.crashes, run.orders);
    assert!(run.history().contains("  child `invoice` #2 segment 0:\n"), "{run:?}");
    assert_eq!(run.output(), ["10", "20", "too expensive"]);
}

#[tokio::test]
async fn children_are_mocked() {
    let mocked = |number| if number == 2 { Err("no".into()) } else { Ok(number) };
    let test = WorkflowTest::new().mock_workflow(invoice, mocked).takes("10d");
    let run = test.crash_everywhere().run(invoices, vec![1, 2]).await;
    assert_eq!(run.elapsed, Duration::from_secs(10 * 24 * 3_600));
    assert_eq!(run.output(), ["1", "no"]);
}

#[tokio::test]
async fn a_child_without_code_and_mock_fails_the_test() {
    let text = failure(WorkflowTest::new().run(invoices, vec![1])).await;
    assert!(text.contains("child workflow `invoice@1`: add `.workflow(invoice)`"), "{text}");
}

#[workflow]
async fn impatient(wf: Wf, policy: String) -> Result<String, Error> {
    let policy = if policy == "wait" { ParentClosePolicy::Wait } else { ParentClosePolicy::Cancel };
    select! {
        child = wf.child(invoice, 1).parent_close(policy) => Ok(child?.to_string()),
        time = wf.sleep("1h") => { time?; Ok("impatient".to_owned()) }
    }
}

#[workflow]
async fn late_child(wf: Wf, _: ()) -> Result<String, Error> {
    let error = wf.child(invoice, 1).timeout("2h").await.unwrap_err();
    Ok(format!("{} {}", error.class == ErrorClass::TimedOut, wf.child(invoice, 2).id("other").await?))
}

#[tokio::test]
async fn parents_cancel_children_or_wait_for_them() {
    for (policy, hours) in [("cancel", 1), ("wait", 24)] {
        let test = WorkflowTest::new().workflow(invoice).mock(|_: Charge| Ok(1)).crash_everywhere();
        let run = test.run(impatient, policy.to_owned()).await;
        assert_eq!(run.elapsed, Duration::from_secs(hours * 3_600), "{run:?}");
        assert_eq!(run.output(), "impatient");
        let mocked = WorkflowTest::new().mock_workflow(invoice, Ok).takes("1d").crash_everywhere();
        let run = mocked.run(impatient, policy.to_owned()).await;
        assert_eq!(run.elapsed, Duration::from_secs(hours * 3_600), "{run:?}");
    }
    let real =
        WorkflowTest::new().workflow(invoice).mock(|_: Charge| Ok(1)).crash_everywhere().run(late_child, ()).await;
    assert_eq!(real.output(), "true 1");
    let mocked = WorkflowTest::new().mock_workflow(invoice, Ok).takes("3h").run(late_child, ()).await;
    assert_eq!(mocked.output(), "true 2");
}

/// Goes on after it has given its child up.
#[workflow]
async fn gives_up(wf: Wf, policy: String) -> Result<String, Error> {
    let given_up = impatient(wf.clone(), policy).await;
    wf.shield(wf.sleep("10h")).await?;
    given_up
}

#[tokio::test]
async fn a_child_that_was_given_up_is_cancelled() {
    let test = || WorkflowTest::new().workflow(invoice).mock(|_: Charge| Ok(1)).crash_everywhere();
    let run = test().run(gives_up, "cancel".to_owned()).await;
    assert_eq!(run.elapsed, Duration::from_secs(11 * 3_600));
    assert!(run.history().contains("cancellation requested: its parent"), "{run:?}");
    // A request to cancel reaches children that their parent waits for.
    let mocked = || WorkflowTest::new().mock_workflow(invoice, Ok).takes("1d").crash_everywhere();
    for test in [test(), mocked()] {
        let run = test.cancel_at("30m", "no").run(impatient, "wait".to_owned()).await;
        assert_eq!(run.elapsed, Duration::from_secs(30 * 60), "{run:?}");
    }
}

#[workflow]
async fn count(wf: Wf, from: u64) -> Result<u64, Error> {
    for number in from..from + 3 {
        wf.sleep("1d").await?;
        wf.call(Charge { order: number }).await?;
    }
    match wf.try_recv::<Approve>() {
        Some(_) => Ok(from + 3),
        None => wf.continue_as_new(count, from + 3).await,
    }
}

#[tokio::test]
async fn segments_continue_with_their_signals() {
    let test = WorkflowTest::new().mock(|_: Charge| Ok(1)).signal_at("100h", crate::approve("ann"));
    let run = test.crash_everywhere().poke().run(count, 0).await;
    assert_eq!(run.elapsed, Duration::from_secs(6 * 24 * 3_600));
    assert_eq!(run.calls::<Charge>().len(), 6);
    assert!(run.history().contains("continues as new `count@1`"), "{run:?}");
    assert_eq!(run.output(), 6);
}
