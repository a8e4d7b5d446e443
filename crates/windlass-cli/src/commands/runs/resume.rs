//! `windlass runs resume`.

use crate::app::App;
use crate::failure::{self, Failure};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use windlass::core::id::RunId;
use windlass::core::store::{Run, RunRead, RunState, Store};
use windlass_operate::code_run::is_code;
use windlass_operate::names::RunName;
use windlass_operate::run_change::resume_run;

const AFTER: &str = "\
Remove the cause first: windlass runs show says why a run is stuck. Nothing of it was forgotten. If the cause is still there, \
it is stuck again, and says why. With --json each id is a line, {run, state, taken} or {run, error}; `taken` says whether an \
engine has gone on with it already.

Examples:
  windlass runs resume latest
  windlass runs resume r0-01k9z3v8q2f7t8x6m5n4p3r2s1 r0-01k9z3v8q2f7t8x6m5n4p3r2s2
  windlass runs resume order-7 --cap 200000";

/// How often it is looked, and how long between: an engine that is there takes a run at once.
const LOOKS: u32 = 60;
/// The same when no worker lives; there may be engines without one.
const LOOKS_ALONE: u32 = 4;
const BETWEEN: Duration = Duration::from_millis(50);

/// Let runs that are stuck go on: what could not be done is tried again.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Resume {
    /// The runs' ids, `latest`, or the names that they were given with --id
    #[arg(required = true, value_name = "ID")]
    ids: Vec<RunName>,
    /// For runs of workflows in code that are stuck because their history is too long: it may have so many records
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u64).range(1..))]
    cap: Option<u64>,
}

/// What became of a run that was opened.
struct Opened {
    state: RunState,
    /// An engine has gone on with it.
    taken: bool,
}

impl Resume {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let mut ids = Vec::with_capacity(self.ids.len());
        for id in self.ids {
            ids.push(id.find(store.as_ref()).await?);
        }
        let mut told = Vec::with_capacity(ids.len());
        for run in ids {
            told.push((run, resume_run(&store, run, self.cap).await));
        }
        let mut code = ExitCode::SUCCESS;
        let mut looks = if store.workers().await?.is_empty() { LOOKS_ALONE } else { LOOKS };
        for (run, answer) in told {
            let opened = match answer {
                Ok(()) => look(store.as_ref(), run, &mut looks).await,
                Err(failure) => Err(failure),
            };
            match opened {
                Ok(opened) => say(app, run, &opened)?,
                Err(failure) => {
                    code = ExitCode::from(failure::code(&failure));
                    if app.ui.json {
                        app.ui.json(&json!({ "run": run, "error": failure::to_json(&failure) }))?;
                    } else {
                        app.ui.note(format_args!("not resumed: {failure}"));
                    }
                }
            }
        }
        Ok(code)
    }
}

/// Waits a moment for an engine. All the runs share the looks.
async fn look(store: &dyn Store, run: RunId, looks: &mut u32) -> Result<Opened, Failure> {
    loop {
        let view = store.read_runs(vec![RunRead::brief(run)]).await?.pop().flatten();
        let brief = view.ok_or_else(|| Failure::not_found(format!("there is no run {run} any more")))?.run;
        let is_code = is_code(&brief);
        let Run { state, stuck, inbox_len, .. } = brief;
        if let Some(why) = stuck.filter(|_| !state.is_terminal()) {
            let end = if is_code { "terminate" } else { "cancel" };
            return Err(Failure::conflict(format!("the run {run} is stuck again: {why}"))
                .hint(format!("windlass runs {end} {run} ends it, windlass runs remove {run} removes it")));
        }
        let taken = state.is_terminal() || inbox_len == 0;
        if taken || *looks == 0 {
            return Ok(Opened { state, taken });
        }
        *looks -= 1;
        tokio::time::sleep(BETWEEN).await;
    }
}

fn say(app: &App, run: RunId, &Opened { state, taken }: &Opened) -> Result<(), Failure> {
    if app.ui.json {
        return app.ui.json(&json!({ "run": run, "state": state, "taken": taken }));
    }
    match (state.is_terminal(), taken) {
        (true, _) => app.ui.line(format_args!("{run} {}", state.name())),
        (false, true) => app.ui.line(format_args!("{run} goes on")),
        (false, false) => app.ui.line(format_args!("{run} is open; no worker has taken it yet")),
    }
}
