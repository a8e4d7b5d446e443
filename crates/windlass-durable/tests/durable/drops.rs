//! Futures that are dropped, forgotten, or left open.

use super::support::{A, B, C, body, value, wf, world};
use serde_json::json;
use std::sync::Arc;
use windlass_durable::JoinSet;

#[test]
fn a_dropped_call_is_cancelled_and_an_unpolled_one_is_never_made() {
    let workflow = wf(|wf| async move {
        let mut call = Box::pin(wf.call(A(1)));
        let _ = futures::poll!(&mut call);
        wf.call(B(1)).await?;
        drop(call);
        drop(wf.call(C(1)));
        wf.call(B(2)).await?;
        Ok(json!(0))
    });
    let mut drops = world(workflow);
    drops.activity = Arc::new(|job| (if job.key.name == "A" { 1000 } else { 1 }, Ok(body(&1))));
    value(drops.go());
    assert_eq!((drops.cancelled, drops.cancelled_outside, drops.count("C")), (1, 1, 0), "{}", drops.print());
}

#[test]
#[expect(clippy::mem_forget, reason = "what code must not do")]
fn a_forgotten_call_is_cancelled_at_the_end() {
    let workflow = wf(|wf| async move {
        let mut call = Box::pin(wf.call(A(1)));
        let _ = futures::poll!(&mut call);
        std::mem::forget(call);
        wf.call(B(1)).await?;
        Ok(json!(wf.call(B(2)).await?))
    });
    let mut forgotten = world(workflow);
    forgotten.activity = Arc::new(|job| (if job.key.name == "A" { 1000 } else { 1 }, Ok(body(&1))));
    value(forgotten.go());
    assert_eq!(forgotten.cancelled, 1, "{}", forgotten.print());
}

#[test]
fn calls_and_tasks_that_are_open_at_the_end_are_cancelled() {
    let workflow = wf(|wf| async move {
        let mut call = Box::pin(wf.call(A(1)));
        let _ = futures::poll!(&mut call);
        let mut set = JoinSet::new();
        let wf2 = wf.clone();
        set.spawn(async move { wf2.call(C(1)).await });
        Ok(json!(wf.call(B(1)).await?))
    });
    let mut open = world(workflow);
    open.activity = Arc::new(|job| (if job.key.name == "B" { 1 } else { 1000 }, Ok(body(&1))));
    value(open.go());
    assert_eq!(open.cancelled, 2, "{}", open.print());
}
