//! What a job costs on top of a backlog: enqueue, claim and complete, without a runtime around it.

use super::noop::{Noop, QUEUE};
use super::stand::{Stand, unmeasured};
use crate::failure::Failure;
use indicatif::ProgressBar;
use windlass::core::name::{QueueName, WorkerId};
use windlass::core::store::{ClaimRequest, Outcome, ReportRequest};
use windlass_bench::floor::Load;
use windlass_bench::{Figure, Line, Spending, Stopwatch, median, own_name};

/// Jobs of one step.
const BATCH: u32 = 250;
/// Jobs that are measured on each backlog.
const MEASURED: u32 = 20_000;

/// What a job is enqueued, claimed and completed on top of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    pub(super) jobs: u32,
    pub(super) groups: Option<u32>,
}

/// What one costs, in seconds; the server's part in microseconds of its processor, and in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    enqueue: f64,
    work: f64,
    cpu_us: Option<f64>,
    bytes: Option<f64>,
}

/// What it costs on several backlogs, and the floor's jobs per second.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// By round, by backlog.
    rounds: Vec<Vec<Cost>>,
    floor: Vec<f64>,
}

impl Costs {
    /// Measures each of them so often.
    pub(super) async fn measure(stand: &Stand, backlogs: &[Backlog], rounds: u32) -> Result<Self, Failure> {
        let mut costs = Self::default();
        let mut worker = Worker::new()?;
        let largest = backlogs.iter().map(|backlog| backlog.jobs).max().unwrap_or(1);
        let measured = MEASURED.min(largest);
        for _ in 0..rounds {
            let mut round = Vec::new();
            for backlog in backlogs {
                round.push(worker.cost(stand, *backlog, measured).await?);
            }
            costs.rounds.push(round);
            let (mut unused, load) = (Spending::default(), Load::new(measured as usize, BATCH as usize));
            let enqueued = stand.floor_enqueue(load, &mut unused)?;
            let drained = stand.floor_drain(measured, Some(BATCH), &mut unused)?;
            costs.floor.push(1.0 / (1.0 / enqueued + 1.0 / drained));
        }
        Ok(costs)
    }

    /// The medians, by backlog; nothing where a store has no such figure.
    fn of(&self, pick: fn(&Cost) -> Option<f64>) -> Vec<f64> {
        let backlogs = self.rounds.first().map_or(0, Vec::len);
        let at = |n: usize| -> Vec<f64> { self.rounds.iter().filter_map(|round| pick(round.get(n)?)).collect() };
        (0..backlogs).map(at).filter(|all| !all.is_empty()).map(median).collect()
    }

    /// With the figures of each backlog, and with the growth from the first to the last.
    pub(super) fn onto(self, line: Line) -> Line {
        let whole = self.of(|cost| Some(cost.enqueue + cost.work));
        let enqueue = self.of(|cost| Some(cost.enqueue * 1e6));
        let work = self.of(|cost| Some(cost.work * 1e6));
        let (cpu_us, bytes) = (self.of(|cost| cost.cpu_us), self.of(|cost| cost.bytes));
        let line = line.with("enqueue_us", Figure::Reals(enqueue)).with("claim_and_complete_us", Figure::Reals(work));
        let last = whole.last().copied().unwrap_or(1.0);
        let line = line.with("growth", growth(&whole)).beside(1.0 / last, median(self.floor));
        if cpu_us.is_empty() {
            return line;
        }
        let grown = growth(&cpu_us);
        let line = line.with("redis_cpu_us_per_job", Figure::Reals(cpu_us)).with("redis_cpu_growth", grown);
        line.with("bytes_per_job", Figure::Reals(bytes))
    }
}

fn growth(all: &[f64]) -> f64 {
    let (first, last) = (all.first().copied().unwrap_or(1.0), all.last().copied().unwrap_or(1.0));
    last / first
}

/// Claims and completes, without a runtime around it.
struct Worker {
    id: WorkerId,
    queue: QueueName,
    request_id: u64,
}

impl Worker {
    fn new() -> Result<Self, Failure> {
        // Random: request ids begin at 1, and in containers process ids repeat.
        let id = WorkerId::new(own_name("windlass-bench"))?;
        Ok(Self { id, queue: QueueName::new(QUEUE)?, request_id: 0 })
    }

    /// On top of a backlog; a small one is made several times over, so that it stays small.
    async fn cost(&mut self, stand: &Stand, backlog: Backlog, measured: u32) -> Result<Cost, Failure> {
        let times = (measured / backlog.jobs).max(1);
        let each = (measured / times).max(1);
        let (mut cost, mut spending) = (Cost::default(), Vec::new());
        for _ in 0..times {
            stand.fresh_queue().await?;
            cost.bytes = stand.fill_with(backlog.jobs, |n| Noop::grouped(n, backlog.groups)).await?;
            let meter = stand.ground.meter().map_err(unmeasured)?;
            let watch = Stopwatch::start();
            let make = |n| Noop::grouped(n, backlog.groups);
            stand.enqueue_all(each, BATCH, &ProgressBar::hidden(), make).await?;
            cost.enqueue += watch.seconds();
            cost.work += self.work(stand, each).await?;
            spending.extend(meter.stop(each).map_err(unmeasured)?.map(|spent| spent.cpu_us));
        }
        stand.clear().await?;
        let jobs = f64::from(times * each);
        cost.cpu_us = (!spending.is_empty()).then(|| spending.iter().sum::<f64>() / f64::from(times));
        Ok(Cost { enqueue: cost.enqueue / jobs, work: cost.work / jobs, ..cost })
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
