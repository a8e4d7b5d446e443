//! Tower layers around handlers: what many handlers need and none should have to say.
//!
//! A layer is put around all handlers of a worker ([`WorkerBuilder::layer`](crate::WorkerBuilder::layer)) or around the
//! last one ([`WorkerBuilder::handler_layer`](crate::WorkerBuilder::handler_layer)). The first one added is the outermost;
//! those of a handler are inside of those of the worker. A worker without layers pays nothing for them.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//! use windlass::layers::{CatchPanic, Limit, Timeout, Trace};
//! # use windlass::testing::TestBed;
//! # use windlass::{Job, JobError, Worker};
//! # #[derive(Serialize, Deserialize, Job)]
//! # struct Welcome { to: String }
//! # #[derive(Serialize, Deserialize, Job)]
//! # struct Invoice { cents: u64 }
//! # async fn welcome(_: Welcome) -> Result<(), JobError> { Ok(()) }
//! # async fn invoice(_: Invoice) -> Result<(), JobError> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> windlass::Result<()> {
//! # let test = TestBed::new();
//! # let store = test.store();
//!
//! let provider = Limit::new(10); // both talk to the same provider: at most ten at once
//! let worker = Worker::builder(store)
//!     .layer(Trace::new())
//!     .layer(CatchPanic::new())
//!     .handle(welcome)
//!     .handler_layer(provider.clone())
//!     .handle(invoice)
//!     .handler_layer(Timeout::new(Duration::from_secs(30)))
//!     .handler_layer(provider);
//! # test.client().enqueue(Welcome { to: "ada".into() }).await?;
//! # assert_eq!(test.run_until_idle(worker).await.succeeded, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Your own is a [`tower_layer::Layer`] of a [`HandlerService`], or of any `S: Service<Ctx, Response = Returned, Error =
//! JobError>`: the request is the [`Ctx`], the response what the handler returned, the error its [`JobError`].

mod catch_panic;
mod limit;
mod service;
mod timeout;
mod trace;

pub use catch_panic::CatchPanic;
pub use limit::Limit;
pub(crate) use service::{Around, around};
pub use service::{HandlerFuture, HandlerService, Layered, Returned};
pub use timeout::Timeout;
pub use trace::Trace;
pub use {tower_layer, tower_service};

use crate::{Ctx, JobError};
