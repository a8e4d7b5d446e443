//! `windlass bench durable latency`: workflows and jobs in turn, from the start to the result in the hands of the caller.

use super::durable::calls;
use super::haul::while_running;
use super::noop::{Noop, QUEUE};
use super::stand::{Common, Stand, unmeasured};
use crate::failure::Failure;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::core::id::RunId;
use windlass::{Client, Waited, Worker};
use windlass_bench::{Line, Samples, Spending, Stopwatch, median};

/// Workflows, and jobs, in a second.
const RATE: u32 = 20;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Those that warm everything up and are not counted.
const WARM_UP: u32 = 10;

/// What one round has measured, in microseconds.
struct Round {
    workflows: Samples,
    jobs: Samples,
    runs: Vec<RunId>,
}

/// Starts a workflow of three calls and a job by turns, each [`RATE`] times a second, whatever became of those before.
pub(super) async fn measure(common: &Common, stand: &Stand) -> Result<Line, Failure> {
    let count = common.jobs(10 * RATE);
    let (mut rounds, mut spending) = (Vec::new(), Spending::default());
    for _ in 0..common.rounds() {
        stand.fresh_queue().await?;
        let meter = stand.ground.meter().map_err(unmeasured)?;
        let round = round(stand, count).await?;
        spending.note(meter.stop(count).map_err(unmeasured)?);
        super::durable::remove(stand, &round.runs).await?;
        stand.clear().await?;
        rounds.push(round);
    }
    let workflows = |percent| median(rounds.iter().map(|round| round.workflows.percentile(percent)).collect());
    let jobs = |percent| median(rounds.iter().map(|round| round.jobs.percentile(percent)).collect());
    let line = Line::new("durable", &stand.ground.kind).with("part", "latency").with("jobs", count).with("rate", RATE);
    let line = line.with("p50_us", workflows(50)).with("p99_us", workflows(99));
    let line = line.with("job_p50_us", jobs(50)).with("job_p99_us", jobs(99));
    Ok(line.with("ratio_p99", workflows(99) / jobs(99)).spending(&spending))
}

async fn round(stand: &Stand, count: u32) -> Result<Round, Failure> {
    let worker = Worker::builder(stand.ground.store.clone()).queue(QUEUE).slots(16).handle(async |_: Noop| ());
    let worker = worker.workflow(calls).build()?;
    let work = async {
        send(&stand.client(), WARM_UP).await?;
        send(&stand.client(), count).await
    };
    while_running(worker, work).await
}

async fn send(client: &Client, count: u32) -> Result<Round, Failure> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / (2 * RATE));
    let (mut workflows, mut jobs) = (JoinSet::new(), JoinSet::new());
    for n in 0..count {
        beat.tick().await;
        workflows.spawn(workflow(client.clone(), n));
        beat.tick().await;
        jobs.spawn(job(client.clone(), n));
    }
    let (mut took, mut runs) = (Vec::new(), Vec::new());
    while let Some(ended) = workflows.join_next().await {
        let (run, us) = ended.map_err(|error| Failure::failed(error.to_string()))??;
        took.push(us);
        runs.push(run);
    }
    let mut jobs_took = Vec::new();
    while let Some(ended) = jobs.join_next().await {
        jobs_took.push(ended.map_err(|error| Failure::failed(error.to_string()))??);
    }
    Ok(Round { workflows: Samples::new(took), jobs: Samples::new(jobs_took), runs })
}

async fn workflow(client: Client, n: u32) -> Result<(RunId, f64), Failure> {
    let watch = Stopwatch::start();
    let run = client.start(calls, n).await?;
    match run.result(PATIENCE).await? {
        Some(Ok(())) => Ok((run.id(), watch.seconds() * 1e6)),
        Some(Err(failure)) => Err(Failure::failed(failure.to_string())),
        None => Err(Failure::failed(format!("the run {} has not ended for a minute", run.id()))),
    }
}

async fn job(client: Client, n: u32) -> Result<f64, Failure> {
    let watch = Stopwatch::start();
    let id = client.enqueue(Noop::new(n)).await?.id();
    match client.wait::<()>(id, PATIENCE).await? {
        Waited::Succeeded(()) => Ok(watch.seconds() * 1e6),
        _ => Err(Failure::failed(format!("the job {id} has not succeeded within a minute"))),
    }
}
