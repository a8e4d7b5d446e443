//! `windlass bench drain`.

use super::haul::{Haul, batch_mean};
use super::noop::Noop;
use super::stand::{Common, Stand};
use crate::failure::Failure;
use clap::Args;
use windlass_bench::{Line, median};

/// The batch of the bare loop.
pub(super) const FLOOR_BATCH: usize = 1_000;

/// Work off a backlog of jobs that do nothing, through the real worker
///
/// From the start of the worker until the store has acknowledged the last job. The floor is a bare loop of claim and
/// complete, 1000 jobs at a time.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench drain --store sqlite://bench.db --jobs 200000 --json\n  windlass bench drain --store memory:// --slots 64"
)]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(super) common: Common,
    /// How many jobs the worker runs at once
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slots: u32,
}

impl Drain {
    pub(super) fn new(common: Common) -> Self {
        Self { common, slots: 1_000 }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let jobs = self.common.jobs(200_000);
        let (mut ours, mut floor, mut batch, mut share) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.common.rounds() {
            stand.fresh_queue().await?;
            stand.fill(jobs).await?;
            let haul = Haul { jobs, slots: self.slots };
            let ended = haul.work_off(stand, |worker| worker.handle(nothing)).await?;
            stand.clear().await?;
            ours.push(f64::from(jobs) / ended.seconds);
            batch.push(batch_mean(jobs, &ended));
            share.push(ended.store_share);
            floor.push(stand.floor_drain(jobs, FLOOR_BATCH)?);
        }
        let line = Line::new("drain", &stand.ground.kind).with("jobs", jobs).with("slots", self.slots);
        Ok(line
            .with("batch_mean", median(batch))
            .with("store_share", median(share))
            .beside(median(ours), median(floor)))
    }
}

async fn nothing(_: Noop) {}
