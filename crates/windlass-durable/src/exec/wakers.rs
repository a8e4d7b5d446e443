//! Wakers of the code and of local steps.

use super::context::{is_in_step, is_polled_here};
use super::{Host, OpId, lock};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use windlass_core::id::RunId;

/// The number of a task of the run; 0 is the workflow itself.
pub(super) type TaskId = u32;

/// What is woken in one run.
pub(crate) struct WakeQueue {
    /// The run was dropped or has ended: its futures are inert.
    pub(super) dead: AtomicBool,
    ready: Mutex<Ready>,
    host: Arc<dyn Host>,
    run: RunId,
}

#[derive(Default)]
struct Ready {
    tasks: VecDeque<TaskId>,
    steps: BTreeSet<OpId>,
    foreign: Option<String>,
}

impl WakeQueue {
    pub(super) fn new(host: Arc<dyn Host>, run: RunId) -> Self {
        Self { dead: AtomicBool::new(false), ready: Mutex::default(), host, run }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(super) fn push_task(&self, task: TaskId) {
        lock(&self.ready).tasks.push_back(task);
    }

    pub(super) fn pop_task(&self) -> Option<TaskId> {
        lock(&self.ready).tasks.pop_front()
    }

    /// The first wake that came from outside of the run.
    pub(super) fn foreign(&self) -> Option<String> {
        lock(&self.ready).foreign.clone()
    }

    pub(super) fn take_steps(&self) -> BTreeSet<OpId> {
        std::mem::take(&mut lock(&self.ready).steps)
    }

    pub(super) fn has_steps(&self) -> bool {
        !lock(&self.ready).steps.is_empty()
    }
}

/// The waker of the workflow or of one of its tasks.
pub(super) struct TaskWaker {
    pub(super) queue: Arc<WakeQueue>,
    pub(super) task: TaskId,
    pub(super) queued: AtomicBool,
}

impl TaskWaker {
    /// A waker of a task that stands in the queue already.
    pub(super) fn queued(queue: &Arc<WakeQueue>, task: TaskId) -> Arc<Self> {
        queue.push_task(task);
        Arc::new(Self { queue: queue.clone(), task, queued: AtomicBool::new(true) })
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queue.is_dead() {
            return;
        }
        let is_here = is_polled_here(&self.queue);
        if !is_here || is_in_step() {
            let by = if is_here { "from within a local step" } else { "from outside of its run" };
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("(no name)");
            let reason = format!(
                "the workflow awaits a foreign future: it was woken {by}, by the thread `{name}`; \
                 await only futures of `Wf`, and everything else inside of `wf.run`"
            );
            lock(&self.queue.ready).foreign.get_or_insert(reason);
            return;
        }
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue.push_task(self.task);
        }
    }
}

/// The waker of the future of a local step. It wakes no future of the workflow: see the rules of the executor.
pub(crate) struct StepWaker {
    pub(crate) queue: Arc<WakeQueue>,
    pub(crate) op: OpId,
    /// The future of the step has to be polled.
    pub(crate) woken: AtomicBool,
}

impl Wake for StepWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        if self.queue.is_dead() {
            return;
        }
        let is_first = {
            let mut ready = lock(&self.queue.ready);
            let is_first = ready.steps.is_empty();
            ready.steps.insert(self.op);
            is_first
        };
        if is_first {
            self.queue.host.notify(self.queue.run);
        }
    }
}
