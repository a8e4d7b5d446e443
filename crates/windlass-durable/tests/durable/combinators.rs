//! Combinators of other crates, and order that depends on chance.

use super::support::{A, B, C, JsonResult, State, stuck, value, wf, world};
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use windlass_durable::{Call, Error, JoinSet, Stuck, join, join_all, select};

const ROUNDS: usize = 50;

#[test]
fn selects_that_pick_at_random_are_found_by_replay() {
    let mut found = [0; 3];
    for _ in 0..ROUNDS {
        let workflow = wf(|wf| async move {
            tokio::select! { a = wf.call(A(1)) => { a?; } b = wf.call(B(2)) => { b?; } }
            Ok(json!(wf.call(C(3)).await?))
        });
        found[0] += usize::from(matches!(world(workflow).go(), State::Stuck(Stuck::Mismatch { .. })));
        let workflow = wf(|wf| async move {
            futures::select! { a = wf.call(A(1)).fuse() => { a?; } b = wf.call(B(2)).fuse() => { b?; } }
            Ok(json!(wf.call(C(3)).await?))
        });
        found[1] += usize::from(matches!(world(workflow).go(), State::Stuck(Stuck::Mismatch { .. })));
        let workflow = wf(|wf| async move {
            tokio::select! { biased; a = wf.call(A(1)) => { a?; } b = wf.call(B(2)) => { b?; } }
            Ok(json!(wf.call(C(3)).await?))
        });
        found[2] += usize::from(!matches!(world(workflow).go(), State::Ended(_)));
    }
    assert!(found[0] > ROUNDS / 2 && found[1] > ROUNDS / 2 && found[2] == 0, "{found:?}");
}

#[test]
fn join_all_and_unordered_of_the_futures_crate_replay() {
    for n in [10u64, 29, 30, 31, 100, 1000] {
        let workflow = wf(move |wf| async move {
            let all = futures::future::join_all((0..n).map(|i| wf.call(A(i)))).await;
            Ok(json!(all.into_iter().map(Result::unwrap).sum::<u64>()))
        });
        let mut joined = world(workflow);
        joined.shadow = n < 200;
        assert_eq!(value(joined.go()), json!(n * (n - 1) / 2));
        let workflow = wf(move |wf| async move {
            let mut all: FuturesUnordered<_> = (0..n).map(|i| wf.call(A(i))).collect();
            let mut order = 0u64;
            while let Some(one) = all.next().await {
                order = order.wrapping_mul(31).wrapping_add(one?);
                wf.call(B(order)).await?;
            }
            Ok(json!(order))
        });
        let mut unordered = world(workflow);
        unordered.shadow = n < 200;
        value(unordered.go());
    }
}

#[test]
fn joins_and_channels_inside_of_one_run_replay() {
    let workflow = wf(|wf| async move {
        let (a, b) = tokio::join!(wf.call(A(1)), wf.call(B(2)));
        let (c, d) = futures::join!(wf.call(A(1)), wf.call(B(2)));
        Ok(json!([a?, b?, c?, d?]))
    });
    assert_eq!(value(world(workflow).go()), json!([1, 2, 1, 2]));
    let workflow = wf(|wf| async move {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let wf2 = wf.clone();
        let receive = async {
            let mut sum = 0;
            while let Some(value) = receiver.recv().await {
                sum += value;
            }
            sum
        };
        let send = async move {
            for i in 0..5 {
                let value = wf2.call(A(i)).await?;
                let _ = sender.send(value).await;
            }
            Ok::<_, Error>(())
        };
        let (sum, _) = join!(receive, send);
        Ok(json!(sum))
    });
    assert_eq!(value(world(workflow).go()), json!(10));
}

/// The usual ways to fan out with a limit work and replay.
#[test]
fn slow_buffer_unordered_and_semaphores_replay() {
    let workflow = wf(|wf| async move {
        let wf = &wf;
        let calls = futures::stream::iter(0..300u64).map(|i| async move {
            let a = wf.call(A(i)).await?;
            Ok::<_, Error>(a + wf.call(B(i)).await?)
        });
        let mut all = calls.buffer_unordered(10);
        let mut sum = 0;
        while let Some(one) = all.next().await {
            sum += one?;
        }
        Ok(json!(sum))
    });
    assert_eq!(value(world(workflow).go()), json!(89_700));
    let workflow = wf(|wf| async move {
        let permits = Arc::new(tokio::sync::Semaphore::new(10));
        let mut set = JoinSet::new();
        for i in 0..300u64 {
            let (wf, permits) = (wf.clone(), permits.clone());
            set.spawn(async move {
                let _permit = permits.acquire().await;
                let a = wf.call(A(i)).await?;
                Ok::<_, Error>(a + wf.call(B(i)).await?)
            });
        }
        let mut sum = 0;
        while let Some(one) = set.join_next().await {
            sum += one?;
        }
        Ok(json!(sum))
    });
    assert_eq!(value(world(workflow).go()), json!(89_700));
}

#[test]
fn the_order_of_a_hash_map_is_found_by_replay() {
    for _ in 0..20 {
        let workflow = wf(|wf| async move {
            let map: HashMap<String, u64> = (0..8).map(|i| (format!("k{i}"), i)).collect();
            for (_, value) in map {
                wf.call_named(format!("job-{value}"), json!(value)).await?;
            }
            Ok(json!(0))
        });
        stuck(world(workflow).go());
        // The order of drops does not matter: the cancels of a turn are a sorted set.
        let workflow = wf(|wf| async move {
            let mut map: HashMap<u64, Pin<Box<Call<u64>>>> = (0..8).map(|i| (i, Box::pin(wf.call(A(i))))).collect();
            for i in 0..8 {
                let _ = futures::poll!(map.get_mut(&i).unwrap());
            }
            drop(map);
            Ok(json!(wf.call(B(1)).await?))
        });
        let mut dropped = world(workflow);
        value(dropped.go());
        assert_eq!((dropped.cancelled, dropped.cancelled_outside), (8, 8));
    }
}

#[test]
fn tasks_of_a_join_set_go_on_while_nobody_joins() {
    let workflow = wf(|wf| async move {
        let mut set = JoinSet::new();
        for i in 0..20 {
            let wf = wf.clone();
            set.spawn(async move {
                let a = wf.call(A(i)).await?;
                Ok::<_, Error>(a + wf.call(B(i)).await?)
            });
        }
        wf.sleep("1h").await?;
        let mut sum = 0;
        while let Some(one) = set.join_next().await {
            sum += one?;
        }
        Ok(json!([sum, wf.now().as_ms()]))
    });
    assert_eq!(value(world(workflow).go()), json!([380, 3_600_000]));
}

#[test]
fn select_takes_arms_with_and_without_commas() {
    async fn code(wf: windlass_durable::Wf) -> JsonResult {
        let first: u64 = select! { a = wf.call(A(3)) => a?, b = wf.sleep("1h") => { b?; 0 } };
        let second = select! {
            a = wf.call(A(4)) => { a? + first }
            b = wf.sleep("1h") => { b?; 0 },
            c = wf.sleep("2h") => { c?; 1 }
        };
        let third = select! { (a, b) = async { (wf.call(A(5)).await, 2) } => a? + b, };
        Ok(Value::from(second + third))
    }
    assert_eq!(value(world(wf(code)).go()), json!(14));
}

#[test]
fn scopes_name_their_arms() {
    let workflow = wf(|wf| async move {
        let keyed = (0..2).map(|i| (format!("order-{i}"), wf.call(A(i))));
        let keyed = windlass_durable::join_all_keyed(keyed).await;
        let plain = join_all([wf.call(B(1)), wf.call(B(2))]).await;
        let _ = wf.call(C(1)).key("mine").await;
        let _ = wf.call(C(2)).await;
        Ok(json!([keyed.len(), plain.len()]))
    });
    let mut keyed = world(workflow);
    assert_eq!(value(keyed.go()), json!([2, 2]));
    let keys: Vec<String> = keyed.started.iter().map(|job| job.key.to_string()).collect();
    // Calls that are made outside of the arms are counted there.
    let want = ["call `A` #0", "call `A` #1", "call `B` #0", "call `B` #1", "call `C` key `mine`", "call `C` #0"];
    assert_eq!(keys, want);
    let workflow = wf(|wf| async move {
        let arms = (0..2).map(|i| (format!("order-{i}"), wf.clone()));
        let arms = arms.map(|(key, wf)| (key, async move { wf.call(A(1)).await }));
        windlass_durable::join_all_keyed(arms).await;
        Ok(json!(0))
    });
    let mut keyed = world(workflow);
    value(keyed.go());
    let keys: Vec<String> = keyed.started.iter().map(|job| job.key.to_string()).collect();
    assert_eq!(keys, ["call `A` #0 in j0.order-0", "call `A` #0 in j0.order-1"]);
}
