//! The algebra: trees of operations, random ones, and the workflow that interprets them.

use crate::support::{Rng, hash, mix};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass_durable::{
    BoxFuture, Error, Job, JoinSet, ParentClosePolicy, Signal, Wf, join, join_all, join_all_keyed, select, workflow,
};

#[derive(Serialize, Deserialize, Debug, Clone)]
pub(super) enum N {
    Call(u8),
    KeyedCall(u8),
    Sleep(u16),
    Recv(u8),
    TryRecv(u8),
    Seq(Vec<N>),
    Join(Box<N>, Box<N>),
    JoinAll(Vec<N>),
    Keyed(Vec<N>),
    Foreign(Vec<N>),
    Select(Box<N>, Box<N>),
    Loop(u8, Box<N>),
    /// Polled once, then something else happens, then dropped.
    Drop(Box<N>, Box<N>),
    Cancel(Box<N>, Box<N>),
    Shield(Box<N>),
    Child(Box<N>, u8),
    Set(Vec<N>),
    Patch(Box<N>),
    Fail,
    Random,
    Step(u8),
    Saga(u8, Box<N>),
    Promise,
    Continue,
}

pub(super) fn depth(seed: u64) -> u32 {
    3 + u32::try_from(seed % 4).unwrap()
}

fn small(rng: &mut Rng, below: u64) -> u8 {
    u8::try_from(rng.below(below)).unwrap()
}

pub(super) fn tree(rng: &mut Rng, depth: u32, steps: bool, is_inside: bool) -> N {
    let some = |rng: &mut Rng, max: u64, depth| -> Vec<N> {
        (0..=rng.below(max)).map(|_| tree(rng, depth, steps, true)).collect()
    };
    let one = |rng: &mut Rng, depth| Box::new(tree(rng, depth, steps, true));
    if !is_inside {
        return N::Seq((0..3).map(|_| tree(rng, depth, steps, true)).collect());
    }
    if depth == 0 || rng.below(6) == 0 {
        return leaf(rng, steps);
    }
    let d = depth - 1;
    match rng.below(18) {
        0..=3 => N::Seq(some(rng, 4, d)),
        4 => N::Join(one(rng, d), one(rng, d)),
        5 => N::JoinAll(some(rng, 4, d)),
        6 => N::Foreign(some(rng, 4, d)),
        7 | 8 => N::Select(one(rng, d), one(rng, d)),
        9 => N::Loop(1 + small(rng, 3), one(rng, d)),
        10 => N::Drop(one(rng, d), one(rng, d)),
        11 => N::Cancel(one(rng, d), one(rng, d)),
        12 => N::Shield(one(rng, d)),
        13 => {
            let child = one(rng, d.min(1));
            N::Child(child, small(rng, 3))
        }
        14 => N::Set(some(rng, 3, d)),
        15 => N::Patch(one(rng, d)),
        16 => N::Keyed(some(rng, 3, d)),
        _ => {
            let undo = small(rng, 3);
            N::Saga(undo, one(rng, d))
        }
    }
}

fn leaf(rng: &mut Rng, steps: bool) -> N {
    match rng.below(if steps { 13 } else { 10 }) {
        0..=2 => N::Call(small(rng, 3)),
        3 => N::KeyedCall(small(rng, 3)),
        // With steps, a timer that is due at once would race with a step that ends at once.
        4 | 5 => N::Sleep(u16::from(steps) + u16::from(small(rng, 60))),
        6 => N::Recv(small(rng, 2)),
        7 if rng.below(2) == 0 => N::TryRecv(small(rng, 2)),
        7 => N::Random,
        8 if rng.below(8) == 0 => N::Fail,
        8 => N::Call(3),
        9 if rng.below(6) == 0 => N::Continue,
        9 => N::Promise,
        _ => N::Step(small(rng, 6)),
    }
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub(super) struct Sig<const K: u8>(pub(super) u64);

impl Signal for Sig<0> {
    const NAME: &'static str = "s0";
}

impl Signal for Sig<1> {
    const NAME: &'static str = "s1";
}

#[derive(Serialize, Deserialize, Debug, Clone)]
struct Undo(u64);

impl Job for Undo {
    const KIND: &'static str = "undo";
    type Output = serde_json::Value;
}

fn add(a: u64, b: u64) -> u64 {
    mix(a ^ b.rotate_left(17))
}

fn sum(start: u64, values: impl IntoIterator<Item = Result<u64, Error>>) -> Result<u64, Error> {
    values.into_iter().try_fold(start, |sum, value| Ok(add(sum, value?)))
}

fn interpret(wf: Wf, n: Arc<N>, left: u32) -> BoxFuture<'static, Result<u64, Error>> {
    Box::pin(async move {
        match &*n {
            N::Call(_) | N::KeyedCall(_) | N::Sleep(_) | N::Recv(_) | N::TryRecv(_) | N::Fail | N::Random => {
                simple(&wf, &n).await
            }
            N::Step(_) | N::Promise | N::Continue => other_leaf(&wf, &n, left).await,
            N::Seq(_) | N::Join(..) | N::JoinAll(_) | N::Keyed(_) | N::Foreign(_) | N::Select(..) | N::Loop(..) => {
                several(&wf, &n, left).await
            }
            _ => scoped(&wf, &n, left).await,
        }
    })
}

async fn simple(wf: &Wf, n: &N) -> Result<u64, Error> {
    Ok(match n {
        N::Call(k) => hash(&wf.call_named(format!("job{k}"), json!(k)).await?.to_string()),
        N::KeyedCall(k) => hash(&wf.call_named("keyed", json!(k)).key(format!("k{k}")).await?.to_string()),
        N::Sleep(ms) => {
            wf.sleep(Duration::from_millis(u64::from(*ms))).await?;
            wf.now().as_ms().unsigned_abs()
        }
        N::Recv(0) => wf.recv::<Sig<0>>().await?.0,
        N::Recv(_) => wf.signals::<Sig<1>>().next().await?.0,
        N::TryRecv(0) => wf.try_recv::<Sig<0>>().map_or(1, |message| message.0),
        N::TryRecv(_) => wf.try_recv::<Sig<1>>().map_or(1, |message| message.0),
        N::Random => wf.random(),
        _ => return Err("it fails".into()),
    })
}

async fn other_leaf(wf: &Wf, n: &N, left: u32) -> Result<u64, Error> {
    Ok(match n {
        N::Step(k) => {
            let step = async || {
                // Some are woken several times on their way.
                for _ in 0..2 * u32::from(*k / 3) {
                    tokio::task::yield_now().await;
                }
                if *k == 2 { Err("bad") } else { Ok(u64::from(*k)) }
            };
            wf.run(format!("step{k}"), step).await.unwrap_or(77)
        }
        N::Continue if left > 0 => wf.continue_as_new(prop, (json!(n), left - 1)).await,
        N::Continue => 5,
        _ => {
            let promise = wf.promise::<u64>();
            wf.call_named("resolves", json!(promise.token())).await?;
            promise.await?
        }
    })
}

async fn several(wf: &Wf, n: &N, left: u32) -> Result<u64, Error> {
    let go = |n: &N| interpret(wf.clone(), Arc::new(n.clone()), left);
    Ok(match n {
        N::Join(a, b) => {
            let (a, b) = join!(go(a), go(b));
            add(a?, b?)
        }
        N::JoinAll(all) => sum(2, join_all(all.iter().map(go)).await)?,
        N::Keyed(all) => {
            let keyed = all.iter().enumerate().map(|(at, n)| (format!("key{at}"), go(n)));
            sum(9, join_all_keyed(keyed).await)?
        }
        N::Foreign(all) => {
            let all = futures::future::join_all(all.iter().map(go)).await;
            sum(3, all.into_iter().map(|value| Ok(value.unwrap_or(9))))?
        }
        N::Select(a, b) => select! { a = go(a) => a?, b = go(b) => add(b?, 1) },
        N::Loop(times, n) => {
            let mut all = 4;
            for _ in 0..*times {
                all = add(all, go(n).await.unwrap_or(5));
            }
            all
        }
        N::Seq(all) => {
            let mut value = 1;
            for n in all {
                value = add(value, go(n).await?);
            }
            value
        }
        _ => 0,
    })
}

async fn scoped(wf: &Wf, n: &N, left: u32) -> Result<u64, Error> {
    let go = |n: &N| interpret(wf.clone(), Arc::new(n.clone()), left);
    Ok(match n {
        N::Drop(a, b) => {
            let mut a = go(a);
            let first = futures::poll!(&mut a);
            let b = go(b).await?;
            drop(a);
            match first {
                std::task::Poll::Ready(a) => add(a?, b),
                std::task::Poll::Pending => b,
            }
        }
        N::Cancel(a, b) => {
            let (handle, scoped) = wf.cancellable(go(a));
            let second = async {
                let b = go(b).await;
                handle.cancel();
                b
            };
            let (a, b) = join!(scoped, second);
            add(a.unwrap_or(6), b.unwrap_or(7))
        }
        N::Shield(a) => wf.shield(go(a)).await?,
        N::Child(a, policy) => {
            let policies = [ParentClosePolicy::Cancel, ParentClosePolicy::Wait, ParentClosePolicy::Abandon];
            wf.child(prop, (json!(**a), 0)).parent_close(policies[usize::from(*policy)]).await?
        }
        N::Set(all) => {
            let mut set = JoinSet::new();
            all.iter().for_each(|n| set.spawn(go(n)));
            let mut value = 8;
            while let Some(one) = set.join_next().await {
                value = add(value, one.unwrap_or(3));
            }
            value
        }
        N::Patch(a) if wf.patched("p") => go(a).await?,
        N::Saga(undo, a) => {
            let mut saga = wf.saga();
            saga.undo(Undo(u64::from(*undo)));
            let value = go(a).await;
            match (&value, undo) {
                (Ok(_), _) => saga.commit(),
                (Err(_), 0) => drop(saga.compensate().await),
                // Compensated when the workflow ends.
                (Err(_), _) => {}
            }
            value?
        }
        _ => 0,
    })
}

#[workflow(crate = windlass_durable)]
pub(super) async fn prop(wf: Wf, (n, left): (serde_json::Value, u32)) -> Result<u64, Error> {
    let n: N = serde_json::from_value(n).unwrap();
    interpret(wf, Arc::new(n), left).await
}
