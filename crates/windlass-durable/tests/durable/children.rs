//! Child workflows and their parent-close policies.

use super::support::{A, State, body, value, wf, world};
use serde_json::json;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_durable::{
    AnyWorkflow, CallError, Entry, ErrorClass, ItemBody, OpenWork, ParentClosePolicy, Record, Request, Start, select,
    untyped,
};

fn sleeper() -> Arc<dyn AnyWorkflow> {
    untyped("child@1", |wf, _| async move {
        wf.sleep("1h").await?;
        Ok(json!("slept"))
    })
}

/// A workflow that leaves its child behind.
fn leaves(policy: ParentClosePolicy) -> Arc<dyn AnyWorkflow> {
    wf(move |wf| async move {
        select! {
            child = wf.child_named("child@1", json!(1)).parent_close(policy) => { child?; }
            time = wf.sleep("1ms") => { time?; }
        }
        Ok(json!(0))
    })
}

#[test]
fn a_child_that_is_left_behind_follows_its_policy() {
    for (policy, cancelled, ends_after) in
        [(ParentClosePolicy::Cancel, 1, 1), (ParentClosePolicy::Abandon, 0, 1), (ParentClosePolicy::Wait, 0, 3)]
    {
        let mut parent = world(leaves(policy));
        parent.others.insert("child@1".into(), sleeper());
        value(parent.go());
        assert_eq!((parent.cancelled_outside, parent.now), (cancelled, ends_after), "{policy:?}\n{}", parent.print());
        let Start::Child { policy: started, .. } = &parent.children[0] else { panic!() };
        assert_eq!(*started, policy);
    }
}

#[test]
fn a_cancelled_run_cancels_the_children_it_waits_for() {
    let mut parent = world(leaves(ParentClosePolicy::Wait));
    parent.others.insert("child@1".into(), sleeper());
    while !parent.print().contains("fired") {
        parent.step().unwrap();
    }
    assert!(parent.ended().is_none(), "it waits for the child");
    parent.cancel(2);
    parent.schedule.retain(|_, item| !matches!(item, ItemBody::ChildEnded { .. }));
    assert_eq!(parent.go(), State::Waiting);
    assert_eq!(parent.cancelled_outside, 1);
    let Start::Child { run, .. } = parent.children[0] else { panic!() };
    parent.at(9, ItemBody::ChildEnded { run, outcome: Err(CallError::cancelled()) });
    assert_eq!(value(parent.go()), json!(0));
}

#[test]
fn a_request_to_cancel_that_comes_while_a_segment_waits_for_children_reaches_the_next_one() {
    #[windlass_durable::workflow(crate = windlass_durable)]
    async fn continues(wf: windlass_durable::Wf, is_next: bool) -> Result<(), windlass_durable::Error> {
        if is_next {
            return Ok(wf.sleep("1h").await?);
        }
        select! {
            child = wf.child_named("child@1", json!(1)).parent_close(ParentClosePolicy::Wait) => { child?; }
            time = wf.sleep("1ms") => { time?; }
        }
        wf.continue_as_new(continues, true).await
    }
    for cancelled_at in [2, 4] {
        let mut parent = super::support::World::new(windlass_durable::typed(continues), &false);
        (parent.evict, parent.shadow) = (true, true);
        parent.others.insert("child@1".into(), wf(|_| async { Ok(json!("child")) }));
        parent.cancel(cancelled_at);
        let mut ended = parent.go();
        if cancelled_at == 2 {
            assert_eq!(ended, State::Waiting, "for the child");
            parent.end_cancelled_child();
            ended = parent.go();
        }
        assert!(matches!(ended, State::Ended(windlass_durable::End::Cancelled(_))), "{ended:?}\n{}", parent.print());
        assert_eq!((parent.segments.len(), parent.now), (2, 4), "{}", parent.print());
    }
}

#[test]
fn a_child_has_the_id_that_its_parent_gives() {
    let workflow = wf(|wf| async move {
        let first = wf.child_named("child@1", json!(1)).id("mine");
        let mut first = Box::pin(first);
        let _ = futures::poll!(&mut first);
        let second = wf.child_named("child@1", json!(2)).id("mine").await.unwrap_err();
        assert_eq!(second.class, ErrorClass::Taken);
        Ok(json!(first.await?))
    });
    let mut parent = world(workflow);
    parent.others.insert("child@1".into(), sleeper());
    assert_eq!(value(parent.go()), json!("slept"));
    let Start::Child { run, name, kind, .. } = &parent.children[0] else { panic!() };
    assert_eq!((*run, name.as_deref(), kind.as_str()), (RunId::named("mine"), Some("mine"), "child@1"));
}

#[test]
fn a_taken_id_is_an_error_of_the_child() {
    let workflow = wf(|wf| async move {
        let error = wf.child_named("child@1", json!(1)).id("mine").await.unwrap_err();
        Ok(json!(error.class.name()))
    });
    let mut parent = world(workflow);
    parent.others.insert("child@1".into(), sleeper());
    parent.step().unwrap();
    parent.schedule.clear();
    let outcome = Err(CallError::new(ErrorClass::Taken, "another run has this id"));
    parent.at(1, ItemBody::ChildEnded { run: RunId::named("mine"), outcome });
    assert_eq!(value(parent.go()), json!("taken"));
}

#[test]
fn open_work_is_read_from_the_history() {
    let workflow = wf(|wf| async move {
        wf.call(A(1)).await?;
        let mut child = Box::pin(wf.child_named("child@1", json!(1)).parent_close(ParentClosePolicy::Abandon));
        let _ = futures::poll!(&mut child);
        let mut dropped = Box::pin(wf.call(A(2)));
        let _ = futures::poll!(&mut dropped);
        drop(dropped);
        wf.call(A(3)).await?;
        Ok(json!(0))
    });
    let mut open = world(workflow);
    open.activity = Arc::new(|job| (if job.input.as_json() == "1" { 1 } else { 1_000 }, Ok(body(&1))));
    open.others.insert("child@1".into(), sleeper());
    open.step().unwrap();
    open.step().unwrap();
    let work = OpenWork::of(0, &open.history);
    let is_last = |record: &&Record| matches!(record.entry, Entry::Command(_));
    let Some(Record { entry: Entry::Command(last), .. }) = open.history.iter().rfind(is_last) else { panic!() };
    let Request::Call { job, .. } = last.request else { panic!() };
    assert_eq!(work.jobs, [job]);
    assert_eq!(work.children.len(), 1);
    assert_eq!(work.children[0].1, ParentClosePolicy::Abandon);
}

/// The record that cancels the job may stand in the next commit, before which the run may be terminated.
#[test]
fn the_job_of_an_expired_call_is_open_until_its_cancellation_is_recorded() {
    let mut expires = world(wf(|wf| async move { Ok(json!(wf.call(A(1)).schedule_to_close("1s").await.is_ok())) }));
    expires.activity = Arc::new(|_| (5_000, Ok(body(&1))));
    expires.chunk = 1;
    let mut open = Vec::new();
    expires.crash = Box::new(|_| true);
    while expires.ended().is_none() {
        expires.step().unwrap();
        open.push((expires.history.len(), OpenWork::of(0, &expires.history).jobs.len()));
    }
    assert_eq!(open, [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0)], "{}", expires.print());
}

#[test]
fn a_workflow_that_waits_for_itself_is_refused() {
    let id = RunId::named("self");
    let workflow = wf(|wf| async move {
        let error = wf.child_named("test@1", json!(null)).id("self").await.unwrap_err();
        Ok(json!(error.class.name()))
    });
    let mut own = world(workflow);
    own.id = id;
    assert_eq!(value(own.go()), json!("taken"));
}
