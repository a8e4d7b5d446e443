//! Recorded histories, which replay for ever.
//!
//! `WINDLASS_TEST_GOLDEN=write` writes files that do not exist. Files that exist are never written: a change of the format that
//! breaks one of them breaks stored runs.

use super::support::{A, B, JsonResult, NEVER_CLAIMED, Ping, State, World, body, opening, wf};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use windlass_core::retry::RetryPolicy;
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, CallError, ErrorClass, ItemBody, ParentClosePolicy, PromiseToken, Run, RunRetry, Wf, decode_history,
    join, select,
};

/// Uses every type of command and event.
async fn everything(wf: Wf) -> JsonResult {
    let mut saga = wf.saga();
    saga.undo(B(9));
    let promise = wf.promise::<u64>();
    let (ok, failed) = join!(wf.call(A(1)), wf.call_named("fails", json!(promise.token())).key("k"));
    wf.sleep("10ms").await?;
    let step = wf.run_ok("step", async || "done".to_owned()).await?;
    let bad = wf.run("bad step", async || Err::<u64, _>("no")).await;
    let ping = wf.recv::<Ping>().await?;
    let patched = wf.patched("p1");
    select! {
        child = wf.child_named("child@3", json!({"a": 1})).parent_close(ParentClosePolicy::Wait) => { child?; }
        call = wf.call(B(1)) => { call?; }
    }
    let value = promise.await?;
    if ping.0 == 1 {
        wf.sleep("30d").await?;
    }
    saga.commit();
    Ok(json!([ok?, failed.is_err(), step, bad.is_err(), ping.0, patched, value]))
}

#[windlass_durable::workflow(crate = windlass_durable)]
async fn continues(wf: Wf, n: u64) -> Result<u64, windlass_durable::Error> {
    if n == 1 {
        return Ok(wf.recv::<Ping>().await?.0);
    }
    wf.call(A(1)).await?;
    wf.continue_as_new(continues, 1).await
}

/// Calls whose timeouts pass, and calls that end in time.
async fn times_out(wf: Wf) -> JsonResult {
    let ok = wf.call(A(1)).schedule_to_start("1m").schedule_to_close("1h");
    let unclaimed = wf.call_named(NEVER_CLAIMED, json!(1)).schedule_to_start("1s");
    let late = wf.call_named("late", json!(1)).schedule_to_close("2s");
    let (ok, unclaimed, late) = join!(ok, unclaimed, late);
    let message =
        |ended: Result<serde_json::Value, CallError>| ended.map_err(|error| (error.class.name(), error.message));
    Ok(json!([ok?, message(unclaimed).unwrap_err(), message(late).unwrap_err()]))
}

/// Fails once, with a message that it has not received.
fn retried_world() -> World {
    let mut world = World::new(
        wf(|wf| async move {
            wf.sleep("10ms").await?;
            match wf.attempt() {
                1 => Err("no luck \"x\"".into()),
                attempt => Ok(json!([attempt, wf.recv::<Ping>().await?.0, wf.recv::<Ping>().await?.0])),
            }
        }),
        &json!(null),
    );
    world.retry = RunRetry { attempts: Some(2), policy: Some(RetryPolicy::Fixed { delay_ms: 1_000 }) };
    world.signal(5, &Ping(1));
    world.signal(500, &Ping(2));
    world
}

fn timeouts_world() -> World {
    let mut world = World::new(wf(times_out), &json!(null));
    world.activity = Arc::new(|job| (if job.key.name == "A" { 1 } else { 10_000 }, Ok(job.input.clone())));
    world
}

fn everything_world(ping: u64) -> World {
    let mut world = World::new(wf(everything), &json!(null));
    world.activity = Arc::new(|job| match &*job.key.name {
        "fails" => {
            let detail = Some(json!({"code": 5}));
            (2, Err(CallError { class: ErrorClass::TimedOut, message: "late \"x\"".into(), attempts: 3, detail }))
        }
        _ => (1, Ok(job.input.clone())),
    });
    world.others.insert("child@3".into(), wf(|_| async { Ok(json!("child")) }));
    world.signal(20, &Ping(ping));
    world
}

/// Steps until the promise can be resolved.
fn resolve(world: &mut World) {
    for _ in 0..3 {
        world.step().unwrap();
    }
    let asked = world.started.iter().find(|job| job.key.name == "fails").unwrap();
    let PromiseToken { token, .. } = asked.input.read().unwrap();
    world.at(50, ItemBody::Resolved { token, body: body(&42) });
}

/// The name of the file, the workflow, and a world that has run it.
fn cases() -> Vec<(&'static str, Arc<dyn AnyWorkflow>, World)> {
    let mut ok = everything_world(2);
    resolve(&mut ok);
    let mut cancelled = everything_world(1);
    resolve(&mut cancelled);
    cancelled.cancel(70);
    let mut late = everything_world(1);
    resolve(&mut late);
    late.at(70, ItemBody::TimedOut);
    let failed = World::new(wf(|_| async { Err("broken".into()) }), &json!(null));
    let mut continued = World::new(windlass_durable::typed(continues), &0);
    for i in 0..2 {
        let id = format!("m{i}");
        continued.at(1, ItemBody::Signal { name: "ping".into(), body: body(&i), id });
    }
    let mut capped = World::new(wf(|wf| async move { Ok(json!(wf.call(A(1)).await?)) }), &json!(null));
    capped.at(0, ItemBody::CapRaised { cap: 200_000 });
    let worlds =
        [("ok", ok), ("cancelled", cancelled), ("timed_out", late), ("failed", failed), ("continued", continued)]
            .into_iter()
            .chain([("capped", capped), ("call_timeouts", timeouts_world()), ("retried", retried_world())]);
    let run = |(name, mut world): (&'static str, World)| {
        assert!(matches!(world.go(), State::Ended(_)), "{name}\n{}", world.print());
        (name, world.workflow.clone(), world)
    };
    worlds.map(run).collect()
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.jsonl"))
}

#[test]
fn golden_histories_decode_and_replay() {
    let mut types = BTreeSet::new();
    for (name, workflow, world) in cases() {
        if !file(name).exists() && std::env::var("WINDLASS_TEST_GOLDEN").is_ok_and(|value| value == "write") {
            let lines: Vec<String> =
                world.history.iter().map(|record| String::from_utf8(record.encode()).unwrap()).collect();
            std::fs::write(file(name), lines.join("\n") + "\n").unwrap();
        }
        let text = std::fs::read_to_string(file(name)).unwrap();
        let history = decode_history(text.lines()).unwrap();
        for (record, line) in history.iter().zip(text.lines()) {
            assert_eq!(String::from_utf8(record.encode()).unwrap(), line, "the stored form has changed");
            let json: serde_json::Value = serde_json::from_str(line).unwrap();
            types.insert(json["r"].as_str().unwrap().to_owned());
        }
        assert_eq!(history.len(), world.history.len(), "{name}");
        for (at, segment) in world.segments.iter().enumerate() {
            let first = usize::try_from(segment.first).unwrap();
            let records = history[first..first + world.records(at).len()].to_vec();
            let base = opening(&workflow, records);
            let mut run =
                Run::open(windlass_durable::Opening { first: segment.first, input: segment.input.to_bytes(), ..base })
                    .unwrap_or_else(|stuck| panic!("{name}: {stuck}"));
            assert!(run.ended().is_some());
            assert!(run.turn(Vec::new(), Timestamp::from_ms(i64::MIN)).unwrap().is_empty());
            assert_eq!(run.warnings(), [] as [String; 0]);
        }
    }
    let all = [
        "call",
        "cancel",
        "cancel_requested",
        "cancelled",
        "cap",
        "child",
        "continued",
        "deadline",
        "done",
        "expired",
        "failed",
        "fired",
        "ok",
        "patch",
        "resolved",
        "retried",
        "signal",
        "sleep",
        "start_expired",
        "started",
        "stepped",
        "timed_out",
    ];
    assert_eq!(types.iter().map(String::as_str).collect::<Vec<_>>(), all);
}
