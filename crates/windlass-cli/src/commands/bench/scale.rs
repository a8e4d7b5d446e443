//! `windlass bench scale`.

use super::noop::{Noop, QUEUE};
use super::stand::{Common, Stand};
use crate::failure::Failure;
use clap::Args;
use windlass::core::name::{QueueName, WorkerId};
use windlass::core::store::{ClaimRequest, Outcome, ReportRequest};
use windlass_bench::{Figure, Line, Stopwatch, median};

/// The smallest backlog.
const SMALLEST: u32 = 1_000;
/// Jobs of one step.
const BATCH: u32 = 250;
/// Jobs that are measured at each size.
const MEASURED: u32 = 20_000;

/// What a job costs with a thousand stored, and with a million
///
/// Enqueue, claim and complete, 250 jobs at a time, on top of backlogs from 10^3 to 10^6 jobs. `growth` is the cost at
/// the largest against the smallest. The floor is the bare table or queue, empty.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass bench scale\n  windlass bench scale --huge --store memory://")]
pub(crate) struct Scale {
    #[command(flatten)]
    pub(super) common: Common,
    /// Up to 10^7 jobs
    #[arg(long, conflicts_with = "jobs")]
    huge: bool,
}

/// Seconds per job.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    enqueue: f64,
    work: f64,
}

impl Scale {
    pub(super) fn new(common: Common) -> Self {
        Self { common, huge: false }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let largest = if self.huge { 10_000_000 } else { self.common.jobs(1_000_000) };
        let sizes = sizes(largest);
        let measured = MEASURED.min(largest);
        let mut rounds: Vec<Vec<Cost>> = Vec::new();
        let mut floor = Vec::new();
        let mut worker = Worker::new()?;
        for _ in 0..self.common.rounds() {
            let mut costs = Vec::new();
            for size in &sizes {
                costs.push(worker.cost(stand, *size, measured).await?);
            }
            rounds.push(costs);
            let batch = BATCH as usize;
            let seconds = 1.0 / stand.floor_enqueue(measured, batch)? + 1.0 / stand.floor_drain(measured, batch)?;
            floor.push(1.0 / seconds);
        }
        let of = |pick: fn(&Cost) -> f64| -> Vec<f64> {
            let at = |n: usize| median(rounds.iter().filter_map(|costs| costs.get(n)).map(pick).collect());
            (0..sizes.len()).map(at).collect()
        };
        let whole = of(|cost| cost.enqueue + cost.work);
        let (first, last) = (whole.first().copied().unwrap_or(1.0), whole.last().copied().unwrap_or(1.0));
        let line = Line::new("scale", &stand.ground.kind).with("jobs", largest);
        let line = line.with("stored", Figure::Counts(sizes.iter().copied().map(u64::from).collect()));
        let line = line.with("enqueue_us", Figure::Reals(of(|cost| cost.enqueue * 1e6)));
        let line = line.with("claim_and_complete_us", Figure::Reals(of(|cost| cost.work * 1e6)));
        Ok(line.with("growth", last / first).beside(1.0 / last, median(floor)))
    }
}

/// Powers of ten up to the largest, which closes the row.
fn sizes(largest: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(SMALLEST), |size| size.checked_mul(10));
    powers.take_while(|size| *size < largest).chain([largest]).collect()
}

/// Claims and completes, without a runtime around it.
struct Worker {
    id: WorkerId,
    queue: QueueName,
    request_id: u64,
}

impl Worker {
    fn new() -> Result<Self, Failure> {
        let id = WorkerId::new(format!("windlass-bench-{}", std::process::id()))?;
        Ok(Self { id, queue: QueueName::new(QUEUE)?, request_id: 0 })
    }

    /// At a backlog of `size`; a small one is made several times over, so that it stays small.
    async fn cost(&mut self, stand: &Stand, size: u32, measured: u32) -> Result<Cost, Failure> {
        let times = (measured / size).max(1);
        let each = (measured / times).max(1);
        let mut cost = Cost::default();
        for _ in 0..times {
            stand.fresh_queue().await?;
            stand.fill(size).await?;
            cost.enqueue += enqueue(stand, each).await?;
            cost.work += self.work(stand, each).await?;
        }
        stand.clear().await?;
        let jobs = f64::from(times * each);
        Ok(Cost { enqueue: cost.enqueue / jobs, work: cost.work / jobs })
    }

    async fn work(&mut self, stand: &Stand, jobs: u32) -> Result<f64, Failure> {
        let store = &stand.ground.store;
        let watch = Stopwatch::start();
        let mut done = 0;
        while done < jobs {
            self.request_id += 1;
            let max = BATCH.min(jobs - done);
            let claim = ClaimRequest { max, ..ClaimRequest::new(self.id.clone(), self.request_id, self.queue.clone()) };
            let outcomes: Vec<Outcome> =
                store.claim(claim).await?.jobs.into_iter().map(|job| Outcome::complete(job.lease)).collect();
            if outcomes.is_empty() {
                return Err(Failure::failed(format!("the backlog ran dry after {done} of {jobs} jobs")));
            }
            done += u32::try_from(outcomes.len()).unwrap_or(u32::MAX);
            for answer in store.report(ReportRequest { worker: self.id.clone(), outcomes }).await? {
                answer?;
            }
        }
        Ok(watch.seconds())
    }
}

async fn enqueue(stand: &Stand, jobs: u32) -> Result<f64, Failure> {
    let client = stand.client();
    let watch = Stopwatch::start();
    let mut from = 0;
    while from < jobs {
        let to = jobs.min(from + BATCH);
        for answer in client.enqueue_all((from..to).map(Noop::new)).await? {
            answer?;
        }
        from = to;
    }
    Ok(watch.seconds())
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_go_up_to_the_largest() {
        assert_eq!(sizes(1_000_000), [1_000, 10_000, 100_000, 1_000_000]);
        assert_eq!(sizes(2_500), [1_000, 2_500]);
        assert_eq!(sizes(7), [7]);
    }
}
