//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod explain;
pub(crate) mod feed;
pub(crate) mod groups;
pub(crate) mod jobs;
pub(crate) mod lint;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod queues;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod schema;
pub(crate) mod top;
pub(crate) mod worker;
pub(crate) mod workers;

use crate::app::App;
use crate::cli::Command;
use crate::failure::Failure;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Runs one. Those that run long look after interrupts themselves.
pub(crate) async fn run(command: Command, app: &App) -> Result<ExitCode, Failure> {
    match command {
        Command::Bench(bench) => bench.run(app).await,
        Command::Demo(demo) => demo.run(app).await,
        Command::DemoWorker(worker) => worker.run(app).await,
        Command::Enqueue(enqueue) => enqueue.run(app).await,
        Command::Top(top) => top.run(app).await,
        Command::Completions(completions) => completions.run(app),
        Command::Lint(lint) => unless_interrupted(app, async { lint.run(app) }).await,
        Command::Man(man) => man.run(app),
        Command::Plan(plan) => unless_interrupted(app, async { plan.run(app) }).await,
        Command::Run(run) => run.run(app).await,
        Command::Worker(worker) => worker.run(app).await,
        Command::Runs(runs) => unless_interrupted(app, runs.run(app)).await,
        Command::Schema(schema) => schema.run(app),
        Command::Doctor(doctor) => unless_interrupted(app, doctor.run(app)).await,
        Command::Explain(explain) => unless_interrupted(app, explain.run(app)).await,
        Command::Feed(feed) => unless_interrupted(app, feed.run(app)).await,
        Command::Groups(groups) => unless_interrupted(app, groups.run(app)).await,
        Command::Jobs(jobs) => unless_interrupted(app, jobs.run(app)).await,
        Command::Queues(queues) => unless_interrupted(app, queues.run(app)).await,
        Command::Schedules(schedules) => unless_interrupted(app, schedules.run(app)).await,
        Command::Workers(workers) => unless_interrupted(app, workers.run(app)).await,
    }
}

/// Ends the process at the first interrupt. The signal is waited for on another thread, because this one may be reading
/// from a terminal; whatever a store is doing at that moment is done or not, and never by half.
pub(crate) async fn unless_interrupted<T>(
    app: &App,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut guard = JoinSet::new();
    let json = app.ui.json;
    // Taken before any work is begun, and not when the task first runs.
    let mut interrupts = signal(SignalKind::interrupt())?;
    guard.spawn(async move {
        if interrupts.recv().await.is_some() {
            Failure::interrupted().report(json);
            std::process::exit(130);
        }
    });
    Box::pin(work).await
}
