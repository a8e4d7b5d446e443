//! The examples of durable workflows, ended behind every record.

use std::time::Duration;
use windlass::JobError;
use windlass::core::store::RunState;
use windlass::testing::WorkflowTest;

/// An example is a program: all but its workflow, its jobs and its signals is unused here.
macro_rules! examples {
    ($($name:ident $path:literal)*) => { $(
        #[path = $path]
        #[allow(dead_code, clippy::disallowed_methods, reason = "only the workflow of the program is tested")]
        mod $name;
    )* };
}
examples! {
    durable_order "../../examples/durable_order.rs"
    durable_subscription "../../examples/durable_subscription.rs"
    durable_fan_out "../../examples/durable_fan_out.rs"
}

use durable_fan_out::{Square, squares};
use durable_order::{AskForApproval, Refund, Ship, order};
use durable_subscription::{ChangePlan, Subscription, Unsubscribe, subscription};

/// Each order takes another path.
fn order_test(answer: Option<bool>, in_stock: bool) -> WorkflowTest {
    let test = WorkflowTest::new()
        .mock(|job: durable_order::Charge| Ok(format!("payment {}", job.order)))
        .mock(|_: Refund| Ok(()))
        .mock(
            move |job: Ship| {
                if in_stock { Ok(format!("parcel {}", job.order)) } else { Err(JobError::fatal("out of stock")) }
            },
        );
    let test = test.mock_with(move |job: AskForApproval, outside| {
        if let Some(answer) = answer {
            outside.resolve_after("20m", &job.answer_to, &answer);
        }
        Ok(())
    });
    test.poke().crash_everywhere()
}

#[tokio::test]
async fn each_path_of_the_order_survives_a_crash_behind_every_record() {
    let mut crashes = 0;
    for (answer, in_stock, minutes, end) in [
        (Some(true), true, 20, Ok("parcel 1")),
        (Some(true), false, 20, Err("out of stock")),
        (Some(false), true, 20, Err("not approved")),
        (None, true, 60, Err("nobody approved it within an hour")),
    ] {
        let run = order_test(answer, in_stock).run(order, 1).await;
        assert_eq!(run.elapsed, Duration::from_secs(minutes * 60), "{run:?}");
        assert_eq!(run.result.as_ref().map(String::as_str).map_err(|failure| failure.message.as_str()), end);
        run.assert_calls::<Refund>(usize::from(end.is_err()));
        assert!(run.calls::<Refund>().iter().all(|job| job.payment == "payment 1"));
        crashes += run.crashes;
    }
    println!("durable_order: {crashes} crashes");
    assert!(crashes >= 40, "{crashes}");
}

#[tokio::test]
async fn a_cancelled_order_is_refunded_wherever_it_stands() {
    for minute in ["1m", "10m", "19m"] {
        let run = order_test(Some(true), true).cancel_at(minute, "by the customer").run(order, 1).await;
        run.assert_calls::<Refund>(1);
        assert_eq!(run.failure().state, RunState::Cancelled);
    }
}

#[tokio::test]
async fn the_subscription_survives_a_crash_behind_every_record() {
    let new = Subscription { cents: 500, due: None, periods_charged: 0, cents_charged: 0 };
    let test = WorkflowTest::new()
        .mock(|_: durable_subscription::Charge| Ok(()))
        .signal_at("1100ms", ChangePlan { cents: 900 })
        .signal_at("2500ms", Unsubscribe {});
    let run = test.poke().crash_everywhere().run(subscription, new).await;
    println!("durable_subscription: {} crashes", run.crashes);
    assert!(run.crashes >= 60, "{run:?}");
    assert_eq!(run.elapsed, Duration::from_millis(2_500));
    let cents: Vec<u64> = run.calls::<durable_subscription::Charge>().iter().map(|job| job.cents).collect();
    assert_eq!(cents, [500, 500, 500, 500, 500, 900, 900, 900, 900, 900, 900, 900]);
    let ended = run.output();
    assert_eq!((ended.periods_charged, ended.cents_charged), (12, 5 * 500 + 7 * 900));
}

#[tokio::test]
async fn slow_the_fan_out_survives_a_crash_behind_every_record() {
    let items = 150;
    let test = WorkflowTest::new().mock(|job: Square| Ok(job.item * job.item)).takes("100ms");
    let run = test.poke().crash_everywhere().run(squares, items).await;
    println!("durable_fan_out: {} crashes, {} other orders", run.crashes, run.orders);
    assert_eq!((run.crashes, run.orders), (302, 20));
    assert_eq!(run.elapsed, Duration::from_millis(300), "50 at once");
    let report = run.output();
    assert_eq!((report.items, report.sum), (items, (0..items).map(|item| item * item).sum()));
}
