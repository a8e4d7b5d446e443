//! Background jobs that are never lost.

mod client;
mod context;
mod error;
mod handler;
mod job;
pub mod maintenance;
mod open;
mod worker;

pub use client::{Client, Ticket, Waited};
pub use context::{Ctx, FromContext, State};
pub use error::{JobError, Then};
pub use handler::{Answer, Handler};
pub use job::{Job, Options};
pub use open::open;
pub use windlass_core::{self as core, Error, Result};
#[cfg(feature = "macros")]
pub use windlass_macros::Job;
pub use worker::{Stopper, Worker, WorkerBuilder};
