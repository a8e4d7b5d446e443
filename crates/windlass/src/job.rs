//! Typed jobs, from the core crate.

pub use windlass_core::typed::{Job, Options};
pub(crate) use windlass_core::typed::{Names, decode, ms};
