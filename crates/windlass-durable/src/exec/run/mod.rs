//! A run in memory.

mod close;
mod event;
mod poll;
mod replay;
mod turn;

use super::context::{PollGuard, install_panic_hook};
use super::journal::Journal;
use super::wakers::{TaskId, TaskWaker, WakeQueue};
use super::{BoxFuture, CancelTarget, Host, Item, Limits, NodeId, Scope, Shared, State, lock};
use crate::record::{End, Key, Name, OpKind, Record, SourceLine};
use crate::retry::RunRetry;
use crate::stuck::Stuck;
use crate::workflow::{AnyWorkflow, Failure, RootFuture};
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use windlass_core::id::RunId;
use windlass_core::time::Timestamp;

/// What is needed to open a run.
#[derive(Clone)]
pub struct Opening {
    /// The code.
    pub workflow: Arc<dyn AnyWorkflow>,
    /// The id of the run.
    pub id: RunId,
    /// The input of the segment, JSON.
    pub input: Bytes,
    /// When the run was created. It is the time of the first event, so that a late start does not move the timers.
    pub created_at: Timestamp,
    /// The surroundings.
    pub host: Arc<dyn Host>,
    /// Bounds of values.
    pub limits: Limits,
    /// The number of the first record of `history`: where the segment starts.
    pub first: u64,
    /// The records of the segment; empty for a run that has not started.
    pub history: Vec<Record>,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({}, {}, {} records from {})", self.id, self.workflow.kind(), self.history.len(), self.first)
    }
}

/// What a run is opened with beside its code and its history.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The time of the store; see [`Run::set_clock`].
    pub clock: Timestamp,
    /// How often the code is started again when it fails. A segment that is replayed to its end ends as it is recorded.
    pub retry: RunRetry,
}

/// A task of the run: a future that was spawned on a `JoinSet`.
struct Task {
    /// `None` while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    scope: Arc<Scope>,
    node: NodeId,
    waker: Arc<TaskWaker>,
}

/// One run in memory: the futures of its code and everything they wait for.
///
/// After an error the state is undefined; drop the run and open it again from its stored history.
pub struct Run {
    shared: Arc<Shared>,
    workflow: Arc<dyn AnyWorkflow>,
    input: Bytes,
    created_at: Timestamp,
    has_started: bool,
    root: Option<RootFuture>,
    root_scope: Arc<Scope>,
    root_waker: Arc<TaskWaker>,
    tasks: HashMap<TaskId, Task>,
    result: Option<Result<crate::record::Body, Failure>>,
}

/// An operation that the code waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingOp {
    /// The kind of operation.
    pub kind: OpKind,
    /// The kind of the job, or the name of the workflow, step or signal.
    pub name: Name,
    /// Where the code made it.
    pub place: SourceLine,
    /// The number of its command, if it has one.
    pub number: Option<u64>,
    /// When it fires, if it is a timer.
    pub until: Option<Timestamp>,
}

/// A handle to read the state of a run that another thread polls.
#[derive(Clone)]
pub struct RunProbe(Arc<Shared>);

impl RunProbe {
    /// The last place at which the code used its `Wf`: where a thread that does not return was last seen.
    pub fn last_place(&self) -> String {
        self.0.last_place()
    }
}

impl fmt::Debug for RunProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunProbe({})", self.0.id)
    }
}

impl Run {
    /// Replays a history. It may end in the middle of a turn: the first turn then contains the rest.
    pub fn open(opening: Opening) -> Result<Self, Stuck> {
        Self::open_observed(opening, |_| ())
    }

    /// Like [`open`](Self::open), and hands out a probe before the code is replayed, which may take long or block.
    pub fn open_observed(opening: Opening, observe: impl FnOnce(RunProbe)) -> Result<Self, Stuck> {
        Self::open_with(opening, RunOptions::default(), observe)
    }

    /// Like [`open_observed`](Self::open_observed), with options.
    pub fn open_with(opening: Opening, options: RunOptions, observe: impl FnOnce(RunProbe)) -> Result<Self, Stuck> {
        let RunOptions { clock, retry } = options;
        install_panic_hook();
        let Opening { workflow, id, input, created_at, host, limits, first, history } = opening;
        let queue = Arc::new(WakeQueue::new(host.clone(), id));
        let journal = Journal::new(first, history, host.build());
        let state = Mutex::new(State { journal, clock, retry, ..State::default() });
        let root_waker = Arc::new(TaskWaker { queue: queue.clone(), task: 0, queued: false.into() });
        let shared = Arc::new(Shared { id, queue, state, host, limits });
        let mut run = Self {
            shared,
            workflow,
            input,
            created_at,
            has_started: false,
            root: None,
            root_scope: Scope::root(),
            root_waker,
            tasks: HashMap::new(),
            result: None,
        };
        observe(run.probe());
        run.replay()?;
        Ok(run)
    }

    /// The id of the run.
    pub fn id(&self) -> RunId {
        self.shared.id
    }

    /// The number of the next record.
    pub fn history_len(&self) -> u64 {
        lock(&self.shared.state).journal.len
    }

    /// A local step is open. The lease must be renewed while it runs.
    pub fn has_steps(&self) -> bool {
        !lock(&self.shared.state).steps.open.is_empty()
    }

    /// A local step has begun and has not ended.
    pub fn has_begun_steps(&self) -> bool {
        let state = lock(&self.shared.state);
        state.steps.open.values().any(|id| !state.steps.unbegun.contains(id))
    }

    /// The run waits for this job or child.
    pub fn awaits(&self, target: &CancelTarget) -> bool {
        let state = lock(&self.shared.state);
        state.ops.number_of(target).is_some() || state.waited.values().any(|waited| waited == target)
    }

    /// The jobs and children that the run waits for.
    pub fn awaited(&self) -> Vec<CancelTarget> {
        let state = lock(&self.shared.state);
        state.ops.targets().chain(state.waited.values().copied()).collect()
    }

    /// The run waits for timers and messages alone.
    pub fn sleeps(&self) -> bool {
        let state = lock(&self.shared.state);
        state.steps.open.is_empty() && state.waited.is_empty() && state.ops.targets().next().is_none()
    }

    /// A local step is ready to begin or to go on: [`poll_steps`](Self::poll_steps) would make progress.
    pub fn steps_woken(&self) -> bool {
        let has_unbegun = !lock(&self.shared.state).steps.unbegun.is_empty();
        // A step that is gone may have been woken before.
        self.has_steps() && (has_unbegun || self.shared.queue.has_steps())
    }

    /// When the next timer fires, or the code starts.
    pub fn next_timer(&self) -> Option<Timestamp> {
        if !self.has_started {
            return Some(self.starts_at());
        }
        lock(&self.shared.state).ops.next_timer().map(|((at, ..), _)| at)
    }

    /// Sets the time of the store, from which the timeouts of calls are counted if the run is behind it.
    pub fn set_clock(&mut self, now: Timestamp) {
        let mut state = lock(&self.shared.state);
        state.clock = state.clock.max(now);
    }

    /// The number of the attempt, from 1.
    pub fn attempt(&self) -> u32 {
        lock(&self.shared.state).failed_attempts + 1
    }

    /// The code has started.
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// The deadline of the run has passed, and a record says so.
    pub fn is_late(&self) -> bool {
        lock(&self.shared.state).is_late
    }

    /// How the segment ended, once it has.
    pub fn ended(&self) -> Option<End> {
        lock(&self.shared.state).ended.clone()
    }

    /// Messages that were delivered and not received, oldest first for each name, as items without a number.
    pub fn unread_signals(&self) -> Vec<Item> {
        let state = lock(&self.shared.state);
        let (at, unread) = (state.now, state.unread());
        drop(state);
        unread.into_iter().map(|(name, message)| event::item_of(at, &name, message)).collect()
    }

    /// Differences between code and history that were tolerated.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.shared.state).journal.warnings.clone()
    }

    /// At most `max` operations that the code waits for, in the order in which they were made.
    pub fn pending(&self, max: usize) -> Vec<PendingOp> {
        let state = lock(&self.shared.state);
        let mut open: Vec<_> = state.ops.iter().filter(|op| op.is_open()).collect();
        if open.len() > max {
            open.select_nth_unstable_by_key(max, |op| op.order);
            open.truncate(max);
        }
        open.sort_by_key(|op| op.order);
        let pending = open.into_iter().map(|op| PendingOp {
            kind: op.kind,
            name: op.name.clone(),
            place: op.place.into(),
            number: op.number,
            until: op.until,
        });
        pending.collect()
    }

    /// The keys of the local steps that are open.
    pub fn open_steps(&self) -> Vec<Key> {
        lock(&self.shared.state).steps.open.keys().cloned().collect()
    }

    /// About how much memory the run takes, without what the code allocates for itself.
    pub fn memory_bytes(&self) -> usize {
        let state = lock(&self.shared.state);
        let code = self.root.as_ref().map_or(0, |root| size_of_val(&**root));
        let tasks: usize = self.tasks.values().map(|task| task.future.as_ref().map_or(0, |f| size_of_val(&**f))).sum();
        let fixed = size_of::<Self>() + size_of::<Shared>() + size_of::<State>() + size_of::<Scope>();
        let parts = state.ops.memory_bytes() + state.tree.memory_bytes() + state.journal.memory_bytes();
        fixed + code + tasks + self.tasks.len() * size_of::<Task>() + parts + self.input.len()
    }

    /// A handle for other threads.
    pub fn probe(&self) -> RunProbe {
        RunProbe(self.shared.clone())
    }

    /// Makes the futures of the run inert and drops them.
    fn drop_code(&mut self) {
        // First, so that destructors record nothing and wake nothing.
        self.shared.queue.dead.store(true, Ordering::Release);
        let (root, tasks) = (self.root.take(), std::mem::take(&mut self.tasks));
        let mut state = lock(&self.shared.state);
        let (spawned, undo) = (std::mem::take(&mut state.spawned), std::mem::take(&mut state.undo));
        drop(state);
        let _here = PollGuard::enter(&self.shared, &self.root_scope, 0);
        // A panic in a destructor has no effect on a run that is over.
        drop(catch_unwind(AssertUnwindSafe(|| drop(root))));
        drop(catch_unwind(AssertUnwindSafe(|| drop((tasks, spawned, undo)))));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.drop_code();
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({}, {}, {})", self.shared.id, self.workflow.kind(), lock(&self.shared.state).waits())
    }
}
