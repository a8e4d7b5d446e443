//! Graph workflows: from a file or a builder to what the engine runs.

pub mod builder;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use builder::{BuildError, GraphBuilder, NodeBuilder, NodeRef};
pub use windlass_core::graph::{Accepts, Graph, Matrix, Need, Node, NodeJob, Source, Work, foresee};
