//! Failovers under full load. In a planned one nothing that was acknowledged may be lost; in none may anybody wait for long.
//!
//! A round times the wake-up of idle workers, lets callers enqueue at full speed, asks for a failover, waits until the new
//! primary is there and has acknowledged its share, times the wake-up again three seconds after the failover, and waits until
//! every replica is attached to the new primary and the Sentinels agree. A failover before that is not a planned one: the
//! replica would not have the data.
//!
//! In some storms one Sentinel is outdated or frozen meanwhile, and processes start right after the failover (`sentinels.rs`).

mod load;
mod meter;
mod runs;
mod sentinels;
mod wake;
mod worker;

use super::bed::{Bed, PREFIX, aside, at, end};
use super::fault::Fault;
use super::table::Row;
use super::{Plan, blows::FAILOVER_WITHIN};
use crate::Result;
use crate::child::{Dice, pass_ms};
use load::{Load, LoadOutcome};
use sentinels::Start;
use std::sync::Arc;
use windlass_core::time::{Clock, SystemClock, Timestamp};

/// Jobs that are acknowledged in every round, at least.
pub(super) const JOBS_PER_ROUND: u64 = 2_000;
/// Jobs that are acknowledged at full speed before a failover is asked for.
const JOBS_BEFORE: u64 = 600;
/// When wake-ups are timed after a failover.
const WAKE_AFTER_MS: u64 = 3_000;
/// How often calls are counted before a failover, and how long that takes each time.
const SAMPLES: u64 = 20;
const SAMPLE_MS: u64 = 5;

/// Runs the storm.
pub(super) async fn run(plan: Plan) -> Result<Row> {
    let Plan { fault, rounds, seed } = plan;
    let began = SystemClock.now();
    let bed = Arc::new(aside(move || Bed::start(fault)).await?);
    let load = Load::start(&bed.url(PREFIX, fault.options()), seed).await?;
    let row = Row { fault: fault.name().to_owned(), rounds, ..Row::default() };
    let mut storm = PlannedStorm { bed, load, fault, row, dice: Dice::new(seed) };
    for round in 0..rounds {
        storm.round(round).await?;
    }
    let PlannedStorm { bed, load, mut row, .. } = storm;
    row.add_load(load.finish().await?);
    row.seconds = SystemClock.now().ms_since(began) / 1_000;
    end(bed).await?;
    Ok(row)
}

struct PlannedStorm {
    bed: Arc<Bed>,
    load: Load,
    fault: Fault,
    row: Row,
    dice: Dice,
}

impl PlannedStorm {
    async fn round(&mut self, round: u32) -> Result<()> {
        let before_ms = self.load.idle.wake_up_ms().await?;
        let first = self.load.meter.acknowledged();
        self.load.meter.set_full_speed(true);
        self.load.acknowledged(first + JOBS_BEFORE).await?;
        let in_flight = self.count_calls().await;
        self.break_sentinel().await?;
        let failed_over_at = self.fail_over().await?;
        let newcomers_ms = self.newcomers_ms(Start::Promoted).await?;
        let claims_ms = self.load.recovery_ms(failed_over_at).await?;
        self.load.acknowledged(first + JOBS_PER_ROUND).await?;
        self.load.meter.set_full_speed(false);
        let passed_ms = SystemClock.now().ms_since(failed_over_at);
        pass_ms(WAKE_AFTER_MS.saturating_sub(passed_ms)).await;
        let after_ms = self.load.idle.wake_up_ms().await?;
        self.continue_sentinels().await?;
        self.wait_until_attached().await?;
        let newcomers_ms = newcomers_ms.max(self.newcomers_ms(Start::Attached).await?);
        eprintln!(
            "  {} {}: {in_flight} calls in flight, claims answered after {claims_ms} ms, new processes after {newcomers_ms} \
             ms, wake-up {before_ms} ms before, {after_ms} ms after",
            self.fault,
            round + 1,
        );
        let row = &mut self.row;
        row.recovery_ms = row.recovery_ms.max(claims_ms).max(newcomers_ms);
        row.in_flight = Some(row.in_flight.map_or(in_flight, |least| least.min(in_flight)));
        row.wake_before_ms = row.wake_before_ms.max(Some(before_ms));
        row.wake_ms = row.wake_ms.max(Some(after_ms));
        Ok(())
    }

    /// The mean number of calls under way.
    async fn count_calls(&self) -> u64 {
        let mut sum = 0;
        for _ in 0..SAMPLES {
            sum += self.load.meter.calls();
            pass_ms(SAMPLE_MS).await;
        }
        sum / SAMPLES
    }

    /// Returns the time at which a replica had become the primary.
    async fn fail_over(&self) -> Result<Timestamp> {
        let (without_sentinels, kills_primary) = (self.fault == Fault::FailoverTo, self.fault.kills_primary());
        at(&self.bed, move |bed| {
            let sentinel = bed.sentinel()?;
            // Those that users have: with shorter ones the old primary and the Sentinels are corrected sooner.
            sentinel.use_default_intervals();
            if without_sentinels {
                sentinel.fail_over_without_sentinels()?;
            } else if kills_primary {
                let old = sentinel.kill9_primary()?;
                sentinel.wait_for_promotion(old, FAILOVER_WITHIN)?;
            } else {
                let old = sentinel.fail_over()?;
                sentinel.wait_for_promotion(old, FAILOVER_WITHIN)?;
            }
            Ok(SystemClock.now())
        })
        .await
    }

    async fn wait_until_attached(&self) -> Result<()> {
        at(&self.bed, |bed| {
            let sentinel = bed.sentinel()?;
            sentinel.use_short_intervals();
            for node in sentinel.nodes().iter().filter(|node| !node.is_up()) {
                node.restart()?;
            }
            Ok(sentinel.wait_until_healthy()?)
        })
        .await
    }
}

impl Row {
    fn add_load(&mut self, outcome: LoadOutcome) {
        let LoadOutcome { jobs, runs, gap_ms } = outcome;
        self.add(jobs);
        self.runs += runs.runs;
        self.runs_lost += runs.lost;
        self.findings.double += runs.double;
        self.findings.forgotten += runs.forgotten;
        self.findings.faults.extend(runs.faults);
        self.gap_ms = Some(gap_ms);
    }
}
