//! `join_all`: many arms, of which only the woken ones are polled.

use super::arms::{ArmScope, Arms, arm_name};
use crate::exec::lock;
use crate::record::{Name, OpKind};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Woken {
    arms: Mutex<VecDeque<usize>>,
    parent: Mutex<Option<Waker>>,
}

struct ArmWaker {
    woken: Arc<Woken>,
    arm: usize,
    queued: AtomicBool,
}

impl Wake for ArmWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            lock(&self.woken.arms).push_back(self.arm);
        }
        let parent = lock(&self.woken.parent).clone();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

struct Arm<F> {
    future: Pin<Box<F>>,
    scope: ArmScope,
    waker: Arc<ArmWaker>,
}

/// The future of [`join_all`].
#[must_use = "a future does nothing until it is awaited"]
pub struct JoinAll<F: Future> {
    arms: Vec<Option<Arm<F>>>,
    outputs: Vec<Option<F::Output>>,
    missing: usize,
    woken: Arc<Woken>,
}

impl<F: Future> Unpin for JoinAll<F> {}

/// Waits for all futures and returns their outputs in the same order. Each arm has a scope by its position.
pub fn join_all<I>(futures: I) -> JoinAll<I::Item>
where
    I: IntoIterator,
    I::Item: Future,
{
    join_all_keyed(futures.into_iter().enumerate().map(|(position, future)| (arm_name(position), future)))
}

/// The same with a scope by a key for each arm, so that the identity of operations does not depend on the order of the arms.
pub fn join_all_keyed<K: Into<Name>, F: Future>(futures: impl IntoIterator<Item = (K, F)>) -> JoinAll<F> {
    let scopes = Arms::new(OpKind::Join);
    let woken = Arc::new(Woken::default());
    let mut arms = Vec::new();
    for (arm, (key, future)) in futures.into_iter().enumerate() {
        let waker = Arc::new(ArmWaker { woken: woken.clone(), arm, queued: AtomicBool::new(true) });
        lock(&woken.arms).push_back(arm);
        arms.push(Some(Arm { future: Box::pin(future), scope: scopes.arm(key), waker }));
    }
    let outputs = arms.iter().map(|_| None).collect();
    JoinAll { missing: arms.len(), arms, outputs, woken }
}

impl<F: Future> Future for JoinAll<F> {
    type Output = Vec<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        {
            let mut parent = lock(&this.woken.parent);
            if !parent.as_ref().is_some_and(|parent| parent.will_wake(cx.waker())) {
                *parent = Some(cx.waker().clone());
            }
        }
        loop {
            let next = lock(&this.woken.arms).pop_front();
            let Some(next) = next else { break };
            let Some(slot) = this.arms.get_mut(next) else { continue };
            let Some(arm) = slot.as_mut() else { continue };
            arm.waker.queued.store(false, Ordering::Release);
            let waker = Waker::from(arm.waker.clone());
            if let Poll::Ready(output) = arm.scope.poll(arm.future.as_mut(), &mut Context::from_waker(&waker)) {
                *slot = None;
                this.outputs[next] = Some(output);
                this.missing -= 1;
            }
        }
        if this.missing > 0 {
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut this.outputs).into_iter().flatten().collect())
    }
}

impl<F: Future> fmt::Debug for JoinAll<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinAll({} of {})", self.missing, self.arms.len())
    }
}
