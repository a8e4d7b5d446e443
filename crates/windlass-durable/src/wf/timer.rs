//! Timers.

use super::Wf;
use super::leaf::{Leaf, NewCommand, Next, Times};
use crate::error::Cancelled;
use crate::record::{Key, Name, OpKind, Request};
use crate::span::Span;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use windlass_core::time::Timestamp;

/// A timer. It starts at its first poll.
#[must_use = "a timer does nothing until it is awaited"]
pub struct Sleep {
    leaf: Leaf,
    key: Option<Key>,
    until: Until,
}

enum Until {
    After(u64),
    At(Timestamp),
}

impl Wf {
    /// Waits for `time`, counted from the time of the event in which the timer starts. It survives restarts; an idle run takes
    /// no memory.
    #[track_caller]
    pub fn sleep(&self, time: impl Span) -> Sleep {
        let ms = time.to_ms();
        self.timer(Until::After(ms), Location::caller())
    }

    /// Waits until a point in time. One that has passed fires at once.
    #[track_caller]
    pub fn sleep_until(&self, time: Timestamp) -> Sleep {
        self.timer(Until::At(time), Location::caller())
    }

    fn timer(&self, until: Until, place: &'static Location<'static>) -> Sleep {
        let (leaf, ctx) = self.leaf(OpKind::Sleep, place);
        Sleep { leaf, key: Some(Self::key(ctx.as_ref(), OpKind::Sleep, Name::Borrowed(""))), until }
    }
}

impl Future for Sleep {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.leaf.poll(cx) {
            Next::First(ctx) => {
                if let Some(key) = this.key.take() {
                    let until = |now: Timestamp| match this.until {
                        Until::After(ms) => now.plus_ms(ms),
                        Until::At(time) => time,
                    };
                    let make = |_, times: Times| Ok((Request::Sleep { until: until(times.now) }, None));
                    if this.leaf.begin(&ctx, cx, NewCommand { key, hash: 0 }, make).is_err() {
                        return Poll::Ready(Err(Cancelled));
                    }
                }
                Poll::Pending
            }
            Next::Done(outcome) => Poll::Ready(outcome.map(drop).map_err(|_| Cancelled)),
            Next::Open | Next::Dead => Poll::Pending,
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleep")
    }
}
