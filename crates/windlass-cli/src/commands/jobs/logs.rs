//! `windlass jobs logs`.

use crate::app::App;
use crate::failure::Failure;
use crate::job_name::JobName;
use crate::values::clean;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::store::{LogPage, LogRequest, Store, WaitFor};

/// Lines of one page.
const PAGE: u32 = 1_000;
/// New lines wake nobody, so they are looked for at this pace; the job's end is waited for.
const PACE: Duration = Duration::from_millis(250);

const AFTER: &str = "\
Examples:
  windlass jobs logs 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass jobs logs 0-01k9z3v8q2f7t8x6m5n4p3r2s1 --follow";

/// Print what a job has logged.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Logs {
    /// The job's id, or the one that it was given with --id
    id: JobName,
    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let id = self.id.find(store.as_ref()).await?;
        let mut from = 0;
        loop {
            // Looked at before the lines are read: what was logged before the end is not missed.
            let running = is_running(store.as_ref(), id).await?;
            from = read_on(app, store.as_ref(), id, from).await?;
            if !self.follow || !running {
                break;
            }
            let _ = tokio::time::timeout(PACE, store.wait(WaitFor::Job(id))).await;
        }
        if from == 0 {
            app.ui.note("no lines");
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn is_running(store: &dyn Store, id: JobId) -> Result<bool, Failure> {
    match store.get(vec![id]).await?.pop().flatten() {
        Some(job) => Ok(!job.state.is_terminal()),
        None => Err(Failure::not_found(format!("there is no job {id}"))),
    }
}

async fn read_on(app: &App, store: &dyn Store, job: JobId, mut from: u64) -> Result<u64, Failure> {
    loop {
        let page = store.read_logs(LogRequest { job, from, limit: PAGE }).await?;
        if page.lines.is_empty() {
            return Ok(page.next.max(from));
        }
        if page.first > from {
            app.ui.note(format_args!("note: lines {from} to {} are gone", page.first - 1));
        }
        from = page.first + page.lines.len() as u64;
        print(app, page)?;
    }
}

fn print(app: &App, page: LogPage) -> Result<(), Failure> {
    for (number, (attempt, line)) in (page.first..).zip(page.lines) {
        let text = String::from_utf8_lossy(&line.text);
        if app.ui.json {
            let (at, stream) = (line.at, line.stream);
            app.ui.json(&json!({ "number": number, "attempt": attempt, "at": at, "stream": stream, "text": text }))?;
        } else {
            app.ui.line(format_args!("{} #{attempt} {}", line.at, clean(&text)))?;
        }
    }
    Ok(())
}
