//! What a storm came to, as a line of a table.

use super::fault::Fault;
use super::planned;
use crate::watch::Unanswered;
use serde::{Deserialize, Serialize};
use std::fmt;
use windlass_audit::Findings;

/// The longest that workers may take to claim again after the store's return.
const RECOVERY_MS_MAX: u64 = 5_000;
/// The longest time that may pass without an acknowledged enqueue.
const GAP_MS_MAX: u64 = 5_000;
/// The longest time that an idle worker may take to start a job, three seconds after a failover.
const WAKE_MS_MAX: u64 = 100;
/// The longest time from the end of a lease until it is reaped.
const REAPED_LATE_MS_MAX: u64 = 2_000;
/// The lowest number of calls that must be under way when a failover is asked for.
const IN_FLIGHT_MIN: u64 = 16;

/// What one fault came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The fault.
    pub fault: String,
    /// How often it was done.
    pub rounds: u32,
    /// What the audit of all jobs found. Nodes of runs count as jobs where they were completed twice, or claimed once more
    /// after their completion had been acknowledged; the faults name some of all that is wrong.
    #[serde(flatten)]
    pub findings: Findings,
    /// Runs whose start was acknowledged.
    pub runs: u64,
    /// Acknowledged runs that are gone, have not ended, or ended with another result than they should have.
    pub runs_lost: u64,
    /// The lowest number of calls that were under way when a failover was asked for.
    pub in_flight: Option<u64>,
    /// The longest time without an acknowledged enqueue.
    pub gap_ms: Option<u64>,
    /// The longest time from an enqueue before a failover to the start of its handler in an idle worker.
    pub wake_before_ms: Option<u64>,
    /// The same three seconds after a failover.
    pub wake_ms: Option<u64>,
    /// Queues whose counters differ from a recount.
    pub miscounted: u64,
    /// Index entries and counters that do not fit the records, over all recounts.
    pub discord: u64,
    /// Calls that were repeated.
    #[serde(flatten)]
    pub unanswered: Unanswered,
    /// The longest time until every worker's claim was answered again, and until processes that started then were answered.
    pub recovery_ms: u64,
    /// The longest time from the end of a lease of the frozen timekeeper until it was reaped.
    pub reaped_late_ms: Option<u64>,
    /// How long it took.
    pub seconds: u64,
}

impl Row {
    /// The head of the table.
    pub const HEAD: &'static str = "\
| fault | rounds | jobs | runs | lost | runs lost | forgotten outcomes | double completions | phantoms | index faults | unknown outcomes | turned away | delivered twice | too late | recovery ms | in flight | longest gap ms | wake-up ms before | wake-up ms after | reaped late ms | s |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

    /// True when no promise was broken. What a fail-over may cost is not promised; that everything fits together is.
    pub fn is_clean(&self) -> bool {
        let (fault, all) = (self.fault.parse::<Fault>(), &self.findings);
        let may_lose = fault.as_ref().is_ok_and(|fault| fault.may_lose());
        (may_lose || all.lost + all.double + all.forgotten + self.runs_lost == 0)
            && all.phantom + self.miscounted + self.discord == 0
            && self.recovery_ms <= RECOVERY_MS_MAX
            && self.reaped_late_ms.is_none_or(|late_ms| late_ms <= REAPED_LATE_MS_MAX)
            && (!fault.is_ok_and(Fault::is_under_full_load) || self.meets_bars())
    }

    /// Whether the load was as high as a storm of planned failovers needs it, and nobody waited too long.
    fn meets_bars(&self) -> bool {
        let has_load = self.findings.jobs >= u64::from(self.rounds) * planned::JOBS_PER_ROUND
            && self.in_flight.is_some_and(|calls| calls >= IN_FLIGHT_MIN)
            && self.runs > 0;
        // A machine that is busy with other work delays wake-ups before a failover, too.
        let wake_ms_max = WAKE_MS_MAX + self.wake_before_ms.unwrap_or(0);
        has_load
            && self.gap_ms.is_some_and(|gap_ms| gap_ms <= GAP_MS_MAX)
            && self.wake_ms.is_some_and(|wake_ms| wake_ms <= wake_ms_max)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (always, all, calls) = (Some, &self.findings, self.unanswered);
        let numbers = [
            always(u64::from(self.rounds)),
            always(all.jobs),
            always(self.runs),
            always(all.lost),
            always(self.runs_lost),
            always(all.forgotten),
            always(all.double),
            always(all.phantom),
            always(self.discord + self.miscounted),
            always(calls.unknown),
            always(calls.unavailable + calls.full + calls.refused),
            always(all.delivered_twice),
            always(all.too_late),
            always(self.recovery_ms),
            self.in_flight,
            self.gap_ms,
            self.wake_before_ms,
            self.wake_ms,
            self.reaped_late_ms,
            always(self.seconds),
        ];
        write!(f, "| {} |", self.fault)?;
        numbers.iter().try_for_each(|number| match number {
            Some(number) => write!(f, " {number} |"),
            None => write!(f, " - |"),
        })
    }
}
