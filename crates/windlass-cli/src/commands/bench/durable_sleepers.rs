//! `windlass bench durable sleepers`: what workflows that sleep cost the process that has started them and serves their engine.

use super::haul::while_running;
use super::noop::QUEUE;
use super::stand::{Common, Stand, unmeasured};
use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use windlass::core::id::RunId;
use windlass::core::store::{RunMessage, RunRead};
use windlass::durable::{Error, Wf, workflow};
use windlass::{Client, Worker};
use windlass_bench::Line;

/// Starts that are under way at once.
const STARTS_MAX: usize = 256;
/// How long the workflows are left alone.
const IDLE: Duration = Duration::from_secs(10);
/// How often is looked whether all of them sleep, and how often without any progress.
const LOOK: Duration = Duration::from_millis(200);
const PATIENCE: u32 = 300;

#[workflow(name = "windlass-bench-sleeper")]
async fn sleeper(wf: Wf, _: u32) -> Result<(), Error> {
    Ok(wf.sleep("30d").await?)
}

/// Starts workflows that sleep for 30 days, and measures this process when all do: its memory, and what it and the server do.
pub(super) async fn measure(common: &Common, stand: &Stand) -> Result<Line, Failure> {
    let count = common.jobs(100_000);
    stand.fresh_queue().await?;
    let worker = Worker::builder(stand.ground.store.clone()).queue(QUEUE).workflow(sleeper).build()?;
    let work = async {
        let before = Process::read()?;
        let runs = start(stand, count).await?;
        wait_until_they_sleep(stand, &runs).await?;
        let (begun, meter) = (Process::read()?, stand.ground.meter().map_err(unmeasured)?);
        tokio::time::sleep(IDLE).await;
        let spent = meter.stop(1).map_err(unmeasured)?;
        let ended = Process::read()?;
        terminate(stand, &runs).await?;
        super::durable::remove(stand, &runs).await?;
        let mb = |pages: u64| (pages * 4_096) as f64 / 1e6;
        let line = Line::new("durable", &stand.ground.kind).with("part", "sleepers").with("jobs", count);
        let line = line.with("process_mb", mb(ended.pages)).with("process_mb_more", mb(ended.pages) - mb(before.pages));
        let line = line.with("mapped_files_mb", mb(ended.file_pages));
        let line = line.with("idle_cpu_ms_per_s", (ended.cpu_ms - begun.cpu_ms) as f64 / IDLE.as_secs_f64());
        Ok(match spent {
            Some(spent) => line.with("idle_commands_per_s", spent.commands / IDLE.as_secs_f64()),
            None => line,
        })
    };
    let line = while_running(worker, work).await?;
    stand.clear().await?;
    Ok(line)
}

async fn start(stand: &Stand, count: u32) -> Result<Vec<RunId>, Failure> {
    let (bar, free) = (stand.ui.bar(count.into(), "starts"), Arc::new(Semaphore::new(STARTS_MAX)));
    let mut started = JoinSet::new();
    for n in 0..count {
        let permit = Arc::clone(&free).acquire_owned().await.map_err(|error| Failure::failed(error.to_string()))?;
        let client: Client = stand.client();
        started.spawn(async move {
            let run = client.start(sleeper, n).await;
            drop(permit);
            run.map(|run| run.id())
        });
        bar.set_position(n.into());
    }
    let mut runs = Vec::new();
    while let Some(run) = started.join_next().await {
        runs.push(run.map_err(|error| Failure::failed(error.to_string()))??);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// A run sleeps when its first turn is committed.
async fn wait_until_they_sleep(stand: &Stand, runs: &[RunId]) -> Result<(), Failure> {
    let (mut awake, mut quiet) = (runs.to_vec(), 0);
    while !awake.is_empty() {
        let some: Vec<RunRead> = awake.iter().rev().take(1_000).map(|run| RunRead::brief(*run)).collect();
        let views = stand.ground.store.read_runs(some.clone()).await?;
        let before = awake.len();
        awake.truncate(before - some.len());
        let sleeps = |view: &windlass::core::store::RunView| view.run.history_len > 0 && view.run.engine.is_none();
        awake.extend(views.into_iter().flatten().filter(|view| !sleeps(view)).map(|view| view.run.id));
        if awake.len() < before {
            quiet = 0;
            continue;
        }
        quiet += 1;
        if quiet > PATIENCE {
            return Err(Failure::failed(format!("{} workflows have not begun to sleep for a minute", awake.len())));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Ends the runs, so that they can be removed.
async fn terminate(stand: &Stand, runs: &[RunId]) -> Result<(), Failure> {
    for some in runs.chunks(1_000) {
        let message = |run: &RunId| RunMessage { terminates: true, ..RunMessage::new(*run, r#"{"say":"terminate"}"#) };
        for answer in stand.ground.store.send_to_runs(some.iter().map(message).collect()).await? {
            answer?;
        }
    }
    Ok(())
}

/// What the kernel counts for this process.
struct Process {
    /// Pages of 4 KiB in memory that are the process's own.
    pages: u64,
    /// Pages of files that are mapped, which the kernel may drop.
    file_pages: u64,
    /// Time of its threads, in steps of 10 ms.
    cpu_ms: u64,
}

impl Process {
    fn read() -> Result<Self, Failure> {
        let field = |path: &str, number: usize| -> Result<u64, Failure> {
            let text = std::fs::read_to_string(path)?;
            // The name of the program stands in parentheses, and may have blanks.
            let fields = text.rsplit(')').next().unwrap_or_default();
            let field = fields.split_whitespace().nth(number).and_then(|field| field.parse().ok());
            field.ok_or_else(|| Failure::failed(format!("{path} cannot be read")))
        };
        let ticks = field("/proc/self/stat", 11)? + field("/proc/self/stat", 12)?;
        let (resident, file_pages) = (field("/proc/self/statm", 1)?, field("/proc/self/statm", 2)?);
        Ok(Self { pages: resident.saturating_sub(file_pages), file_pages, cpu_ms: ticks * 10 })
    }
}
