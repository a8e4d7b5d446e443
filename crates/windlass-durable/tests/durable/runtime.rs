//! Runtimes and foreign futures in workflow code.

use super::support::{A, stuck, value, wf, world};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use windlass_durable::{Error, Stuck, join, select};

#[test]
#[expect(clippy::disallowed_methods, reason = "what workflow code must not do")]
fn calls_of_a_runtime_panic_at_their_line() {
    let spawn = wf(|_| async move {
        tokio::spawn(async {}).await.ok();
        Ok(json!(0))
    });
    let sleep = wf(|_| async move {
        tokio::time::sleep(Duration::from_millis(1)).await; // sleeps because: it must not
        Ok(json!(0))
    });
    let timeout = wf(|wf| async move {
        let _ = tokio::time::timeout(Duration::from_millis(1), wf.call(A(1))).await;
        Ok(json!(0))
    });
    let blocking = wf(|_| async move {
        tokio::task::spawn_blocking(|| 1).await.ok();
        Ok(json!(0))
    });
    for workflow in [spawn, sleep, timeout, blocking] {
        let reason = stuck(world(workflow).go());
        assert!(matches!(reason, Stuck::Panic(_)));
        assert!(reason.to_string().contains("runtime.rs:"), "{reason}");
    }
}

#[test]
fn yields_are_allowed() {
    let workflow = wf(|wf| async move {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        Ok(json!(wf.call(A(1)).await?))
    });
    assert_eq!(value(world(workflow).go()), json!(1));
}

#[test]
fn slow_a_loop_that_wakes_itself_is_a_livelock() {
    let workflow = wf(|_| async move {
        loop {
            tokio::task::yield_now().await;
        }
    });
    assert!(matches!(stuck(world(workflow).go()), Stuck::Livelock(_)));
}

type Slot = Arc<Mutex<(bool, Option<Waker>)>>;

/// A future that another thread completes.
struct Foreign(Slot);

impl Future for Foreign {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.0.lock().unwrap();
        slot.1 = Some(cx.waker().clone());
        if slot.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn complete_on_a_thread(slot: &Slot) {
    let slot = slot.clone();
    let wake = move || {
        let waker = {
            let mut slot = slot.lock().unwrap();
            slot.0 = true;
            slot.1.take().unwrap()
        };
        waker.wake();
    };
    std::thread::Builder::new().name("foreign-timer".into()).spawn(wake).unwrap().join().unwrap();
}

#[test]
fn a_foreign_future_alone_is_a_deadlock() {
    let workflow = wf(|wf| async move {
        let _ = wf.now();
        Foreign(Slot::default()).await;
        Ok(json!(0))
    });
    let reason = stuck(world(workflow).go());
    assert!(matches!(reason, Stuck::Deadlock(_)));
    assert!(reason.to_string().contains("runtime.rs:"), "{reason}");
    let pending = wf(|wf| async move {
        futures::future::pending::<()>().await;
        drop(wf);
        Ok(json!(0))
    });
    assert!(matches!(stuck(world(pending).go()), Stuck::Deadlock(_)));
}

#[test]
fn a_foreign_future_beside_a_call_is_named_with_its_thread() {
    let slot = Slot::default();
    let foreign = slot.clone();
    let workflow = wf(move |wf| {
        let foreign = Foreign(foreign.clone());
        async move {
            select! { () = foreign => {}, c = wf.call(A(1)) => { c?; } }
            Ok(json!(0))
        }
    });
    let mut beside = world(workflow);
    beside.shadow = false;
    beside.step().unwrap();
    complete_on_a_thread(&slot);
    let reason = stuck(beside.go());
    assert!(matches!(reason, Stuck::Foreign(_)));
    assert!(reason.to_string().contains("`foreign-timer`"), "{reason}");
}

#[test]
fn a_future_that_is_ready_at_once_is_allowed() {
    let workflow = wf(|wf| async move {
        futures::future::ready(()).await;
        Ok(json!(wf.call(A(1)).await?))
    });
    assert_eq!(value(world(workflow).go()), json!(1));
}

#[test]
fn a_channel_out_of_a_local_step_is_foreign() {
    let workflow = wf(|wf| async move {
        let (sender, receiver) = futures::channel::oneshot::channel();
        let sender = Mutex::new(Some(sender));
        let step = async || {
            let sender = sender.lock().unwrap().take();
            let _ = sender.unwrap().send(5);
            Ok::<_, Error>(1)
        };
        let (a, b) = join!(wf.run("leak", step), async {
            let value = receiver.await.unwrap();
            wf.call(A(value)).await
        });
        Ok(json!([a?, b?]))
    });
    let reason = stuck(world(workflow).go());
    assert!(matches!(reason, Stuck::Foreign(_)));
    assert!(reason.to_string().contains("from within a local step"), "{reason}");
}
