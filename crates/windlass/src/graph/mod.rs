//! Graph workflows: from a file or a builder to what the engine runs.

#[cfg(feature = "yaml")]
pub mod yaml;

pub use windlass_core::graph::{Accepts, Graph, Matrix, Need, Node, NodeJob, Source, Work, foresee};
