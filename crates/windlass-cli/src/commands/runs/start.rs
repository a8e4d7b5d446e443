//! `windlass runs start`.

use crate::app::App;
use crate::failure::{Failure, exit_code};
use crate::follow_code::follow_code;
use crate::json_arg::read_json;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::name::Kind;
use windlass::durable::{ReusePolicy, UntypedStart, kind_named};
use windlass::{Client, Error};
use windlass_operate::text::shell_quoted;
use windlass_operate::values::{Span, pair};

const AFTER: &str = "\
The run waits until a worker has registered the workflow in this version. Whether the input has the right form is for the code \
to say: one that it cannot read makes the run stuck, which windlass runs show explains.

With --wait or --follow, exit codes: 0 it succeeded, 1 it failed or is stuck, 130 it was cancelled or terminated. Ctrl-C \
leaves the run to itself.

Examples:
  windlass runs start order '{\"id\":7}' --id order-7
  windlass runs start report@2 @input.json --delay 5m --timeout 1h --label tenant=acme
  windlass runs start order '{\"id\":8}' --wait --json | jq .result";

/// Start a workflow that is written in code; workers that have the code execute it.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Start {
    /// The workflow, with its version if that is not 1: order, order@2
    #[arg(value_name = "KIND[@VERSION]", value_parser = kind_named)]
    kind: Kind,
    /// Its input, JSON: as it stands here, `-` for standard input, `@FILE` for a file; null when it is left out
    #[arg(value_name = "INPUT", allow_negative_numbers = true)]
    input: Option<String>,
    /// An id of your own, such as that of the order; it names the run in other commands
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Start the code after so long: 500ms, 30s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME")]
    delay: Option<Span>,
    /// Cancel the run after so long, counted from now; it ends as timed out
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// A label by which the run is found in lists; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// What to do when a run of the same id has ended
    #[arg(long, value_enum, default_value = "never", requires = "id")]
    reuse: Reuse,
    /// Follow it to its end, record by record
    #[arg(long, conflicts_with = "wait")]
    follow: bool,
    /// Wait for its end, and print only that
    #[arg(long)]
    wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reuse {
    /// Refuse the start
    Never,
    /// Start it again
    IfEnded,
    /// Start it again unless it succeeded
    IfNotSucceeded,
}

impl From<Reuse> for ReusePolicy {
    fn from(reuse: Reuse) -> Self {
        match reuse {
            Reuse::Never => Self::Never,
            Reuse::IfEnded => Self::IfEnded,
            Reuse::IfNotSucceeded => Self::IfNotSucceeded,
        }
    }
}

impl Start {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let (follow, wait) = (self.follow, self.wait);
        let start = self.read()?;
        let id = start.id.clone();
        let store = app.store()?;
        let started = Client::new(Arc::clone(&store)).start_untyped(start).await;
        let run = started.map_err(|error| refused(error, id.as_deref()))?.id();
        match app.ui.json {
            true => app.ui.json(&json!({ "run": run }))?,
            false => app.ui.line(run)?,
        }
        if !follow && !wait {
            return Ok(ExitCode::SUCCESS);
        }
        Ok(exit_code(follow_code(app, &store, run, wait).await?))
    }

    fn read(self) -> Result<UntypedStart, Failure> {
        let input = read_json(self.input.as_deref(), "input")?;
        let mut labels = BTreeMap::new();
        for (name, value) in self.labels {
            if labels.insert(name.clone(), value).is_some() {
                return Err(Failure::invalid(format!("the label `{}` is given twice", name.escape_debug()))
                    .hint("a label has one value; leave one of them out"));
            }
        }
        Ok(UntypedStart {
            id: self.id,
            reuse: self.reuse.into(),
            delay_ms: self.delay.map(|span| span.ms),
            timeout_ms: self.timeout.map(|span| span.ms),
            labels,
            ..UntypedStart::new(self.kind.as_str(), input)
        })
    }
}

fn refused(error: Error, id: Option<&str>) -> Failure {
    let is_taken = matches!(error, Error::RunTaken { .. });
    let failure = Failure::from(error);
    match id.filter(|_| is_taken) {
        Some(id) => {
            let id = shell_quoted(id);
            let message = format!("there is a run of the id {id} already");
            failure.with_message(message).hint(format!(
                "windlass runs show {id} shows it; once it has ended, --reuse if-ended or if-not-succeeded starts it again"
            ))
        }
        None => failure,
    }
}
