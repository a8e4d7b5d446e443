//! `JoinSet`: tasks of a run.

use super::arms::{Arms, arm_name};
use crate::exec::{Spawned, current, lock};
use crate::record::OpKind;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

struct Joined<T> {
    done: VecDeque<T>,
    running: Vec<u32>,
    waker: Option<Waker>,
}

/// Tasks of a run. They go on whether or not `join_next` is awaited. Dropping the set drops them.
pub struct JoinSet<T> {
    joined: Arc<Mutex<Joined<T>>>,
    arms: Arms,
    spawned: usize,
}

impl<T: Send + 'static> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// An empty set. Tasks belong to the scope in which the set is made.
    pub fn new() -> Self {
        let joined = Joined { done: VecDeque::new(), running: Vec::new(), waker: None };
        Self { joined: Arc::new(Mutex::new(joined)), arms: Arms::new(OpKind::Set), spawned: 0 }
    }

    /// Starts a task. It is polled after the code that spawned it. Outside of the code of a run this does nothing.
    pub fn spawn(&mut self, future: impl Future<Output = T> + Send + 'static) {
        let name = arm_name(self.spawned);
        self.spawned += 1;
        let (Some(ctx), Some(scope)) = (current(), self.arms.arm(name).into_scope()) else { return };
        let mut state = lock(&ctx.shared.state);
        let id = state.next_task();
        lock(&self.joined).running.push(id);
        let joined = self.joined.clone();
        let future = Box::pin(async move {
            let output = future.await;
            finish(&joined, id, output);
        });
        state.spawned.push(Spawned { id, scope, node: ctx.node, future });
    }

    /// How many tasks are running, or done and not joined.
    pub fn len(&self) -> usize {
        let joined = lock(&self.joined);
        joined.running.len() + joined.done.len()
    }

    /// True when all tasks are done and joined.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next task that is done; `None` when the set is empty. It may be dropped at any time; no output is lost.
    pub async fn join_next(&mut self) -> Option<T> {
        poll_fn(|cx| {
            let mut joined = lock(&self.joined);
            if let Some(output) = joined.done.pop_front() {
                return Poll::Ready(Some(output));
            }
            if joined.running.is_empty() {
                return Poll::Ready(None);
            }
            joined.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

fn finish<T>(joined: &Mutex<Joined<T>>, id: u32, output: T) {
    let waker = {
        let mut joined = lock(joined);
        joined.running.retain(|running| *running != id);
        joined.done.push_back(output);
        joined.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        let running = std::mem::take(&mut lock(&self.joined).running);
        if let Some(ctx) = current() {
            lock(&ctx.shared.state).aborted.extend(running);
        }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinSet")
    }
}
