//! Background jobs that are never lost.

/// `Debug` of types whose fields have none: the name alone.
macro_rules! opaque_debug {
    ($type:ident) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($type))
            }
        }
    };
}

#[cfg(feature = "artifacts")]
pub mod artifacts;
mod client;
#[cfg(all(unix, feature = "commands"))]
pub mod command;
mod context;
pub mod durable;
mod error;
pub mod graph;
mod handler;
mod job;
#[cfg(feature = "tower")]
pub mod layers;
pub mod maintenance;
pub mod observe;
mod open;
mod operate;
mod repeat;
pub mod runs;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use client::{Client, Ticket, Waited};
pub use context::{Ctx, FromContext, Needed, State};
pub use error::{JobError, Then};
pub use handler::{Answer, BatchAnswer, BatchHandler, BlockingHandler, Handler, Item};
pub use job::{Job, Options};
pub use open::open;
pub use windlass_core::{self as core, Error, Result};
#[cfg(feature = "macros")]
pub use windlass_macros::{Job, handler};
pub use worker::{Health, Stopper, Worker, WorkerBuilder};

/// What `#[handler]` checks.
#[doc(hidden)]
pub mod __private {
    use crate::{Answer, FromContext, Job};

    pub fn is_job<J: Job>() {}
    pub fn is_asked_for<A: FromContext>() {}
    pub fn is_answer<J: Job, A: Answer<J::Output>>() {}
    pub fn is_send(_: impl Send) {}
}

/// The guides' examples, compiled and run.
#[cfg(all(doctest, feature = "sqlite", feature = "macros"))]
mod guide {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[cfg(all(unix, feature = "commands"))]
    #[doc = include_str!("../../../docs/guide/commands.md")]
    mod commands {}
    #[cfg(feature = "artifacts")]
    #[doc = include_str!("../../../docs/guide/artifacts.md")]
    mod artifacts {}
    #[doc = include_str!("../../../docs/guide/dedup.md")]
    mod dedup {}
    #[cfg(feature = "testing")]
    #[doc = include_str!("../../../docs/guide/durable.md")]
    mod durable {}
    #[doc = include_str!("../../../docs/guide/durable-for-temporal-users.md")]
    mod durable_for_temporal_users {}
    #[doc = include_str!("../../../docs/guide/flows.md")]
    mod flows {}
    #[doc = include_str!("../../../docs/guide/groups.md")]
    mod groups {}
    #[doc = include_str!("../../../docs/guide/jobs.md")]
    mod jobs {}
    #[doc = include_str!("../../../docs/guide/retries.md")]
    mod retries {}
    #[cfg(feature = "yaml")]
    #[doc = include_str!("../../../docs/guide/runs.md")]
    mod runs {}
    #[doc = include_str!("../../../docs/guide/schedules.md")]
    mod schedules {}
    #[cfg(feature = "testing")]
    #[doc = include_str!("../../../docs/guide/testing.md")]
    mod testing {}
}
