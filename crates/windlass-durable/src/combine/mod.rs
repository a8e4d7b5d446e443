//! Combinators that give their arms a scope, and poll them in an order that does not depend on chance.

mod arms;
mod join_all;
mod join_set;
mod macros;

pub use arms::{ArmScope, Arms, poll_arm};
pub use join_all::{JoinAll, join_all, join_all_keyed};
pub use join_set::JoinSet;
