//! Code that changes under a running workflow.

use super::support::{A, B, C, Ping, State, X, stuck, value, wf, world};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use windlass_durable::{AnyWorkflow, Job, NoHost, Run, Stuck, join};

/// Runs the old code for some steps, then the new one.
fn deploy(old: Arc<dyn AnyWorkflow>, steps: usize, new: Arc<dyn AnyWorkflow>) -> State {
    let mut deployed = world(old);
    for _ in 0..steps {
        deployed.step().unwrap();
    }
    let before = deployed.history.len();
    deployed.run = None;
    deployed.workflow = new;
    deployed.host = Arc::new(NoHost { build: "b2".into() });
    deployed.shadow = false;
    let state = deployed.go();
    if matches!(state, State::Stuck(_)) {
        assert_eq!(deployed.history.len(), before, "nothing of a mismatching turn is stored");
    }
    state
}

#[track_caller]
fn mismatch(state: State) {
    assert!(matches!(stuck(state), Stuck::Mismatch { .. }));
}

fn abc() -> Arc<dyn AnyWorkflow> {
    wf(|wf| async move {
        wf.call(A(1)).await?;
        wf.call(B(1)).await?;
        Ok(json!(wf.call(C(1)).await?))
    })
}

#[test]
fn changes_within_the_history_are_mismatches() {
    for steps in [2, 3] {
        let swapped = wf(|wf| async move {
            wf.call(B(1)).await?;
            wf.call(A(1)).await?;
            Ok(json!(wf.call(C(1)).await?))
        });
        let removed = wf(|wf| async move {
            wf.call(B(1)).await?;
            Ok(json!(wf.call(C(1)).await?))
        });
        let renamed = wf(|wf| async move {
            wf.call(X(1)).await?;
            wf.call(B(1)).await?;
            Ok(json!(wf.call(C(1)).await?))
        });
        let added = wf(|wf| async move {
            wf.call(X(1)).await?;
            wf.call(A(1)).await?;
            Ok(json!(wf.call(B(1)).await?))
        });
        let step_added = wf(|wf| async move {
            wf.run_ok("s", async || 1).await?;
            wf.call(A(1)).await?;
            Ok(json!(wf.call(B(1)).await?))
        });
        let recv_added = wf(|wf| async move {
            wf.recv::<Ping>().await?;
            wf.call(A(1)).await?;
            Ok(json!(1))
        });
        let returns = wf(|_| async move { Ok(json!(1)) });
        let parallel = wf(|wf| async move {
            let (a, b) = join!(wf.call(A(1)), wf.call(B(1)));
            a?;
            b?;
            Ok(json!(wf.call(C(1)).await?))
        });
        for new in [swapped, removed, renamed, added, step_added, recv_added, returns, parallel] {
            mismatch(deploy(abc(), steps, new));
        }
    }
}

#[test]
fn a_mismatch_names_both_sides_with_line_and_build() {
    let new = wf(|wf| async move { Ok(json!(wf.call(X(1)).await?)) });
    let Stuck::Mismatch { number, history, code } = stuck(deploy(abc(), 2, new)) else { panic!() };
    assert_eq!(number, 1);
    assert_eq!((history.what.as_str(), history.build.as_str()), ("call `A` #0", "b1"));
    assert_eq!((code.what.as_str(), code.build.as_str()), ("call `X` #0", "b2"));
    for side in [history, code] {
        assert!(side.place.contains("deploys.rs:"), "{side}");
    }
}

#[test]
fn a_renamed_step_is_a_mismatch() {
    let steps = |name: &'static str| {
        wf(move |wf| async move {
            wf.run_ok(name, async || 1).await?;
            wf.call(A(1)).await?;
            Ok(json!(0))
        })
    };
    mismatch(deploy(steps("one"), 3, steps("two")));
}

#[test]
fn two_calls_of_a_turn_with_swapped_inputs_are_a_mismatch() {
    let calls = |first: u64, second: u64| {
        wf(move |wf| async move {
            let (a, b) = join!(wf.call(A(first)), wf.call(A(second)));
            Ok(json!([a?, b?]))
        })
    };
    mismatch(deploy(calls(1, 2), 1, calls(2, 1)));
}

#[test]
fn changes_beyond_the_history_are_allowed() {
    let new = wf(|wf| async move {
        wf.call(A(1)).await?;
        wf.call(B(1)).await?;
        wf.call(X(1)).await?;
        Ok(json!(wf.call(C(1)).await?))
    });
    value(deploy(abc(), 2, new));
}

#[test]
fn another_input_is_a_warning() {
    let mut changed = world(abc());
    for _ in 0..3 {
        changed.step().unwrap();
    }
    changed.workflow = wf(|wf| async move {
        wf.call(A(2)).await?;
        wf.call(B(1)).await?;
        Ok(json!(wf.call(C(1)).await?))
    });
    let run = Run::open(changed.opening()).unwrap();
    let warnings = run.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("another input"), "{warnings:?}");
}

#[derive(Serialize, Deserialize)]
struct A2(u64);

impl Job for A2 {
    const KIND: &'static str = "A";
    type Output = String;
}

#[test]
fn another_type_of_result_does_not_decode() {
    let new = wf(|wf| async move {
        wf.call(A2(1)).await?;
        wf.call(B(1)).await?;
        Ok(json!(wf.call(C(1)).await?))
    });
    assert!(matches!(stuck(deploy(abc(), 3, new)), Stuck::Decode(_)));
}

#[test]
fn each_pass_of_a_loop_takes_a_patch_for_itself() {
    let old = wf(|wf| async move {
        for _ in 0..4 {
            wf.call(A(1)).await?;
        }
        Ok(json!(0))
    });
    let patched = || {
        wf(|wf| async move {
            for _ in 0..4 {
                if wf.patched("x") {
                    wf.call(X(1)).await?;
                }
                wf.call(A(1)).await?;
            }
            Ok(json!(0))
        })
    };
    // The code changes in the middle of the loop, under eviction at every commit.
    let mut run = world(old);
    for _ in 0..3 {
        run.step().unwrap();
    }
    run.run = None;
    run.workflow = patched();
    run.evict = true;
    value(run.go());
    assert_eq!((run.count("A"), run.count("X")), (4, 1));
    // Later the condition is removed, and the marker stays in the history.
    let mut run = world(patched());
    for _ in 0..3 {
        run.step().unwrap();
    }
    run.run = None;
    run.workflow = wf(|wf| async move {
        for _ in 0..4 {
            wf.call(X(1)).await?;
            wf.call(A(1)).await?;
        }
        Ok(json!(0))
    });
    value(run.go());
}

#[test]
fn the_build_is_recorded_where_it_changes() {
    let mut run = world(abc());
    run.step().unwrap();
    run.step().unwrap();
    run.run = None;
    run.host = Arc::new(NoHost { build: "b2".into() });
    run.shadow = false;
    value(run.go());
    let builds: Vec<_> = run.history.iter().map(|record| record.build.as_deref().unwrap_or("-")).collect();
    assert_eq!(builds, ["b1", "-", "-", "-", "b2", "-", "-", "-"]);
}
