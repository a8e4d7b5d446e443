//! What every measurement of Windlass shares: the floors, a counting store, medians, and one form for the results.
//!
//! Only ratios mean anything: the machine's speed moves from minute to minute, so both sides of a ratio are measured one
//! after the other in one run.

mod counting;
pub mod floor;
mod ground;
mod line;
mod time;

pub use counting::{Counting, Ended};
pub use floor::{Floor, FloorError};
pub use ground::Ground;
pub use line::{Figure, Line};
pub use time::{Pace, Samples, Stopwatch, median};
