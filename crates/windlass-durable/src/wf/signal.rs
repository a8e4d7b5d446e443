//! Signals: messages to the run.

use super::Wf;
use super::leaf::{Leaf, Next};
use crate::error::Cancelled;
use crate::exec::lock;
use crate::record::{Body, Name, OpKind};
use crate::workflow::Signal;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A receiver of one message. A message that was handed to it and not received goes to the next receiver, so it may be dropped
/// at any time.
#[must_use = "a receiver does nothing until it is awaited"]
pub struct Recv<T> {
    leaf: Leaf,
    name: Name,
    message: PhantomData<fn() -> T>,
}

/// The messages of one type, one after the other.
#[derive(Clone, Debug)]
pub struct Signals<T> {
    wf: Wf,
    message: PhantomData<fn() -> T>,
}

impl<T: Signal> Signals<T> {
    /// Waits for the next message. It may be dropped at any time; no message is lost with it.
    #[track_caller]
    #[expect(clippy::should_implement_trait, reason = "as in receivers of channels; an iterator cannot wait")]
    pub fn next(&mut self) -> Recv<T> {
        self.wf.recv_at(Location::caller())
    }
}

impl Wf {
    /// Waits for a message of this type. Messages of one type are received in the order in which they arrived, and receivers
    /// are served in the order in which they were polled first.
    #[track_caller]
    pub fn recv<T: Signal>(&self) -> Recv<T> {
        self.recv_at(Location::caller())
    }

    fn recv_at<T: Signal>(&self, place: &'static Location<'static>) -> Recv<T> {
        let (leaf, _) = self.leaf(OpKind::Recv, place);
        Recv { leaf, name: T::NAME.into(), message: PhantomData }
    }

    /// All messages of this type, as a receiver that can be asked again and again.
    pub fn signals<T: Signal>(&self) -> Signals<T> {
        Signals { wf: self.clone(), message: PhantomData }
    }

    /// Takes a message of this type that has arrived already.
    #[track_caller]
    pub fn try_recv<T: Signal>(&self) -> Option<T> {
        let place = Location::caller();
        self.shared.check_at("try_recv", place)?;
        let body = self.shared.take_signal(&T::NAME.into())?;
        let leaf = Leaf::new(self.shared.clone(), OpKind::Recv, place);
        read(&leaf, &body)
    }
}

fn read<T: Signal>(leaf: &Leaf, body: &Body) -> Option<T> {
    match body.read() {
        Ok(message) => Some(message),
        Err(error) => {
            let origin = lock(&leaf.shared.state).received;
            leaf.unreadable_message::<T>(origin, &error);
            None
        }
    }
}

impl<T: Signal> Future for Recv<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let body = match this.leaf.poll(cx) {
            Next::Done(Err(_)) => return Poll::Ready(Err(Cancelled)),
            Next::Done(Ok(body)) => body,
            Next::Dead | Next::Open => return Poll::Pending,
            Next::First(ctx) => match this.leaf.shared.take_signal(&this.name) {
                Some(body) => body,
                None => {
                    let shared = this.leaf.shared.clone();
                    let mut state = lock(&shared.state);
                    let op = this.leaf.new_op(&ctx, cx, this.name.clone());
                    let id = this.leaf.open(&mut state, op);
                    state.signals.entry(this.name.clone()).or_default().wait(id);
                    return Poll::Pending;
                }
            },
        };
        read(&this.leaf, &body).map_or(Poll::Pending, |message| Poll::Ready(Ok(message)))
    }
}

impl<T> fmt::Debug for Recv<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recv({})", self.name)
    }
}
