//! Runs that fail and are started again.

use super::support::{A, Ping, State, World, value, wf, world};
use serde_json::json;
use std::sync::Arc;
use windlass_core::retry::RetryPolicy;
use windlass_core::time::Timestamp;
use windlass_durable::{CallError, End, Item, ItemBody, ParentClosePolicy, Run, RunOptions, RunRetry, select};

fn retry(attempts: u32) -> RunRetry {
    RunRetry { attempts: Some(attempts), policy: Some(RetryPolicy::Fixed { delay_ms: 1_000 }) }
}

/// Fails before this attempt, after a call and with a saga.
fn lucky_at(attempt: u32) -> World {
    let mut world = world(wf(move |wf| async move {
        let mut saga = wf.saga();
        saga.undo(A(9));
        let paid = wf.call(A(1)).await?;
        if wf.attempt() < attempt {
            return Err(format!("attempt {} fails", wf.attempt()).into());
        }
        saga.commit();
        Ok(json!([paid, wf.attempt(), wf.now().as_ms() >= 1_000 * i64::from(attempt - 1)]))
    }));
    world.retry = retry(3);
    world
}

#[test]
fn a_run_that_fails_is_started_again_after_its_back_off() {
    let mut lucky = lucky_at(3);
    assert_eq!(value(lucky.go()), json!([1, 3, true]), "{}", lucky.print());
    assert_eq!(lucky.segments.len(), 3);
    assert_eq!(lucky.count("A"), 5, "three calls, and the compensations of two attempts");
    let inputs: Vec<_> = lucky.segments.iter().map(|segment| segment.input.clone()).collect();
    assert!(inputs.iter().all(|input| *input == inputs[0]), "{inputs:?}");
    assert_eq!(lucky.print().matches("\"retried\"").count(), 2, "the history has what happened");
}

#[test]
fn the_last_attempt_decides() {
    assert_eq!(lucky_at(4).go(), State::Ended(End::Failed("attempt 3 fails".into())));
    let mut once = lucky_at(2);
    once.retry = RunRetry::default();
    assert_eq!(once.go(), State::Ended(End::Failed("attempt 1 fails".into())));
    let mut none = lucky_at(2);
    none.retry = RunRetry { attempts: None, policy: Some(RetryPolicy::None) };
    assert_eq!(none.go(), State::Ended(End::Failed("attempt 1 fails".into())));
}

#[test]
fn a_cancelled_or_late_run_is_not_tried_again() {
    for (item, at) in [(ItemBody::CancelRequested { reason: "user".into() }, 0), (ItemBody::TimedOut, 0)]
        .into_iter()
        .flat_map(|(item, _)| [(item.clone(), 0), (item, 500)])
    {
        let mut lucky = lucky_at(9);
        lucky.at(at, item.clone());
        let ended = lucky.go();
        let is_late = item == ItemBody::TimedOut;
        match ended {
            State::Ended(End::Cancelled(_)) if !is_late => {}
            State::Ended(End::TimedOut(_)) if is_late => {}
            other => panic!("{other:?} at {at}\n{}", lucky.print()),
        }
        assert!(lucky.now < 1_000, "it does not wait for the next attempt: {}", lucky.now);
    }
    // An error of the code's own after a cancellation.
    let mut stubborn = world(wf(|wf| async move {
        let _ = wf.sleep("1h").await;
        Err("stubborn".into())
    }));
    stubborn.retry = retry(3);
    stubborn.cancel(5);
    assert_eq!(stubborn.go(), State::Ended(End::Failed("stubborn".into())));
}

/// Receives in its second attempt only.
fn receives() -> World {
    let mut world = world(wf(|wf| async move {
        if wf.attempt() == 1 {
            wf.sleep("10ms").await?;
            return Err("first".into());
        }
        let mut pings = Vec::new();
        for _ in 0..3 {
            pings.push(wf.recv::<Ping>().await?.0);
        }
        Ok(json!(pings))
    }));
    world.retry = retry(2);
    world.signal(5, &Ping(1));
    world.signal(500, &Ping(2));
    world.signal(2_000, &Ping(3));
    world
}

#[test]
fn signals_that_were_not_received_go_to_the_next_attempt() {
    assert_eq!(value(receives().go()), json!([1, 2, 3]));
}

#[test]
fn a_signal_does_not_start_the_next_attempt_early() {
    let mut waits = receives();
    while waits.now < 500 {
        waits.step().unwrap();
    }
    let run = waits.run.as_ref().unwrap();
    assert_eq!((run.has_started(), run.attempt()), (false, 2));
    assert_eq!(run.next_timer(), Some(Timestamp::from_ms(1_010)));
}

/// Fails once while a call and a child are open. The child is waited for before the next attempt.
fn fails_beside_others() -> World {
    let mut world = world(wf(|wf| async move {
        if wf.attempt() > 1 {
            return Ok(json!(wf.attempt()));
        }
        let child = wf.child_named("child@1", json!(1)).parent_close(ParentClosePolicy::Wait);
        select! {
            child = child => { child?; }
            slow = wf.call(A(2)) => { slow?; }
            failed = wf.call(A(1)) => { failed?; }
        }
        Ok(json!("it does not fail"))
    }));
    world.activity = Arc::new(|job| match job.input.as_json() {
        "1" => (1, Err(CallError::failed("declined"))),
        _ => (1_000, Ok(job.input.clone())),
    });
    world.others.insert("child@1".into(), wf(|_| async { Ok(json!("child")) }));
    world.signal(2, &Ping(1));
    world.retry = retry(2);
    world
}

#[test]
fn the_next_attempt_begins_when_children_have_ended() {
    let mut fails = fails_beside_others();
    assert_eq!(value(fails.go()), json!(2), "{}", fails.print());
    fails = fails_beside_others();
    (fails.evict, fails.shadow) = (true, true);
    assert_eq!(value(fails.go()), json!(2), "{}", fails.print());
}

#[test]
fn a_run_that_is_cancelled_while_a_failed_attempt_waits_for_children_is_not_tried_again() {
    for item in [ItemBody::CancelRequested { reason: "user".into() }, ItemBody::TimedOut] {
        for evict in [false, true] {
            let mut fails = fails_beside_others();
            fails.evict = evict;
            fails.at(2, item.clone());
            assert_eq!(fails.go(), State::Waiting, "for the child");
            fails.end_cancelled_child();
            let ended = fails.go();
            assert_eq!(ended, State::Ended(End::Failed("declined".into())), "{}", fails.print());
        }
    }
}

#[test]
fn an_attempt_that_begins_after_the_deadline_starts_nothing() {
    let mut fails = world(wf(|wf| async move {
        wf.call(A(1)).await?;
        Err("it fails".into())
    }));
    fails.retry = retry(3);
    while fails.segments.len() < 2 {
        fails.step().unwrap();
    }
    let options = RunOptions { retry: fails.retry.clone(), ..RunOptions::default() };
    let mut run = Run::open_with(fails.opening(), options, |_| ()).unwrap();
    let late = Item { number: None, at: Timestamp::from_ms(500), body: ItemBody::TimedOut };
    // No engine was there for long.
    let turn = run.turn(vec![late], Timestamp::from_ms(60_000)).unwrap();
    assert!(matches!(turn.ended, Some(End::TimedOut(_))), "{:?}", turn.ended);
    assert_eq!(turn.starts, []);
}

#[test]
fn an_engine_that_ends_at_any_commit_changes_nothing() {
    for make in [receives as fn() -> World, || lucky_at(3), fails_beside_others] {
        let mut whole = make();
        let end = whole.go();
        for killed in 1..=whole.commits {
            let mut again = make();
            again.chunk = 1;
            again.crash = Box::new(move |commit| commit == killed);
            assert_eq!(again.go(), end);
            assert_eq!(again.print(), whole.print(), "killed at commit {killed}");
        }
    }
}

#[test]
fn a_segment_that_failed_replays_to_its_end_as_it_is_recorded() {
    let mut lucky = lucky_at(2);
    lucky.go();
    let opening = super::support::opening(&lucky.workflow, lucky.records(0).to_vec());
    let run = Run::open(opening).unwrap();
    assert!(matches!(run.ended(), Some(End::Retried { attempt: 2, .. })), "{:?}", run.ended());
}

#[test]
fn a_segment_that_continues_begins_with_the_first_attempt() {
    #[windlass_durable::workflow(crate = windlass_durable)]
    async fn goes_on(wf: windlass_durable::Wf, left: u32) -> Result<Vec<u32>, windlass_durable::Error> {
        if wf.attempt() == 1 {
            return Err("once".into());
        }
        if left == 0 {
            return Ok(vec![wf.attempt()]);
        }
        wf.continue_as_new(goes_on, left - 1).await
    }
    let mut goes = World::new(windlass_durable::typed(goes_on), &1);
    goes.retry = retry(2);
    assert_eq!(value(goes.go()), json!([2]));
    assert_eq!(goes.segments.len(), 4, "each segment fails once");
    assert_eq!(goes.segments[3].input.as_json(), "0", "with the input of its own segment");
}

#[test]
fn a_child_has_attempts_of_its_own() {
    use windlass_durable::Start;
    let workflow = wf(|wf| async move {
        let child = wf.child_named("child@1", json!(1)).attempts(4).retry(RetryPolicy::Fixed { delay_ms: 5 });
        let wrong = wf.child_named("child@1", json!(1)).attempts(0).await.unwrap_err();
        Ok(json!([child.await?, wrong.class.name()]))
    });
    let mut parent = world(workflow);
    parent.others.insert("child@1".into(), wf(|_| async { Ok(json!("child")) }));
    assert_eq!(value(parent.go()), json!(["child", "invalid"]));
    let Start::Child { retry, .. } = &parent.children[0] else { panic!() };
    assert_eq!((retry.attempts_max(), &retry.policy), (4, &Some(RetryPolicy::Fixed { delay_ms: 5 })));
}
