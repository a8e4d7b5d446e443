//! The Redis store of Windlass: one server, a Sentinel set, or a Cluster.

mod directory;
pub mod doctor;
mod error;
mod eviction;
#[doc(hidden)]
pub mod keys;
pub mod link;
pub mod options;
mod record;
mod reply;
#[doc(hidden)]
pub mod scripts;
mod store;
mod url;
mod whole;

pub use options::{Options, Topology};
pub use store::RedisStore;
