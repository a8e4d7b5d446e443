//! Cancellation, deadlines, shields and sagas.

use super::support::{A, B, C, Ping, State, X, body, value, wf, world};
use serde_json::json;
use std::sync::Arc;
use windlass_durable::{CallError, End, Error, ItemBody, join, select};

#[test]
fn a_scope_cancels_what_is_open_and_what_comes_later_except_in_shields() {
    let workflow = wf(|wf| async move {
        let (handle, scoped) = wf.cancellable(async {
            let open = join!(wf.call(A(1)), wf.shield(wf.call(B(2))), wf.sleep("1h"));
            let after = wf.call(C(1)).await;
            [open.0.is_err(), open.1.is_ok(), open.2.is_err(), after.is_err(), wf.is_cancelled()]
        });
        let cancel = async {
            let _ = wf.sleep("10ms").await;
            handle.cancel();
        };
        let (all, ()) = join!(scoped, cancel);
        Ok(json!([all, wf.call(C(1)).await.is_ok(), wf.is_cancelled()]))
    });
    let mut scoped = world(workflow);
    scoped.activity = Arc::new(|_| (100, Ok(body(&1))));
    assert_eq!(value(scoped.go()), json!([[true, true, true, true, true], true, false]));
    assert_eq!((scoped.cancelled, scoped.cancelled_outside), (2, 1), "{}", scoped.print());
}

#[test]
fn a_handle_of_a_scope_that_is_over_cancels_nothing() {
    let workflow = wf(|wf| async move {
        let (handle, scoped) = wf.cancellable(async { 1 });
        scoped.await;
        // The slot of the scope must not have been given to this one.
        let (_other, scoped) = wf.cancellable(wf.call(A(1)));
        let (a, ()) = join!(scoped, async { handle.cancel() });
        Ok(json!(a?))
    });
    assert_eq!(value(world(workflow).go()), json!(1));
}

/// `_ = wf.sleep(..)` in a select takes a cancellation for the passing of time.
#[test]
fn ignoring_the_result_of_a_sleep_hides_a_cancellation() {
    let ignored = wf(|wf| async move {
        select! { _ = wf.sleep("30d") => Err("late".into()), ping = wf.recv::<Ping>() => Ok(json!(ping?.0)) }
    });
    let asked = wf(|wf| async move {
        select! {
            time = wf.sleep("30d") => { time?; Err("late".into()) }
            ping = wf.recv::<Ping>() => Ok(json!(ping?.0)),
        }
    });
    for (workflow, want) in [(ignored, End::Failed("late".into())), (asked, End::Cancelled("cancelled".into()))] {
        let mut cancelled = world(workflow);
        cancelled.cancel(5);
        assert_eq!(cancelled.go(), State::Ended(want));
    }
}

#[test]
fn a_deadline_cancels_and_ends_as_timed_out() {
    let workflow = || {
        wf(|wf| async move {
            let mut saga = wf.saga();
            saga.undo(X(1));
            wf.sleep("30d").await?;
            Ok(json!(0))
        })
    };
    let mut late = world(workflow());
    late.at(5, ItemBody::TimedOut);
    assert_eq!(late.go(), State::Ended(End::TimedOut("cancelled".into())));
    assert_eq!(late.count("X"), 1);
    // A cancelled operation without a request to cancel the run is a failure.
    let workflow = wf(|wf| async move {
        let (handle, scoped) = wf.cancellable(wf.sleep("1h"));
        handle.cancel();
        scoped.await?;
        Ok(json!(0))
    });
    assert_eq!(world(workflow).go(), State::Ended(End::Failed("cancelled".into())));
}

#[test]
fn sagas_are_compensated_newest_first_and_report_errors() {
    let workflow = wf(|wf| async move {
        let mut first = wf.saga();
        first.undo(A(1));
        let mut kept = wf.saga();
        kept.undo(C(1));
        kept.commit();
        let mut second = wf.saga();
        second.undo(B(1));
        second.undo(X(1));
        drop(second);
        Err(Error::from("no"))
    });
    let mut sagas = world(workflow);
    sagas.activity = Arc::new(|job| match &*job.key.name {
        "X" => (1, Err(CallError::failed("refused"))),
        _ => (1, Ok(body(&1))),
    });
    let want = State::Ended(End::Failed("no; a compensation failed: refused".into()));
    assert_eq!(sagas.go(), want);
    let kinds: Vec<&str> = sagas.started.iter().map(|job| &*job.key.name).collect();
    assert_eq!(kinds, ["X", "B", "A"]);
}

#[test]
fn a_saga_can_be_compensated_by_hand() {
    let workflow = wf(|wf| async move {
        let mut saga = wf.saga();
        saga.undo(A(1));
        saga.undo_with(|wf| async move { wf.call(B(1)).await.map(drop) });
        saga.compensate().await?;
        Ok(json!(0))
    });
    let mut by_hand = world(workflow);
    value(by_hand.go());
    assert_eq!((by_hand.count("A"), by_hand.count("B")), (1, 1));
}
