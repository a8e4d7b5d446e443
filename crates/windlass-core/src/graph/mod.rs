//! Graphs: jobs that need each other, and the pure function that says what a run of one does next.
//!
//! A [`Graph`] is what YAML and the builder make. A [`Progress`] is where a run of it stands; it is the fold of the run's
//! [`Event`]s. [`advance()`] takes what has happened and answers the events that follow: nodes to start, nodes that are
//! skipped and why, the end of the run. It reads no clock and does no I/O, so that any process can advance any run, and
//! a crash repeats a step to the letter.

mod advance;
pub mod expr;
mod foresee;
mod model;
mod progress;
mod scope;
mod template;

#[cfg(test)]
mod advance_tests;
#[cfg(test)]
mod foresee_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod rerun_tests;

pub use advance::{Happened, advance, descendants, reruns, resume, settle};
pub use foresee::{ForeseenLabels, foresee, foresee_labels};
pub use model::{Accepts, Fault, Graph, MATRIX_MAX, Matrix, NEEDS_MAX, NODES_MAX, Need, Node, NodeJob, Source, Work};
pub use progress::{End, Event, Instance, NodeProgress, Outcome, Progress, Skip};
pub use scope::NodeScope;
pub use template::Template;
