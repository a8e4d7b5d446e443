//! `windlass runs export`.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use windlass::runs::RunExport;
use windlass_operate::names::RunName;

const AFTER: &str = "\
One JSON document, {format, version, exported_at, run, definition, input, published, result, history, inbox}, with each entry of \
the history on a line of its own. It holds every value as it is stored, with the secrets that inputs, results and messages may \
contain: nothing is masked. The jobs of the run and its children are not part of it. The run is only read.

What to do with it: windlass replay FILE, and windlass::durable::Replay in a test.

Examples:
  windlass runs export order-7 -o order-7.json
  windlass runs export latest | jq '.history[].entry.json'";

/// Write a whole run, with its history and its inbox, as JSON.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Export {
    /// The run's id, `latest`, or the name that it was given with --id
    run: RunName,
    /// Where to; standard output if it is left out
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Export {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.run.find(store.as_ref()).await?;
        let export = RunExport::read(store.as_ref(), run).await?;
        let export = export.ok_or_else(|| Failure::not_found(format!("there is no run {run}")))?;
        let text = export.to_json()?;
        let Some(path) = self.output else { return app.ui.line(text.trim_end()) };
        let written = std::fs::write(&path, &text);
        written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        let (entries, items) = (export.history.len(), export.inbox.len());
        let answer = json!({ "run": run, "file": path, "history": entries, "inbox": items });
        app.ui.result(&answer, format_args!("{run} is in {}: {entries} entries of history", path.display()))
    }
}
