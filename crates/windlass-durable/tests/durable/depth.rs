//! Deep and wide workflows.

use super::misuse::fails_in_a_process;
use super::support::{A, value, wf, world};
use serde_json::json;
use std::sync::{Arc, Mutex};
use windlass_durable::{BoxFuture, Error, Run, Wf, join, join_all};

/// Stack for deep workflows, as an engine gives it to its threads.
const STACK_BYTES: usize = 64 << 20;

fn on_a_deep_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test).unwrap();
    thread.join().unwrap();
}

fn deep(wf: Wf, n: u64) -> BoxFuture<'static, Result<u64, Error>> {
    Box::pin(async move {
        let below = if n == 0 { 0 } else { deep(wf.clone(), n - 1).await? };
        Ok(below + wf.call(A(1)).await?)
    })
}

fn deep_join(wf: Wf, n: u64) -> BoxFuture<'static, Result<u64, Error>> {
    Box::pin(async move {
        if n == 0 {
            return Ok(wf.call(A(1)).await?);
        }
        let call = async { Ok::<_, Error>(wf.call(A(1)).await?) };
        let (a, b) = join!(deep_join(wf.clone(), n - 1), call);
        Ok(a? + b?)
    })
}

#[test]
fn slow_deep_recursion_works_and_keeps_scopes_short() {
    on_a_deep_stack(|| {
        for n in [100u64, 1000, 3000] {
            let mut recursion = world(wf(move |wf| async move { Ok(json!(deep(wf, n).await?)) }));
            recursion.shadow = false;
            assert_eq!(value(recursion.go()), json!(n + 1));
        }
        for n in [100u64, 1000] {
            let mut joins = world(wf(move |wf| async move { Ok(json!(deep_join(wf, n).await?)) }));
            joins.shadow = false;
            assert_eq!(value(joins.go()), json!(n + 1));
            let longest = joins.history.iter().map(|record| record.encode().len()).max().unwrap();
            assert!(longest < 250, "{longest}");
        }
    });
}

/// A stack overflow kills the process, and the next one that claims the run: the store counts engines that die with a run.
#[test]
fn slow_endless_recursion_kills_the_process() {
    const VARIABLE: &str = "WINDLASS_TEST_OVERFLOW";
    if std::env::var_os(VARIABLE).is_none() {
        assert!(fails_in_a_process("depth::slow_endless_recursion_kills_the_process", VARIABLE));
        return;
    }
    let mut endless = world(wf(|wf| async move { Ok(json!(deep(wf, 100_000).await?)) }));
    endless.shadow = false;
    endless.go();
}

#[test]
fn slow_ten_thousand_calls_are_joined_and_replayed() {
    for n in [1_000u64, 10_000] {
        let workflow = wf(move |wf| async move {
            let all = join_all((0..n).map(|i| wf.call(A(i)))).await;
            Ok(json!(all.into_iter().map(Result::unwrap).sum::<u64>()))
        });
        let mut wide = world(workflow);
        wide.shadow = false;
        wide.batch = 100;
        assert_eq!(value(wide.go()), json!(n * (n - 1) / 2));
        Run::open(wide.opening()).unwrap();
    }
}

#[inline(never)]
fn stack_address() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

#[test]
fn a_level_of_boxed_recursion_takes_little_stack() {
    fn depth(wf: Wf, n: u64, lowest: Arc<Mutex<usize>>) -> BoxFuture<'static, Result<u64, Error>> {
        Box::pin(async move {
            if n == 0 {
                *lowest.lock().unwrap() = stack_address();
                return Ok(wf.call(A(1)).await?);
            }
            depth(wf, n - 1, lowest).await
        })
    }
    let lowest_at = |n: u64| {
        let lowest = Arc::new(Mutex::new(0));
        let inner = lowest.clone();
        let mut recursion = world(wf(move |wf| {
            let inner = inner.clone();
            async move { Ok(json!(depth(wf, n, inner).await?)) }
        }));
        recursion.shadow = false;
        recursion.step().unwrap();
        let lowest = lowest.lock().unwrap();
        *lowest
    };
    let per_level = (lowest_at(0) - lowest_at(500)) / 500;
    assert!(per_level < 4_000, "{per_level} bytes");
}
