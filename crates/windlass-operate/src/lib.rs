//! The operations library: what people see of a Windlass store, and what they ask of it.
//!
//! The command line is built on it, and so will be the server and the web page: all of them give the same answers in the
//! same words. Functions return data, with serde where programs read it. Nothing here prints, ends the process, or reads
//! from a terminal.

#![forbid(unsafe_code)]

pub mod change;
pub mod code_run;
pub mod doctor;
pub mod enqueue;
pub mod error;
pub mod explain;
pub mod follow;
pub mod graph_history;
pub mod job_input;
pub mod job_view;
pub mod layout;
pub mod names;
pub mod overview;
pub mod plan;
pub mod queue_view;
pub mod run_change;
pub mod run_view;
pub mod schedule_view;
pub mod store_url;
pub mod store_wait;
pub mod strict_json;
pub mod text;
pub mod values;

pub use error::{ErrorKind, OperateError};
