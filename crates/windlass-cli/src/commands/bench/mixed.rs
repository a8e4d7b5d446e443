//! `windlass bench mixed`.

use super::haul::{Haul, batch_mean};
use super::noop::{QUEUE, pad};
use super::stand::{Common, Stand, unmeasured};
use crate::failure::Failure;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::{Ctx, Job, JobError, Options};
use windlass_bench::{Line, Spending, median};

/// Work off jobs with groups, priorities, delays and failures, through the real worker
///
/// 100 groups, 5 priorities; one job in 10 has a delay of up to half a second, one in 20 fails once and is retried. The
/// floor is that of `drain`, which has none of these.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass bench mixed --jobs 50000")]
pub(crate) struct Mixed {
    #[command(flatten)]
    pub(super) common: Common,
    /// How many jobs the worker runs at once
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slots: u32,
}

impl Mixed {
    pub(super) fn new(common: Common) -> Self {
        Self { common, slots: 1_000 }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let jobs = self.common.jobs(100_000);
        let (mut ours, mut floor, mut batch, mut share) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut spending = Spending::default();
        for _ in 0..self.common.rounds() {
            stand.fresh_queue().await?;
            spending.note_bytes(stand.fill_with(jobs, |n| Various { n, pad: pad(n) }).await?);
            let meter = stand.ground.meter().map_err(unmeasured)?;
            let haul = Haul { jobs, slots: self.slots };
            let ended = haul.work_off(stand, |worker| worker.handle(various)).await?;
            spending.note(meter.stop(jobs).map_err(unmeasured)?);
            stand.check_succeeded(jobs).await?;
            stand.clear().await?;
            ours.push(f64::from(jobs) / ended.seconds);
            batch.push(batch_mean(jobs, &ended));
            share.push(ended.store_share);
            floor.push(stand.floor_drain(jobs, None, &mut spending)?);
        }
        let failing = (0..jobs).filter(|n| fails_once(*n)).count();
        let line = Line::new("mixed", &stand.ground.kind).with("jobs", jobs).with("slots", self.slots);
        let line = line.with("retried", failing).with("batch_mean", median(batch)).with("store_share", median(share));
        Ok(line.beside(median(ours), median(floor)).spending(&spending))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Various {
    n: u32,
    pad: String,
}

impl Job for Various {
    const KIND: &'static str = "windlass-bench-various";
    const QUEUE: &'static str = QUEUE;
    type Output = ();

    fn options(&self) -> Options {
        let priority = i16::try_from(self.n % 5).unwrap_or_default();
        let options = Options::new().group(format!("group-{}", self.n % 100)).priority(priority);
        if self.n % 10 == 7 {
            return options.delay(Duration::from_millis(u64::from(self.n % 500)));
        }
        options
    }
}

fn fails_once(n: u32) -> bool {
    n % 20 == 3
}

async fn various(job: Various, ctx: Ctx) -> Result<(), JobError> {
    if fails_once(job.n) && ctx.attempt() == 1 {
        return Err(JobError::new("it fails once").retry_after(Duration::from_millis(10)));
    }
    Ok(())
}
