//! `windlass bench latency`.

use super::haul::while_running;
use super::noop::{Noop, QUEUE};
use super::stand::{Common, Stand, unmeasured};
use crate::failure::Failure;
use clap::Args;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use windlass::{Client, Worker};
use windlass_bench::floor::Beat;
use windlass_bench::{Line, Pace, Samples, Spending, median};

/// Jobs that warm everything up and are not counted.
const WARM_UP: u32 = 20;
/// How long the last job may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// From the enqueue of a job to the start of its handler, at a steady rate
///
/// Each job is sent at its planned time, whatever became of those before it, and its latency counts from that time. The
/// floor is what no store of this kind can do without: two fsyncs on SQLite (one for the enqueue, one for the claim),
/// waking a thread in memory; on Redis an enqueue, waking a connection that waits, and a claim. The ratio is the
/// floor's p99 to ours.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench latency --rate 100 --seconds 10\n  windlass bench latency --store memory:// --json"
)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(super) common: Common,
    /// Jobs per second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// For how long, unless --jobs says how many; 10 when not said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: Option<u32>,
}

impl Latency {
    pub(super) fn new(common: Common) -> Self {
        Self { common, rate: 100, seconds: None }
    }

    /// How many jobs: as asked for, or what the rate brings in the time.
    fn count(&self) -> u32 {
        let seconds = self.seconds.unwrap_or_else(|| self.common.less(10));
        self.common.asked().unwrap_or_else(|| self.rate.saturating_mul(seconds))
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let (count, rate) = (self.count(), f64::from(self.rate));
        let (mut ours, mut floor, mut spending) = (Vec::new(), Vec::new(), Spending::default());
        for _ in 0..self.common.rounds() {
            stand.fresh_queue().await?;
            let meter = stand.ground.meter().map_err(unmeasured)?;
            ours.push(round(stand, Beat { count, rate }).await?);
            spending.note(meter.stop(count).map_err(unmeasured)?);
            stand.clear().await?;
            floor.push(stand.ground.floor.way(Beat { count, rate }).map_err(unmeasured)?);
        }
        let at = |percent| median(ours.iter().map(|samples| samples.percentile(percent)).collect());
        let step = |percent| median(floor.iter().map(|way| way.step_us.percentile(percent)).collect());
        let steps = floor.first().map_or(1.0, |way| f64::from(way.steps));
        let floor_us = steps * step(99);
        let line = Line::new("latency", &stand.ground.kind).with("jobs", count).with("rate", self.rate);
        let line = line.with("p50_us", at(50)).with("p90_us", at(90)).with("p99_us", at(99)).with("max_us", at(100));
        let line = if floor.first().is_some_and(|way| way.step == "fsync") {
            let line = line.with("fsync_us", step(50)).with("fsync_p99_us", step(99));
            line.with("over_two_fsyncs_us", at(99) - floor_us)
        } else {
            line.with("hand_over_us", step(50)).with("hand_over_p99_us", step(99))
        };
        let line = line.with("floor_us", floor_us).with("floor_per_s", 1e6 / floor_us);
        Ok(line.with("ratio", floor_us / at(99)).spending(&spending))
    }
}

/// When each handler began, counted from when its job was planned.
struct Starts {
    pace: Mutex<Option<Pace>>,
    late_us: Mutex<Vec<f64>>,
    wanted: usize,
    all: Notify,
}

/// One worker and one sender in this process.
async fn round(stand: &Stand, beat: Beat) -> Result<Samples, Failure> {
    let client = stand.client();
    let warm = Arc::new(Starts::new(WARM_UP));
    let late = Arc::new(Starts::new(beat.count));
    let handler = {
        let (warm, late) = (Arc::clone(&warm), Arc::clone(&late));
        move |job: Noop| {
            let starts = if late.pace.lock().is_some() { &late } else { &warm };
            starts.note(job.n);
            std::future::ready(())
        }
    };
    let worker = Worker::builder(stand.ground.store.clone()).queue(QUEUE).slots(16).handle(handler).build()?;
    let work = async {
        for n in 0..WARM_UP {
            client.enqueue(Noop::new(n)).await?;
        }
        warm.wait().await?;
        send(stand, &client, &late, beat).await?;
        late.wait().await
    };
    while_running(worker, work).await?;
    let all = std::mem::take(&mut *late.late_us.lock());
    Ok(Samples::new(all))
}

/// Sends each job at its time, from a thread of its own: it is never kept waiting by the work that it measures.
async fn send(stand: &Stand, client: &Client, starts: &Arc<Starts>, beat: Beat) -> Result<(), Failure> {
    let (done, sent) = oneshot::channel();
    let is_over = Arc::clone(&stand.is_over);
    let (client, runtime, starts) = (client.clone(), tokio::runtime::Handle::current(), Arc::clone(starts));
    let run = move || {
        let pace = Pace::start(beat.rate);
        *starts.pace.lock() = Some(pace);
        let mut sending = JoinSet::new();
        for n in 0..beat.count {
            let (client, job, is_over) = (client.clone(), Noop::new(n), Arc::clone(&is_over));
            pace.wait(n);
            if done.is_closed() {
                return;
            }
            let enqueue = async move {
                // Held until the job is enqueued: `Stand::end` waits for the lock before the queue is cleared.
                let is_over = is_over.read().await;
                if *is_over { Ok(()) } else { client.enqueue(job).await.map(drop) }
            };
            sending.spawn_on(enqueue, &runtime);
        }
        // Whoever asked may have been broken off.
        let _ = done.send(sending);
    };
    std::thread::Builder::new().name("windlass-bench-sender".to_owned()).spawn(run)?;
    let mut sending = sent.await.map_err(|_| Failure::failed("the sender ended early"))?;
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|error| Failure::failed(format!("an enqueue broke off: {error}")))??;
    }
    Ok(())
}

impl Starts {
    fn new(wanted: u32) -> Self {
        let (pace, late_us, all) = (Mutex::new(None), Mutex::default(), Notify::new());
        Self { pace, late_us, wanted: wanted as usize, all }
    }

    fn note(&self, n: u32) {
        let late_us = self.pace.lock().map(|pace| pace.late_us(n));
        let mut all = self.late_us.lock();
        all.push(late_us.unwrap_or_default());
        if all.len() == self.wanted {
            self.all.notify_one();
        }
    }

    async fn wait(&self) -> Result<(), Failure> {
        let waited = tokio::time::timeout(PATIENCE, self.all.notified()).await;
        waited.map_err(|_| Failure::failed("not all jobs were started within a minute"))
    }
}
