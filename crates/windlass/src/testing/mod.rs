//! Tests of handlers, retries, schedules, timeouts and leases, in milliseconds.
//!
//! A [`TestBed`] is a memory store on a virtual clock. The clock is tokio's own, paused: it stands still while anything
//! runs and jumps to the next timer when all is idle. So a back-off of hours takes no time, whatever a handler awaits
//! with `tokio::time` included, and the same test does the same thing every time.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! use windlass::testing::{Faults, TestBed};
//! use windlass::{Job, JobError, Worker};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! struct Welcome { to: String }
//!
//! async fn welcome(job: Welcome) -> Result<(), JobError> {
//!     println!("welcome, {}", job.to);
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> windlass::Result<()> {
//! // In a test: #[tokio::test] async fn everybody_is_welcome() -> windlass::Result<()> {
//! let test = TestBed::new();
//! test.client().enqueue(Welcome { to: "ada".into() }).await?;
//! test.assert_enqueued::<Welcome>(|job| job.to == "ada");
//!
//! // The first attempt fails, the next one comes after its back-off. Nobody waits for it.
//! test.inject(Faults::new().fail_on_attempt(1));
//! let done = test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
//! assert_eq!((done.attempts, done.retried, done.succeeded), (2, 1, 1));
//! # Ok(())
//! # }
//! ```
//!
//! What to know: paused time needs tokio's current-thread runtime, which `#[tokio::test]` has by default. Work that is
//! not tokio's, such as a thread or a real socket, does not hold the clock: while a handler waits for it, all is idle as
//! far as tokio knows, and timeouts come early. `tokio::task::spawn_blocking` does hold it.

mod bed;
mod check;
mod clock;
mod faults;
mod one;
mod run;
mod store;
mod workflow;

pub use bed::TestBed;
pub use check::Sent;
pub use faults::Faults;
pub use one::RunOne;
pub use run::{Done, Left};
pub use workflow::{Outside, Waiting, WorkflowRun, WorkflowTest};
