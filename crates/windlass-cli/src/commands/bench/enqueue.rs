//! `windlass bench enqueue`.

use super::noop::Noop;
use super::stand::{Common, Stand, unmeasured};
use crate::failure::Failure;
use clap::Args;
use tokio::task::JoinSet;
use windlass_bench::floor::Load;
use windlass_bench::{Line, Spending, Stopwatch, median};

/// Enqueue jobs, one by one from many tasks at once, or in bulk
///
/// The floor of SQLite is a bare INSERT, as many rows to a commit as the store has reached; that of memory is a queue
/// behind a mutex; that of Redis is a hash and an entry in a list, with as many calls under way.
/// On Redis the line says also what the server spent on each job, and how many bytes one takes while it waits.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench enqueue --tasks 64\n  windlass bench enqueue --bulk --batch 1000 --store memory://\n  windlass bench enqueue --tasks 16 --store redis://127.0.0.1"
)]
pub(crate) struct Enqueue {
    #[command(flatten)]
    pub(super) common: Common,
    /// How many tasks enqueue at once, each waiting for its answer before it goes on
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: u32,
    /// Many jobs in one call
    #[arg(long)]
    bulk: bool,
    /// How many jobs in one call
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "bulk")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
}

impl Enqueue {
    pub(super) fn new(common: Common, bulk: bool) -> Self {
        Self { common, tasks: 256, bulk, batch: 1_000 }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let jobs = self.common.jobs(if self.bulk { 200_000 } else { 40_000 });
        let (mut ours, mut floor, mut batches) = (Vec::new(), Vec::new(), Vec::new());
        let mut spending = Spending::default();
        for _ in 0..self.common.rounds() {
            stand.fresh_queue().await?;
            let (before, empty) = (stand.ground.floor.group_commit(), stand.ground.memory().map_err(unmeasured)?);
            let meter = stand.ground.meter().map_err(unmeasured)?;
            let watch = Stopwatch::start();
            if self.bulk {
                let bar = stand.ui.bar(jobs.into(), "enqueue");
                stand.enqueue_all(jobs, self.batch, &bar, Noop::new).await?;
            } else {
                self.one_by_one(stand, jobs).await?;
            }
            ours.push(f64::from(jobs) / watch.seconds());
            spending.note(meter.stop(jobs).map_err(unmeasured)?);
            spending.note_bytes(stand.bytes_per_job(empty, jobs)?);
            let batch =
                if self.bulk { self.batch as usize } else { reached(before, stand.ground.floor.group_commit()) };
            let counts = stand.counts().await?;
            if counts.ready != u64::from(jobs) {
                return Err(Failure::failed(format!("{jobs} jobs were enqueued, and the store says {counts:?}")));
            }
            stand.clear().await?;
            batches.push(batch as f64);
            let in_flight = if self.bulk { 1 } else { self.tasks as usize };
            floor.push(stand.floor_enqueue(Load { jobs: jobs as usize, batch, in_flight }, &mut spending)?);
        }
        let mode = if self.bulk { "bulk" } else { "one-by-one" };
        let line = Line::new("enqueue", &stand.ground.kind).with("mode", mode).with("jobs", jobs);
        let line = if self.bulk { line } else { line.with("tasks", self.tasks) };
        let line = line.with("batch_mean", median(batches)).beside(median(ours), median(floor));
        Ok(line.spending(&spending))
    }

    async fn one_by_one(&self, stand: &Stand, jobs: u32) -> Result<(), Failure> {
        let bar = stand.ui.bar(self.tasks.into(), "enqueue");
        let mut running = JoinSet::new();
        for task in 0..self.tasks {
            let client = stand.client();
            let share = jobs / self.tasks + u32::from(task < jobs % self.tasks);
            running.spawn(async move {
                for n in 0..share {
                    client.enqueue(Noop::new(n)).await?;
                }
                Ok::<(), windlass::Error>(())
            });
        }
        while let Some(ended) = running.join_next().await {
            ended.map_err(|error| Failure::failed(format!("a task broke off: {error}")))??;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Steps to a commit; 1 where every step is its own.
fn reached(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> usize {
    let (Some((steps, commits)), Some((steps_after, commits_after))) = (before, after) else { return 1 };
    let mean = (steps_after - steps) / (commits_after - commits).max(1);
    usize::try_from(mean).unwrap_or(usize::MAX).max(1)
}
