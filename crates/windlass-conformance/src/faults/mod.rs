//! A store that fails: a decorator under which the promises of the contract must still hold.
//!
//! Every call goes through a seeded [`FaultPlan`], which lets it pass, refuses it before it is applied
//! (`Unavailable`), applies it and loses the reply (`Unknown`), or holds it back for a while, so that calls overtake one
//! another. The decorator implements every method of every trait without a default, so a new method does not compile
//! until it is listed here, and [`Method::ALL`] then makes the random sequences reach it.

mod decorator;
mod fleet;
mod plan;

pub use decorator::{Faulty, Method};
pub(crate) use fleet::CASES;
pub use plan::{Fault, FaultPlan};
