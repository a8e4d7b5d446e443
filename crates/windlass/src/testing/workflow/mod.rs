//! Tests of durable workflows without a store and without real time.
//!
//! A simulation feeds the executor with what an engine would feed it with: ends of jobs, which mocks decide, messages at virtual
//! times, timers. It commits every record by itself, so any prefix of a history can be opened again.

mod attempts;
mod commit;
mod ended;
mod host;
mod mock;
mod replay;
mod report;
mod run;
mod schedule;
mod simulation;
mod steps;
mod test;
mod verify;

pub use ended::{Waiting, WorkflowRun};
pub use mock::Outside;
pub use test::WorkflowTest;
