//! Promises: values that are delivered from outside by a token.

use super::Wf;
use super::leaf::{Leaf, Next};
use crate::error::Cancelled;
use crate::exec::lock;
use crate::record::{Name, OpKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use windlass_core::id::RunId;

/// Identifies a promise of a run for those that may resolve it. In text and JSON it is `<run id>.<16 hexadecimal digits>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PromiseToken {
    /// The run.
    pub run: RunId,
    /// The promise within the run.
    pub token: u64,
}

impl fmt::Display for PromiseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}", self.run, self.token)
    }
}

impl FromStr for PromiseToken {
    type Err = windlass_core::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || windlass_core::Error::invalid("promise", "a promise is <run id>.<16 hexadecimal digits>");
        let (run, token) = text.split_once('.').filter(|(_, token)| token.len() == 16).ok_or_else(wrong)?;
        let token = u64::from_str_radix(token, 16).map_err(|_| wrong())?;
        Ok(Self { run: run.parse()?, token })
    }
}

impl TryFrom<String> for PromiseToken {
    type Error = windlass_core::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PromiseToken> for String {
    fn from(token: PromiseToken) -> Self {
        token.to_string()
    }
}

/// A value that is delivered once, from outside of the run. It can be resolved before it is awaited; a second resolution does nothing.
#[must_use = "a promise does nothing until it is awaited"]
pub struct Promise<T> {
    leaf: Leaf,
    token: u64,
    value: PhantomData<fn() -> T>,
}

impl Wf {
    /// Makes a promise. Its token is passed to the resolver, for example in the input of a call.
    #[track_caller]
    pub fn promise<T: DeserializeOwned>(&self) -> Promise<T> {
        let (leaf, ctx) = self.leaf(OpKind::Promise, Location::caller());
        let key = Self::key(ctx.as_ref(), OpKind::Promise, Name::Borrowed(""));
        let mut state = lock(&self.shared.state);
        // Hashed strongly: the token is a proof, and one must not lead to another.
        let token = token(state.seed, &key.to_string());
        state.promises.entry(token).or_insert(None);
        drop(state);
        Promise { leaf, token, value: PhantomData }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of the bits are enough")]
fn token(seed: u64, key: &str) -> u64 {
    RunId::named(&format!("promise {seed:016x} {key}")).bits() as u64
}

impl<T> Promise<T> {
    /// The token by which the promise is resolved.
    pub fn token(&self) -> PromiseToken {
        PromiseToken { run: self.leaf.shared.id, token: self.token }
    }
}

impl<T: DeserializeOwned> Future for Promise<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let next = this.leaf.poll(cx);
        let shared = this.leaf.shared.clone();
        let mut state = lock(&shared.state);
        match next {
            Next::Done(Err(_)) => return Poll::Ready(Err(Cancelled)),
            Next::Dead | Next::Open => return Poll::Pending,
            Next::Done(Ok(_)) => {}
            Next::First(ctx) => {
                if matches!(state.promises.get(&this.token), Some(None)) {
                    let mut op = this.leaf.new_op(&ctx, cx, Name::Borrowed(""));
                    op.token = this.token;
                    let id = this.leaf.open(&mut state, op);
                    state.promise_ops.insert(this.token, id);
                    return Poll::Pending;
                }
            }
        }
        let body = state.promises.get(&this.token).cloned().flatten();
        let origin = state.promise_origins.get(&this.token).copied().unwrap_or_default();
        drop(state);
        match body.map(|body| body.read()) {
            Some(Ok(value)) => Poll::Ready(Ok(value)),
            Some(Err(error)) => {
                this.leaf.unreadable_message::<T>(origin, &error);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}
