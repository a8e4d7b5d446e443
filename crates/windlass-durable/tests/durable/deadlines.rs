//! `schedule_to_start` and `schedule_to_close`.

use super::support::{A, NEVER_CLAIMED, State, World, body, opening, value, wf, world};
use serde_json::json;
use std::sync::Arc;
use windlass_core::time::Timestamp;
use windlass_durable::{AnyWorkflow, CallError, Entry, Event, Item, ItemBody, Request, Run, Start, join_all};

fn shown(ended: Result<serde_json::Value, CallError>) -> serde_json::Value {
    match ended {
        Ok(value) => json!(value),
        Err(error) => json!([error.class.name(), error.message]),
    }
}

/// One call that ends after `after` ms.
fn call(kind: &'static str, after: i64) -> World {
    let code = move |wf: windlass_durable::Wf| async move {
        let call = wf.call_named(kind, json!(1)).schedule_to_start("1s").schedule_to_close("5s");
        Ok(json!([shown(call.await), wf.now().as_ms()]))
    };
    let mut world = world(wf(code));
    world.activity = Arc::new(move |job| (after, Ok(job.input.clone())));
    world
}

const UNSTARTED: &str = "schedule_to_start: no worker had claimed the job in time";

#[test]
fn a_job_that_no_worker_claims_in_time_is_cancelled_and_its_call_times_out() {
    let mut unclaimed = call(NEVER_CLAIMED, 4_000);
    assert_eq!(value(unclaimed.go()), json!([["timed_out", UNSTARTED], 1_000]));
    assert_eq!(unclaimed.schedule.len(), 0, "its job has gone");
}

#[test]
fn a_job_that_was_claimed_in_time_goes_on() {
    assert_eq!(value(call("claimed", 4_000).go()), json!([1, 4_000]));
}

#[test]
fn a_call_that_takes_too_long_ends_and_its_job_is_cancelled() {
    let mut late = call("claimed", 5_001);
    let ended = value(late.go());
    assert_eq!((&ended[0][0], &ended[1]), (&json!("timed_out"), &json!(5_000)));
    assert!(ended[0][1].as_str().unwrap().starts_with("schedule_to_close: "), "{ended}");
    assert_eq!((late.cancelled_outside, late.schedule.len()), (1, 0));
}

/// Opens the run of a world that has made its call, with an item that came while no engine looked.
fn opened(world: &World, at: i64, now: i64) -> Vec<Event> {
    let Start::Job { job, .. } = world.started[0].start else { panic!() };
    let mut run = Run::open(world.opening()).unwrap();
    let item =
        Item { number: Some(1), at: Timestamp::from_ms(at), body: ItemBody::JobEnded { job, outcome: Ok(body(&1)) } };
    let turn = run.turn(vec![item], Timestamp::from_ms(now)).unwrap();
    let events = turn.records.into_iter().filter_map(|record| match record.entry {
        Entry::Event { event, .. } => Some(event),
        _ => None,
    });
    events.collect()
}

#[test]
fn the_time_of_the_end_decides_and_not_that_of_the_engine() {
    let mut world = call("claimed", 60_000);
    world.step().unwrap();
    let in_time = opened(&world, 4_999, 3_600_000);
    assert!(matches!(in_time[..], [Event::StartExpired { .. }, Event::Done { outcome: Ok(_), .. }]), "{in_time:?}");
    let late = opened(&world, 5_000, 3_600_000);
    assert!(matches!(late[..], [Event::StartExpired { .. }, Event::Expired { .. }]), "{late:?}");
}

#[test]
fn deadlines_are_counted_from_the_clock_when_the_run_is_behind_it() {
    let world = call("claimed", 1);
    let mut run = Run::open(world.opening()).unwrap();
    run.set_clock(Timestamp::from_ms(7_000));
    let turn = run.turn(Vec::new(), Timestamp::from_ms(7_000)).unwrap();
    let request = turn.records.iter().find_map(|record| match &record.entry {
        Entry::Command(command) => Some(command.request),
        _ => None,
    });
    let Some(Request::Call { deadlines, .. }) = request else { panic!("{request:?}") };
    let times = (deadlines.start_by.map(Timestamp::as_ms), deadlines.close_by.map(Timestamp::as_ms));
    assert_eq!(times, (Some(8_000), Some(12_000)));
    assert_eq!(turn.wake, Some(Timestamp::from_ms(8_000)));
}

#[test]
fn a_dropped_call_has_no_deadlines() {
    let code = |wf: windlass_durable::Wf| async move {
        let scope = wf.call(A(1)).schedule_to_start("1s").schedule_to_close("5s");
        windlass_durable::select! {
            done = scope => { done?; }
            slept = wf.sleep("10ms") => slept?,
        }
        wf.sleep("1h").await?;
        Ok(json!(wf.now().as_ms()))
    };
    let mut dropped = world(wf(code));
    dropped.activity = Arc::new(|job| (60_000, Ok(job.input.clone())));
    assert_eq!(value(dropped.go()), json!(3_600_010));
    assert!(!dropped.print().contains("expired"), "{}", dropped.print());
}

fn many(count: u64) -> Arc<dyn AnyWorkflow> {
    wf(move |wf| async move {
        let call = |n: u64| {
            let kind = if n.is_multiple_of(2) { NEVER_CLAIMED } else { "claimed" };
            wf.call_named(kind, json!(n)).schedule_to_start("1s").schedule_to_close("1m")
        };
        let ended = join_all((0..count).map(call)).await;
        Ok(json!(ended.iter().filter(|ended| ended.is_ok()).count()))
    })
}

#[test]
fn ten_thousand_calls_have_deadlines() {
    let mut many = World::new(many(10_000), &json!(null));
    many.batch = 500;
    many.activity = Arc::new(|job| (2_000 + i64::try_from(job.start.number() % 7).unwrap(), Ok(job.input.clone())));
    assert_eq!(value(many.go()), json!(5_000));
    // The start and its calls, the expired starts, the ends, the end of the run.
    assert!(many.commits < 100, "{} commits", many.commits);
}

#[test]
fn every_prefix_of_a_history_with_deadlines_replays() {
    for kind in [NEVER_CLAIMED, "claimed"] {
        let mut whole = call(kind, 6_000);
        assert!(matches!(whole.go(), State::Ended(_)));
        for len in 0..=whole.history.len() {
            Run::open(opening(&whole.workflow, whole.history[..len].to_vec())).unwrap();
        }
        for killed in 1..=whole.commits {
            let mut again = call(kind, 6_000);
            again.chunk = 1;
            again.crash = Box::new(move |commit| commit == killed);
            again.go();
            assert_eq!(again.print(), whole.print());
        }
    }
}
