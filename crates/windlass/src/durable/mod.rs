//! Durable workflows: ordinary async Rust that survives crashes, deploys and months.
//!
//! A workflow is an async function over [`Wf`]. What it asks for (jobs, timers, messages, child workflows, local steps) and what
//! became of it is recorded in the history of its run; after a crash any worker that has the code continues it from there.
//! [`WorkerBuilder::workflow`](crate::WorkerBuilder::workflow) registers the code with a worker, and
//! [`Client::start`](crate::Client::start) starts a run.
//!
//! The executor is the crate `windlass-durable`, which this module re-exports: rules for workflow code are described there.
//!
//! States of a run in memory: replayed from history on a thread that polls nothing else (`threads.rs`), decided about while its lease is
//! held, and dropped or cached afterwards. Nothing that is not committed survives: after any error the run is opened again from
//! its stored history.

mod client;
mod commit;
mod decision;
mod discard;
mod host;
mod item;
mod kind;
mod length;
mod lost;
mod message;
mod replay;
mod resume;
mod schedule;
mod start;
mod step;
mod threads;
mod untyped;
mod unwinding;

pub(crate) use client::wait_for_end;
pub use client::{RunFailure, RunHandle};
pub use discard::{Discard, StoredMessage};
pub use replay::{Replay, ReplayError, Replayed};
pub use schedule::{
    LABEL_SCHEDULE, LABEL_TICK, ScheduleWorkflow, ScheduledStart, StartWorkflow, WorkflowStarted, start_workflow,
};
pub use start::{ReusePolicy, Start};
pub use untyped::{UntypedSignal, UntypedStart, kind_named, timeout_ms_of};
pub use windlass_durable::{
    BoxError, Call, CallError, CancelHandle, Cancelled, Child, Error, ErrorClass, JoinSet, ParentClosePolicy,
    PendingOp, Promise, PromiseToken, Recv, RunRetry, Running, Saga, Scoped, Side, Signal, Signals, Sleep, Span, Step,
    Stuck, Unreadable, Wf, Workflow, join, join_all, join_all_keyed, kind_of, record, select, typed, typed_of, untyped,
    workflow,
};

pub(crate) use host::Executor;
pub(crate) use kind::CodeRuns;
pub(crate) use resume::{Resumer, stuck_under};
pub(crate) use unwinding::{UNWINDS, check_unwinds};
pub use windlass_durable::AnyWorkflow;

#[doc(hidden)]
pub use windlass_durable::__private;
