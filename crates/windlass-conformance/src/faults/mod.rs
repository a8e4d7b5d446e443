//! A store that fails: a decorator under which the promises of the contract must still hold.
//!
//! Every call goes through a seeded [`FaultPlan`], which lets it pass, refuses it before it is applied
//! (`Unavailable`), applies it and loses the reply (`Unknown`), or holds it back for a while, so that calls overtake one
//! another. The decorator is one function over every call of the contract, and [`Method::ALL`] makes the random sequences reach
//! each method.

mod decorator;
mod fleet;
mod plan;

pub use decorator::Faulty;
pub(crate) use fleet::CASES;
pub use plan::{Fault, FaultPlan};
pub use windlass_core::store::Method;
