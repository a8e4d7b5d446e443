//! The executor: records and items in, records and requests out.
//!
//! # Rules
//!
//! - One thread polls a run at a time. One event is applied, then the code is polled until nothing is woken any more, then the
//!   next event is applied. A future completes only because of a recorded event, so the history decides every race.
//! - An operation changes its state when an event is applied, when it is polled for the first time, or when it is dropped, and
//!   never because it is polled again.
//! - The wakes of local steps do not travel through the futures of the workflow. They are collected aside and passed on by
//!   [`Run::poll_steps`], in the order in which the steps were made. Otherwise the queues inside of combinators would contain
//!   them when the next event is applied, and a replay would poll in another order.
//! - A local step begins only after everything before it was committed.
//! - No lock is held while code of the workflow runs.
//!
//! # How an engine uses it
//!
//! 1. [`Run::open`] with the stored history of the segment. An error is stored as the reason why the run is stuck, and nothing else.
//! 2. [`Run::turn`] with the items of the inbox, oldest first. It starts the code when the history is empty.
//! 3. Commit the [`Turn::chunks`] in order: records, starts, cancellations and taken items of one chunk in one atomic step.
//! 4. With [`Run::has_steps`]: [`Run::poll_steps`], commit, and again, while [`Run::steps_woken`] or the turn had records. Then
//!    wait for [`Host::notify`] or for items, and renew the lease.
//! 5. When [`Turn::ended`] is set the run is over, or the next segment starts with [`Turn::next`]. If the commit of an end is
//!    refused because messages have come, open the run again and make the turn anew: first the messages, then
//!    [`Chunk::step_ends`] of the refused chunk.
//! 6. Otherwise wait until [`Turn::wake`] or for items. The run may be dropped at any time.
//!
//! What a mistake of the code leads to is a [`Stuck`](crate::Stuck) with the place of the mistake. The executor relies on the
//! caller to commit the records of a turn before it calls [`Run::poll_steps`], and to drop the run after an error.

mod cancel_tree;
mod context;
mod host;
mod journal;
mod ops;
mod run;
mod scope;
mod shared;
mod signals;
mod state;
mod steps;
mod turn;
mod wakers;

pub use host::{Host, Limits, NoHost, derived_job_id, derived_run_id};
pub use run::{Opening, PendingOp, Run, RunOptions, RunProbe};
pub use turn::{CancelTarget, Chunk, Item, ItemBody, NextSegment, OpenWork, Start, Timeouts, Turn};

pub(crate) use cancel_tree::NodeId;
pub(crate) use context::{CancelGuard, Ctx, ScopeGuard, StepGuard, current, panic_text};
pub(crate) use journal::Replayed;
pub(crate) use ops::{NewOp, Op, OpId, OpState, TimerKind};
pub(crate) use scope::Scope;
pub(crate) use shared::Shared;
pub(crate) use signals::Origin;
pub(crate) use state::{Closing, Spawned, State, Undo};
pub(crate) use steps::EndedStep;
pub(crate) use wakers::StepWaker;

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place in the compiled code.
pub(crate) type CodePlace = &'static Location<'static>;

/// Polls after one event until the run counts as a livelock.
pub const POLLS_MAX: u64 = 10_000_000;
/// The most numbers in one record of cancelled commands.
pub const CANCELS_PER_RECORD_MAX: usize = 500;

/// Locks without regard to poisoning: the state is changed in small steps that do not panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
