//! Polls the code until nothing is woken any more.

use super::{Run, Task};
use crate::exec::context::{PollGuard, panic_text};
use crate::exec::wakers::{TaskId, TaskWaker};
use crate::exec::{POLLS_MAX, lock};
use crate::stuck::Stuck;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

type Panic = Box<dyn Any + Send>;

impl Run {
    /// Polls until nothing is woken any more, and records what was decided.
    pub(super) fn settle(&mut self) -> Result<(), Stuck> {
        let mut polls = 0;
        loop {
            self.collect_tasks();
            if let Some(reason) = self.shared.queue.foreign() {
                return Err(Stuck::Foreign(reason));
            }
            let Some(task) = self.shared.queue.pop_task() else { break };
            polls += 1;
            if polls > POLLS_MAX {
                let place = self.shared.last_place();
                return Err(Stuck::Livelock(format!("livelock: after {place} the code wakes itself again and again")));
            }
            let polled = if task == 0 { self.poll_root() } else { self.poll_task(task) };
            let mut state = lock(&self.shared.state);
            if let Some(fault) = state.fault.take() {
                // A misuse panics, too, and is named by itself.
                return Err(fault);
            }
            let is_closing = state.closing.is_some();
            drop(state);
            polled.map_err(|panic| Stuck::Panic(panic_text(panic.as_ref())))?;
            if is_closing {
                break;
            }
        }
        self.finish_turn()
    }

    fn poll_root(&mut self) -> Result<(), Panic> {
        self.root_waker.queued.store(false, Ordering::Release);
        let Some(root) = self.root.as_mut() else { return Ok(()) };
        let waker = Waker::from(self.root_waker.clone());
        let _here = PollGuard::enter(&self.shared, &self.root_scope, 0);
        let polled = catch_unwind(AssertUnwindSafe(|| root.as_mut().poll(&mut Context::from_waker(&waker))))?;
        let Poll::Ready(result) = polled else { return Ok(()) };
        self.result = Some(result);
        let root = self.root.take();
        catch_unwind(AssertUnwindSafe(|| drop(root)))
    }

    fn poll_task(&mut self, id: TaskId) -> Result<(), Panic> {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.waker.queued.store(false, Ordering::Release);
        let Some(mut future) = task.future.take() else { return Ok(()) };
        let waker = Waker::from(task.waker.clone());
        let _here = PollGuard::enter(&self.shared, &task.scope, task.node);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => Some(future),
                // The future is dropped in here, where its destructors may panic.
                Poll::Ready(()) => None,
            }
        }))?;
        match polled {
            Some(future) => task.future = Some(future),
            None => drop(self.tasks.remove(&id)),
        }
        Ok(())
    }

    /// Takes over the tasks that the code spawned, and drops those that it gave up.
    pub(super) fn collect_tasks(&mut self) {
        loop {
            let mut state = lock(&self.shared.state);
            let (spawned, aborted) = (std::mem::take(&mut state.spawned), std::mem::take(&mut state.aborted));
            drop(state);
            if spawned.is_empty() && aborted.is_empty() {
                return;
            }
            for new in spawned {
                let waker = TaskWaker::queued(&self.shared.queue, new.id);
                let task = Task { future: Some(new.future), scope: new.scope, node: new.node, waker };
                self.tasks.insert(new.id, task);
            }
            for id in aborted {
                if let Some(task) = self.tasks.remove(&id) {
                    let _here = PollGuard::enter(&self.shared, &task.scope.clone(), task.node);
                    // The task was given up: a panic in its destructors decides nothing.
                    drop(catch_unwind(AssertUnwindSafe(|| drop(task))));
                }
            }
        }
    }
}
