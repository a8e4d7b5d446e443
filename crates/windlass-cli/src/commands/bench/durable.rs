//! `windlass bench durable`.

use super::haul::while_running;
use super::noop::{Noop, QUEUE};
use super::stand::{Common, Stand, unmeasured};
use super::{durable_latency, durable_sleepers};
use crate::failure::Failure;
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use windlass::core::Result as StoreResult;
use windlass::core::id::RunId;
use windlass::core::store::{RunCommit, RunCommitted, RunState, Store, Wrap, Wrapped};
use windlass::durable::{Error, RunHandle, Wf, workflow};
use windlass::{Client, Worker};
use windlass_bench::{Line, Samples, Spending, Stopwatch, median};

/// Calls or steps of one workflow.
const CALLS: u32 = 3;
/// How long the end of one run is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Run durable workflows of three activities that do nothing, through the real worker and its engine
///
/// From the first start until the store has said that the last run has ended, with some of them in flight at any time. Latencies
/// are from the start of a run to the acknowledged commit of its end.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench durable --store memory://\n  windlass bench durable --store redis://127.0.0.1 --json\n  windlass bench durable steps --store sqlite://bench.db"
)]
pub(crate) struct Durable {
    #[command(flatten)]
    pub(super) common: Common,
    /// What the workflows do
    #[arg(value_name = "PART", value_enum, default_value_t = Part::Calls)]
    part: Part,
    /// How many workflows are in flight
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    in_flight: u32,
}

/// What the workflows do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Three calls through the queue
    Calls,
    /// Three local steps
    Steps,
    /// Three calls, 20 times a second, beside 20 jobs: from the start to the result
    Latency,
    /// 100,000 that sleep for 30 days: memory of this process, and work per second
    Sleepers,
}

#[workflow(name = "windlass-bench-calls")]
pub(super) async fn calls(wf: Wf, n: u32) -> Result<(), Error> {
    for _ in 0..CALLS {
        wf.call(Noop::new(n)).await?;
    }
    Ok(())
}

#[workflow(name = "windlass-bench-steps")]
async fn steps(wf: Wf, _: u32) -> Result<(), Error> {
    for _ in 0..CALLS {
        wf.run_ok("nothing", async || ()).await?;
    }
    Ok(())
}

impl Durable {
    pub(super) fn new(common: Common) -> Self {
        Self { common, part: Part::Calls, in_flight: 50 }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        match self.part {
            Part::Latency => return durable_latency::measure(&self.common, stand).await,
            Part::Sleepers => return durable_sleepers::measure(&self.common, stand).await,
            Part::Calls | Part::Steps => {}
        }
        let runs = self.common.jobs(5_000);
        let (mut ours, mut spending, mut p50, mut p99) = (Vec::new(), Spending::default(), Vec::new(), Vec::new());
        for _ in 0..self.common.rounds() {
            stand.fresh_queue().await?;
            let before = stand.ground.memory().map_err(unmeasured)?;
            let meter = stand.ground.meter().map_err(unmeasured)?;
            let (seconds, latencies, ids) = self.round(stand, runs).await?;
            spending.note(meter.stop(runs).map_err(unmeasured)?);
            spending.note_bytes(stand.bytes_per_job(before, runs)?);
            remove(stand, &ids).await?;
            stand.clear().await?;
            ours.push(f64::from(runs) / seconds);
            p50.push(latencies.percentile(50));
            p99.push(latencies.percentile(99));
        }
        let part = if self.part == Part::Calls { "calls" } else { "steps" };
        let line = Line::new("durable", &stand.ground.kind).with("part", part).with("jobs", runs);
        let line = line.with("in_flight", self.in_flight).with("workflows_per_s", median(ours));
        Ok(line.with("p50_us", median(p50)).with("p99_us", median(p99)).spending(&spending))
    }

    async fn round(&self, stand: &Stand, runs: u32) -> Result<(f64, Samples, Vec<RunId>), Failure> {
        let ends = Arc::new(Wrapped(Ends { inner: stand.ground.store.clone(), waiting: Mutex::default() }));
        let worker = Worker::builder(ends.clone()).queue(QUEUE).slots(256).handle(nothing);
        let worker = worker.workflow(calls).workflow(steps).build()?;
        let work = async {
            let (bar, watch) = (stand.ui.bar(runs.into(), "workflows"), Stopwatch::start());
            let free = Arc::new(Semaphore::new(self.in_flight as usize));
            let mut started = JoinSet::new();
            for n in 0..runs {
                let permit =
                    Arc::clone(&free).acquire_owned().await.map_err(|error| Failure::failed(error.to_string()))?;
                let (client, ends, part) = (stand.client(), Arc::clone(&ends), self.part);
                started.spawn(async move {
                    let run = one(&client, &ends, part, n).await;
                    drop(permit);
                    run
                });
                bar.set_position(n.into());
            }
            let (mut latencies, mut ids) = (Vec::new(), Vec::new());
            while let Some(run) = started.join_next().await {
                let (id, seconds) = run.map_err(|error| Failure::failed(error.to_string()))??;
                ids.push(id);
                latencies.push(seconds * 1e6);
            }
            bar.finish_and_clear();
            Ok((watch.seconds(), Samples::new(latencies), ids))
        };
        while_running(worker, work).await
    }
}

/// Starts one run and waits for its end. Returns how long that took.
async fn one(client: &Client, ends: &Ends, part: Part, n: u32) -> Result<(RunId, f64), Failure> {
    let watch = Stopwatch::start();
    let id = match part {
        Part::Calls | Part::Latency | Part::Sleepers => {
            client.start(calls, n).await.map(|run: RunHandle<_>| run.id())?
        }
        Part::Steps => client.start(steps, n).await.map(|run: RunHandle<_>| run.id())?,
    };
    let state = tokio::time::timeout(PATIENCE, ends.ended(id)).await;
    match state {
        Ok(RunState::Succeeded) => Ok((id, watch.seconds())),
        Ok(state) => Err(Failure::failed(format!("the run {id} ended as {}", state.name()))),
        Err(_) => Err(Failure::failed(format!("the run {id} has not ended for a minute"))),
    }
}

async fn nothing(_: Noop) {}

pub(super) async fn remove(stand: &Stand, ids: &[RunId]) -> Result<(), Failure> {
    for ids in ids.chunks(windlass::core::store::BATCH_MAX) {
        for removed in stand.ground.store.remove_runs(ids.to_vec()).await? {
            removed?;
        }
    }
    Ok(())
}

/// What became of a run, and who waits for it.
#[derive(Default)]
struct Waiting {
    ended: HashMap<RunId, RunState>,
    senders: HashMap<RunId, oneshot::Sender<RunState>>,
}

/// A store that notes the ends of runs that this process commits.
struct Ends {
    inner: Arc<dyn Store>,
    waiting: Mutex<Waiting>,
}

impl Ends {
    async fn ended(&self, run: RunId) -> RunState {
        let receiver = {
            let mut waiting = self.waiting.lock();
            if let Some(state) = waiting.ended.remove(&run) {
                return state;
            }
            let (sender, receiver) = oneshot::channel();
            waiting.senders.insert(run, sender);
            receiver
        };
        receiver.await.unwrap_or(RunState::Running)
    }
}

#[async_trait]
impl Wrap for Ends {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> StoreResult<Vec<StoreResult<RunCommitted>>> {
        let ends: Vec<(RunId, RunState)> = commits.iter().map(|commit| (commit.lease.run, commit.step.state)).collect();
        let answers = self.inner.commit_runs(commits).await?;
        let mut waiting = self.waiting.lock();
        for ((run, state), answer) in ends.into_iter().zip(&answers) {
            if !state.is_terminal() || answer.is_err() {
                continue;
            }
            match waiting.senders.remove(&run) {
                // A measurement that was broken off waits no more.
                Some(sender) => drop(sender.send(state)),
                None => drop(waiting.ended.insert(run, state)),
            }
        }
        Ok(answers)
    }
}
