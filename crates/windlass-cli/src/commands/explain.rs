//! `windlass explain`: why a job is not running.

use crate::app::App;
use crate::failure::Failure;
use crate::ui::STRONG;
use clap::Args;
use std::sync::Arc;
use windlass::core::id::{JobId, RunId};
use windlass::core::store::Store;
use windlass::runs::Runs;
use windlass_operate::explain::{ExplainId, ExplainName, explain_job, explain_run};
use windlass_operate::text::printable;

const AFTER: &str = "\
One exact reason, and what to do about it. When several hold, the one that must be mended first is named. \
With --json: {id, state, queue, reason, …, text, hint}; `…` are the details of the reason.

Examples:
  windlass explain 0-01k9z3v8q2f7t8x6m5n4p3r2s1
  windlass explain r0-01k9z3v8q2f7t8x6m5n4p3r2s1          what a run waits for, node by node
  windlass explain 0-01k9z3v8q2f7t8x6m5n4p3r2s1 --json | jq -r .reason";

/// Say why a job, or a run, stands where it stands, and what to do about it.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Explain {
    /// The job's id, or the one that it was given with --id; or a run: its id, `latest`, or the name from --id
    id: ExplainName,
}

impl Explain {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        match self.id.find(store.as_ref()).await? {
            ExplainId::Job(job) => print_job(app, store.as_ref(), job).await?,
            ExplainId::Run(run) => print_run(app, &store, run).await?,
        }
        Ok(())
    }
}

async fn print_job(app: &App, store: &dyn Store, job: JobId) -> Result<(), Failure> {
    let explained = explain_job(store, job).await?;
    if app.ui.json {
        return app.ui.json(&explained.view());
    }
    app.ui.line(format_args!("{STRONG}{}{STRONG:#}: {}", explained.explanation.state, printable(&explained.text)))?;
    match explained.hint {
        Some(hint) => app.ui.line(format_args!("{STRONG}next{STRONG:#}: {}", printable(&hint))),
        None => Ok(()),
    }
}

async fn print_run(app: &App, store: &Arc<dyn Store>, run: RunId) -> Result<(), Failure> {
    let explained = explain_run(&Runs::new(Arc::clone(store)), run).await?;
    if app.ui.json {
        return app.ui.json(&explained);
    }
    app.ui.line(format_args!("{STRONG}{}{STRONG:#}: {}", explained.state.name(), printable(&explained.text)))?;
    for wait in explained.waits {
        app.ui.line(format_args!("  {STRONG}{}{STRONG:#}: {}", printable(&wait.node), printable(&wait.reason)))?;
    }
    Ok(())
}
