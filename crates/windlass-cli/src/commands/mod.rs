//! The commands, one file each.

/// Implements `run` of an enum of commands, each of which has a `run` of its own.
macro_rules! dispatch {
    ($commands:ident: $($name:ident),*) => {
        impl $commands {
            pub(crate) async fn run(self, app: &$crate::app::App) -> Result<std::process::ExitCode, $crate::failure::Failure> {
                match self {
                    $(Self::$name(command) => command.run(app).await.map(std::process::Termination::report),)*
                }
            }
        }
    };
}

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
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod schema;
pub(crate) mod top;
pub(crate) mod worker;
pub(crate) mod workers;

use crate::app::App;
use crate::cli::Command;
use crate::failure::{Failure, code, report};
use std::process::{ExitCode, Termination};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Runs a command, and closes the store that it has opened. Those that run long look after interrupts themselves.
pub(crate) async fn run(command: Command, app: &App) -> Result<ExitCode, Failure> {
    let code = match command {
        Command::Bench(bench) => return bench.run(app).await,
        Command::Demo(demo) => return demo.run(app).await,
        Command::DemoWorker(worker) => return worker.run(app).await,
        Command::Top(top) => return top.run(app).await,
        Command::Completions(completions) => completions.run(app)?.report(),
        Command::Enqueue(enqueue) => enqueue.run(app).await?,
        Command::Man(man) => man.run(app)?.report(),
        Command::Replay(replay) => replay.run(app)?.report(),
        Command::Run(run) => run.run(app).await?,
        Command::Schema(schema) => schema.run(app)?.report(),
        Command::Worker(worker) => worker.run(app).await?.report(),
        Command::Lint(lint) => unless_interrupted(app, async { lint.run(app) }).await?,
        Command::Plan(plan) => unless_interrupted(app, async { plan.run(app) }).await?.report(),
        Command::Runs(runs) => unless_interrupted(app, runs.run(app)).await?,
        Command::Doctor(doctor) => unless_interrupted(app, doctor.run(app)).await?,
        Command::Explain(explain) => unless_interrupted(app, explain.run(app)).await?.report(),
        Command::Feed(feed) => unless_interrupted(app, feed.run(app)).await?,
        Command::Groups(groups) => unless_interrupted(app, groups.run(app)).await?,
        Command::Jobs(jobs) => unless_interrupted(app, jobs.run(app)).await?,
        Command::Queues(queues) => unless_interrupted(app, queues.run(app)).await?,
        Command::Schedules(schedules) => unless_interrupted(app, schedules.run(app)).await?,
        Command::Workers(workers) => unless_interrupted(app, workers.run(app)).await?.report(),
    };
    app.close().await?;
    Ok(code)
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
            let interrupted = Failure::interrupted();
            report(&interrupted, json);
            std::process::exit(code(&interrupted).into());
        }
    });
    Box::pin(work).await
}
