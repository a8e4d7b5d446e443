//! `windlass bench drain`.

use super::haul::{Haul, batch_mean};
use super::noop::{Noop, QUEUE};
use super::stand::{Common, Stand, unmeasured};
use crate::failure::Failure;
use clap::Args;
use windlass::core::name::QueueName;
use windlass_bench::{Direct, Line, Spending, median};

/// Work off a backlog of jobs that do nothing, through the real worker
///
/// From the start of the worker until the store has acknowledged the last job. The floor is a bare loop of claim and
/// complete: 1000 jobs at a time; on Redis 64 at a time on two connections, by scripts over a hash for each job. On
/// Redis the line says also what the server spent on each job, and how many bytes one takes while it waits.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench drain --store sqlite://bench.db --jobs 200000 --json\n  windlass bench drain --store memory:// --slots 64\n  windlass bench drain --store redis://127.0.0.1 --direct --batch 64"
)]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(super) common: Common,
    /// How many jobs the worker runs at once
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slots: u32,
    /// Without the worker: two tasks that report and claim, each with one call under way
    #[arg(long, conflicts_with = "slots")]
    direct: bool,
    /// How many jobs in one call of --direct
    #[arg(long, value_name = "N", default_value_t = 64, requires = "direct")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// How many jobs in one step of the floor; each kind of store has a number of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    floor_batch: Option<u32>,
}

impl Drain {
    pub(super) fn new(common: Common) -> Self {
        Self { common, slots: 1_000, direct: false, batch: 64, floor_batch: None }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let jobs = self.common.jobs(200_000);
        let (mut ours, mut floor, mut batch, mut share) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut spending = Spending::default();
        for _ in 0..self.common.rounds() {
            stand.fresh_queue().await?;
            spending.note_bytes(stand.fill(jobs).await?);
            let meter = stand.ground.meter().map_err(unmeasured)?;
            let seconds = if self.direct {
                self.directly(stand, jobs).await?
            } else {
                let haul = Haul { jobs, slots: self.slots };
                let ended = haul.work_off(stand, |worker| worker.handle(nothing)).await?;
                batch.push(batch_mean(jobs, &ended));
                share.push(ended.store_share);
                ended.seconds
            };
            spending.note(meter.stop(jobs).map_err(unmeasured)?);
            stand.check_succeeded(jobs).await?;
            stand.clear().await?;
            ours.push(f64::from(jobs) / seconds);
            floor.push(stand.floor_drain(jobs, self.floor_batch, &mut spending)?);
        }
        let line = Line::new("drain", &stand.ground.kind).with("jobs", jobs);
        let line = if self.direct {
            line.with("mode", "direct").with("batch", self.batch)
        } else {
            let line = line.with("slots", self.slots).with("batch_mean", median(batch));
            line.with("store_share", median(share))
        };
        Ok(line.beside(median(ours), median(floor)).spending(&spending))
    }

    async fn directly(&self, stand: &Stand, jobs: u32) -> Result<f64, Failure> {
        let direct = Direct::new(stand.ground.store.clone(), QueueName::new(QUEUE)?, self.batch);
        Ok(direct.work_off(jobs).await?)
    }
}

async fn nothing(_: Noop) {}
