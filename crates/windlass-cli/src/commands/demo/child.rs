//! `windlass demo-worker`: one worker of the demo, started by it and by nobody else.

use super::desk::{self, Chances, Desk};
use super::jobs::QUEUES;
use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use windlass::Worker;
use windlass::core::store::Wrapped;
use windlass_audit::{Ledger, Recorder, end_with_parent};

/// One worker of the demo; started by `windlass demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    /// Its name, of which there is no second one
    #[arg(long)]
    name: String,
    /// Where its ledger goes
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    slots: usize,
    #[arg(long)]
    lease_ms: u64,
    #[arg(long)]
    latency_ms: u64,
    #[arg(long)]
    fail_rate: f64,
    #[arg(long)]
    hang_rate: f64,
    #[arg(long)]
    seed: u64,
}

impl DemoWorker {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        end_with_parent()?;
        // What its runtime has to complain about is shown when the demo goes wrong.
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_writer(std::io::stderr)
            .with_target(false)
            .without_time()
            .init();
        let ledger = Arc::new(Ledger::open(&self.dir, &self.name)?);
        let store = Arc::new(Wrapped(Recorder::new(app.store()?, Arc::clone(&ledger))));
        let chances = Chances { seed: self.seed, fail_rate: self.fail_rate, hang_rate: self.hang_rate };
        let desk = Desk { ledger, chances, latency: Duration::from_millis(self.latency_ms) };
        let worker = Worker::builder(store)
            .id(self.name)
            .slots(self.slots)
            .lease(Duration::from_millis(self.lease_ms))
            .drain_time(Duration::from_secs(5))
            .state(desk)
            .handle(desk::email)
            .handle(desk::webhook)
            .handle(desk::thumbnail)
            .handle(desk::invoice);
        let worker = QUEUES.iter().fold(worker, |worker, queue| worker.queue(*queue));
        worker.build()?.run().await?;
        Ok(ExitCode::SUCCESS)
    }
}
