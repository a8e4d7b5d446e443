//! What every measurement of Windlass shares: the floors, a counting store, medians, and one form for the results.
//!
//! Only ratios mean anything: the machine's speed moves from minute to minute, so both sides of a ratio are measured one
//! after the other in one run.

mod counting;
mod direct;
pub mod floor;
mod ground;
mod line;
mod meter;
mod server;
mod time;

pub use counting::{Counting, Ended};
pub use direct::Direct;
pub use floor::{Floor, FloorError};
pub use ground::Ground;
pub use line::{Figure, Line};
pub use meter::{Meter, Spending};
pub use server::{Reading, Server, Spent, own_name};
pub use time::{Pace, Samples, Stopwatch, median};
