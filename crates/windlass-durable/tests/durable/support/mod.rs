//! What the tests share.

mod tokio_host;
mod world;

pub(crate) use tokio_host::TokioHost;
pub(crate) use world::{NEVER_CLAIMED, State, World, opening};

use std::future::Future;
use std::sync::Arc;
use windlass_durable::{AnyWorkflow, Body, End, Error, Job, Signal, Stuck, Wf, untyped};

/// Declares jobs of one number that return a number.
macro_rules! jobs {
    ($($name:ident)*) => { $(
        #[derive(serde::Serialize, serde::Deserialize, Debug, Clone)]
        pub(crate) struct $name(pub(crate) u64);
        impl Job for $name {
            const KIND: &'static str = stringify!($name);
            type Output = u64;
        }
    )* };
}
jobs!(A B C X);

/// A message.
#[derive(serde::Serialize, serde::Deserialize, Debug, Clone, Signal)]
#[signal(crate = windlass_durable)]
pub(crate) struct Ping(pub(crate) u64);

pub(crate) type JsonResult = Result<serde_json::Value, Error>;

/// A workflow without input.
pub(crate) fn wf<F, Fut>(code: F) -> Arc<dyn AnyWorkflow>
where
    F: Fn(Wf) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = JsonResult> + Send + 'static,
{
    untyped("test@1", move |wf, _| code(wf))
}

/// A world in which every commit is followed by a replay.
pub(crate) fn world(workflow: Arc<dyn AnyWorkflow>) -> World {
    let mut world = World::new(workflow, &serde_json::Value::Null);
    world.shadow = true;
    world
}

#[track_caller]
pub(crate) fn stuck(state: State) -> Stuck {
    match state {
        State::Stuck(stuck) => {
            println!("{stuck}\n");
            stuck
        }
        other => panic!("not stuck: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn value(state: State) -> serde_json::Value {
    match state {
        State::Ended(End::Ok(body)) => body.read().unwrap(),
        other => panic!("no value: {other:?}"),
    }
}

pub(crate) fn body<T: serde::Serialize + ?Sized>(value: &T) -> Body {
    Body::of(value).unwrap()
}

/// `SplitMix64`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(7, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Randomness from a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % n.max(1)
    }

    pub(crate) fn usize(&mut self, n: u64) -> usize {
        usize::try_from(self.below(n)).unwrap()
    }
}
