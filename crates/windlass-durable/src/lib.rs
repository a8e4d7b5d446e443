//! The executor of durable workflows: workflow, history and new items in; decisions out. No store, no clock, no runtime.
//!
//! A workflow is an async function over [`Wf`]. The executor polls it, records what it asks for and what happened to it, and
//! after a restart polls it again against the recorded history until it stands where it stood. [`Run`] is one run in memory:
//! [`Run::open`] replays, [`Run::turn`] takes new items, [`Run::poll_steps`] runs local steps, and each returns a [`Turn`] that
//! the caller commits. Applications use this crate as `windlass::durable`.
//!
//! ```
//! use std::time::Duration;
//! use windlass_durable::{Error, Wf};
//!
//! async fn reminder(wf: Wf, user: u64) -> Result<(), Error> {
//!     wf.sleep("30d").await?;
//!     wf.call_named("mail", user.into()).timeout("30s").attempts(5).await?;
//!     Ok(())
//! }
//! ```
//!
//! # Rules for workflow code
//!
//! The code must do the same in every replay. Time, randomness and ids come from [`Wf`]; everything else that may differ
//! belongs into [`Wf::run`] or into a job. The order of a `HashMap` differs. [`select!`], [`join!`], [`join_all`] and [`JoinSet`]
//! poll in a fixed order; so do `futures::join!`, `join_all`, `FuturesUnordered` and `buffer_unordered`, and channels and
//! semaphores of tokio inside of one run. `tokio::select!` and `futures::select!` pick at random, and `tokio::join!` rotates its
//! arms by the number of polls: these must not be used. A violation makes a run [`Stuck`], with both sides and their lines.

pub mod combine;
pub mod error;
pub mod exec;
pub mod record;
mod retry;
mod span;
mod stuck;
pub mod wf;
mod workflow;

pub use combine::{JoinAll, JoinSet, join_all, join_all_keyed};
pub use error::{BoxError, CallError, Cancelled, ERROR_BYTES_MAX, Error, ErrorClass};
pub use exec::{
    BoxFuture, CANCELS_PER_RECORD_MAX, CancelTarget, Chunk, Host, Item, ItemBody, Limits, NextSegment, NoHost,
    OpenWork, Opening, POLLS_MAX, PendingOp, Run, RunOptions, RunProbe, Start, Timeouts, Turn, derived_job_id,
    derived_run_id,
};
pub use record::{
    Body, Command, Deadlines, DecodeError, DiscardedMessage, End, Entry, Event, Key, Name, OpKind, Outcome,
    ParentClosePolicy, Record, Request, SourceLine, decode_history,
};
pub use retry::{RUN_ATTEMPTS_MAX, RunRetry};
pub use span::Span;
pub use stuck::{Side, Stuck, Unreadable};
pub use wf::{Call, CancelHandle, Child, Promise, PromiseToken, Recv, Saga, Scoped, Signals, Sleep, Step, Wf};
pub use windlass_core::typed::{Job, Options};
pub use windlass_macros::{Signal, workflow};
pub use workflow::{AnyWorkflow, Failure, RootFuture, Running, Signal, Workflow, kind_of, typed, typed_of, untyped};

/// What the macros use.
#[doc(hidden)]
pub mod __private {
    pub use crate::combine::{ArmScope, Arms, poll_arm};
    pub use crate::workflow::ResultTypes;
}
