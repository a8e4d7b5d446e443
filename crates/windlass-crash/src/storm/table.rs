//! What a storm came to, as a line of a table.

use super::fault::Fault;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest that workers may take to claim again after the store's return.
const RECOVERY_MS_MAX: u64 = 5_000;

/// What one fault came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The fault.
    pub fault: String,
    /// How often it was done.
    pub rounds: u32,
    /// Jobs whose enqueue was acknowledged.
    pub jobs: u64,
    /// Times that a handler did its work.
    pub executed: u64,
    /// Jobs that were worked on more than once: allowed.
    pub delivered_twice: u64,
    /// Outcomes that were refused because their lease was lost: allowed.
    pub too_late: u64,
    /// Acknowledged jobs or completions that are gone.
    pub lost: u64,
    /// Jobs with two completions, or with more deliveries than allowed.
    pub double: u64,
    /// Jobs that nobody enqueued.
    pub phantom: u64,
    /// Queues whose counters differ from a recount.
    pub miscounted: u64,
    /// Index entries and counters that do not fit the records, over all recounts.
    pub discord: u64,
    /// Calls whose outcome was unknown, and that were repeated.
    pub unknown: u64,
    /// Calls that were turned away, and repeated.
    pub unavailable: u64,
    /// Calls that found the store full, and were repeated.
    pub full: u64,
    /// The longest time until every worker's claim was answered again.
    pub recovery_ms: u64,
    /// How long it took.
    pub seconds: u64,
    /// Some of what is wrong.
    pub faults: Vec<String>,
}

impl Row {
    /// The head of the table.
    pub const HEAD: &'static str = "\
| fault | rounds | jobs | lost | double completions | phantoms | index faults | unknown outcomes | turned away | delivered twice | too late | recovery ms | s |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

    /// True when no promise was broken. What a fail-over may cost is not promised; that everything fits together is.
    pub fn is_clean(&self) -> bool {
        let may_lose = self.fault.parse().is_ok_and(Fault::may_lose);
        (may_lose || self.lost + self.double == 0)
            && self.phantom + self.miscounted + self.discord == 0
            && self.recovery_ms <= RECOVERY_MS_MAX
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [
            u64::from(self.rounds),
            self.jobs,
            self.lost,
            self.double,
            self.phantom,
            self.discord + self.miscounted,
            self.unknown,
            self.unavailable + self.full,
            self.delivered_twice,
            self.too_late,
            self.recovery_ms,
            self.seconds,
        ];
        write!(f, "| {} |", self.fault)?;
        numbers.iter().try_for_each(|number| write!(f, " {number} |"))
    }
}
