//! `Wf` and its futures where they must not be used, panics, and destructors.

use super::support::{A, B, C, State, TokioHost, World, stuck, value, wf, world};
use futures::FutureExt;
use serde_json::json;
use std::future::Future;
use std::sync::{Arc, Mutex};
use windlass_core::id::RunId;
use windlass_durable::{Run, Stuck, Wf, select};

fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("other".into()).spawn(work).unwrap().join();
}

#[test]
fn a_call_that_is_polled_on_another_thread_is_a_misuse() {
    let workflow = wf(|wf| async move {
        let mut call = Box::pin(wf.call(A(1)));
        let _ = futures::poll!(&mut call);
        on_a_thread(move || {
            let waker = futures::task::noop_waker();
            let _ = call.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        });
        wf.call(B(1)).await?;
        Ok(json!(0))
    });
    let reason = stuck(world(workflow).go());
    assert!(matches!(reason, Stuck::Misuse(_)));
    assert!(reason.to_string().contains("misuse.rs:"), "{reason}");
}

#[test]
fn a_call_that_is_dropped_on_another_thread_is_a_misuse() {
    let workflow = wf(|wf| async move {
        let mut call = Box::pin(wf.call(A(1)));
        let _ = futures::poll!(&mut call);
        on_a_thread(move || drop(call));
        wf.call(B(1)).await?;
        Ok(json!(0))
    });
    assert!(matches!(stuck(world(workflow).go()), Stuck::Misuse(_)));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what a local step may do, but not with a `Wf`")]
fn wf_in_a_task_of_a_step_is_a_misuse() {
    let host = Arc::new(TokioHost::new());
    let workflow = wf(|wf| async move {
        let wf2 = wf.clone();
        let step = async || {
            let wf = wf2.clone();
            tokio::spawn(async move { wf.now().as_ms() }).await.map_err(|error| error.to_string())
        };
        wf.run("spawns", step).await?;
        Ok(json!(0))
    });
    let mut spawns = world(workflow);
    spawns.host = host.clone();
    spawns.shadow = false;
    let state = loop {
        match spawns.go() {
            State::Waiting => host.wait(),
            other => break other,
        }
    };
    assert!(matches!(stuck(state), Stuck::Misuse(_)));
}

#[test]
fn wf_of_another_run_is_reported_for_the_run_that_uses_it() {
    let stolen: Arc<Mutex<Option<Wf>>> = Arc::default();
    let keep = stolen.clone();
    let owner = wf(move |wf| {
        *keep.lock().unwrap() = Some(wf.clone());
        async move { Ok(json!(wf.call(A(1)).await?)) }
    });
    let mut owner = world(owner);
    owner.shadow = false;
    owner.step().unwrap();
    let take = stolen.clone();
    let thief = wf(move |_| {
        let wf = take.lock().unwrap().clone().unwrap();
        async move { Ok(json!(wf.call(A(1)).await?)) }
    });
    let mut thief = world(thief);
    thief.id = RunId::from_parts(0, 2);
    stuck(thief.go());
    assert_eq!(value(owner.go()), json!(1));
    // After its run is gone it does nothing.
    let wf = stolen.lock().unwrap().clone().unwrap();
    drop(owner);
    assert_eq!(wf.random(), 0);
}

#[test]
fn wf_inside_of_a_local_step_is_a_misuse() {
    let workflow = wf(|wf| async move {
        let wf2 = wf.clone();
        wf.run("inner", async || wf2.call(A(1)).await).await?;
        Ok(json!(0))
    });
    let reason = stuck(world(workflow).go());
    assert!(matches!(reason, Stuck::Misuse(_)));
    assert!(reason.to_string().contains("inside of a local step"), "{reason}");
    let workflow = wf(|wf| async move {
        let call = wf.call(A(1)).shared();
        wf.run("inner", async || call.clone().await).await?;
        Ok(json!(0))
    });
    assert!(matches!(stuck(world(workflow).go()), Stuck::Misuse(_)));
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a panic in a destructor");
    }
}

/// Must do nothing at an eviction and while a panic unwinds; else a second panic aborts the process.
struct Talker(Wf);

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.0.now();
        let _ = self.0.random();
        let _unused = self.0.call(A(9));
    }
}

#[test]
fn a_panic_is_named_with_its_line() {
    let workflow = wf(|_| async move {
        let empty: Vec<u8> = Vec::new();
        Ok(json!(empty[3]))
    });
    let reason = stuck(world(workflow).go());
    assert!(matches!(reason, Stuck::Panic(_)));
    assert!(reason.to_string().contains("misuse.rs:"), "{reason}");
    let workflow = wf(|wf| async move {
        let loser = async {
            let _bomb = Bomb;
            wf.sleep("1d").await
        };
        select! { a = loser => { a?; }, b = wf.call(B(1)) => { b?; } }
        Ok(json!(0))
    });
    assert!(matches!(stuck(world(workflow).go()), Stuck::Panic(_)));
}

#[test]
#[expect(clippy::mem_forget, reason = "only the eviction may run the destructor")]
fn destructors_do_nothing_at_eviction_and_while_unwinding() {
    let workflow = wf(|wf| async move {
        let bomb = Bomb;
        wf.call(B(1)).await?;
        std::mem::forget(bomb);
        Ok(json!(0))
    });
    let mut bomb = world(workflow);
    bomb.evict = true;
    bomb.shadow = false;
    value(bomb.go());
    let workflow = wf(|wf| async move {
        let _talker = Talker(wf.clone());
        wf.call(B(1)).await?;
        assert!(wf.now().as_ms() < 0, "boom");
        Ok(json!(0))
    });
    let mut talker = world(workflow);
    talker.evict = true;
    let reason = stuck(talker.go());
    assert!(reason.to_string().contains("boom"), "{reason}");
}

/// Runs one test of this program in a process of its own, with `variable` set. Returns true when the process failed.
pub(crate) fn fails_in_a_process(test: &str, variable: &str) -> bool {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).args(["--exact", test]).env(variable, "1").output().unwrap();
    !output.status.success()
}

/// The store counts engines that die with a run, because of this.
#[test]
fn a_panic_while_unwinding_aborts_the_process() {
    const VARIABLE: &str = "WINDLASS_TEST_DOUBLE_PANIC";
    if std::env::var_os(VARIABLE).is_none() {
        assert!(fails_in_a_process("misuse::a_panic_while_unwinding_aborts_the_process", VARIABLE));
        return;
    }
    let workflow = wf(|wf| async move {
        let _bomb = Bomb;
        wf.now();
        panic!("first")
    });
    world(workflow).go();
}

#[test]
fn a_thread_that_does_not_return_can_be_located() {
    let (entered, has_entered) = std::sync::mpsc::channel::<()>();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let gates = Arc::new(Mutex::new((entered, released)));
    let workflow = wf(move |wf| {
        let gates = gates.clone();
        async move {
            wf.call(C(1)).await?;
            {
                let gates = gates.lock().unwrap();
                gates.0.send(()).unwrap();
                gates.1.recv().unwrap();
            }
            Ok(json!(wf.call(B(1)).await?))
        }
    });
    let mut blocked: World = world(workflow);
    blocked.shadow = false;
    blocked.step().unwrap();
    let probe = blocked.run.as_ref().map(Run::probe).unwrap();
    let thread = std::thread::Builder::new().spawn(move || blocked.go()).unwrap();
    has_entered.recv().unwrap();
    assert!(probe.last_place().contains("misuse.rs:"), "{}", probe.last_place());
    release.send(()).unwrap();
    value(thread.join().unwrap());
}

fn is_send<T: Send>() {}
fn is_shareable<T: Send + Sync + Clone>() {}

#[test]
fn runs_are_send_and_handles_are_shareable() {
    is_send::<Run>();
    is_shareable::<Wf>();
}
