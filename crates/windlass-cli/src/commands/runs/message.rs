//! `windlass runs signal`, `resolve`, `terminate`.

use crate::app::App;
use crate::failure::Failure;
use crate::json_arg::read_json;
use clap::Args;
use serde_json::json;
use windlass::durable::PromiseToken;
use windlass_operate::names::RunName;
use windlass_operate::run_change::{SignalInput, resolve_promise, signal_run, terminate_run};

const SIGNAL_AFTER: &str = "\
When it returns, the signal is stored; the code receives it when it asks for a signal of this name. A run that is stuck keeps \
it. With --message-id the command may be repeated: the run gets the signal once.

Examples:
  windlass runs signal order-7 approve '{\"by\":\"ada\"}'
  windlass runs signal order-7 paid @webhook.json --message-id evt_1042";

/// Send a signal to a run of a workflow in code.
#[derive(Debug, Args)]
#[command(after_help = SIGNAL_AFTER)]
pub(crate) struct Signal {
    /// The run's id, `latest`, or the name that it was given with --id
    run: RunName,
    /// The name of the signal
    name: String,
    /// Its body, JSON: as it stands here, `-` for standard input, `@FILE` for a file; null when it is left out
    #[arg(allow_negative_numbers = true)]
    body: Option<String>,
    /// An id of the message: repeats among the last 1,000 are dropped
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
}

impl Signal {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let body = read_json(self.body.as_deref(), "body")?;
        let store = app.existing()?;
        let run = self.run.find(store.as_ref()).await?;
        let signal = SignalInput { name: self.name.clone(), body, message_id: self.message_id };
        signal_run(&store, run, signal).await?;
        let name = self.name;
        app.ui.result(&json!({ "run": run, "signal": name }), format_args!("{run} has the signal {name}"))
    }
}

const RESOLVE_AFTER: &str = "\
The token is what the code handed out: <run id>.<16 hexadecimal digits>. A promise that is resolved already keeps its value.

Examples:
  windlass runs resolve r0-01k9z3v8q2f7t8x6m5n4p3r2s1.00c0ffee00c0ffee '{\"approved\":true}'";

/// Give a promise of a run its value.
#[derive(Debug, Args)]
#[command(after_help = RESOLVE_AFTER)]
pub(crate) struct Resolve {
    /// The token of the promise
    token: PromiseToken,
    /// The value, JSON: as it stands here, `-` for standard input, `@FILE` for a file
    #[arg(allow_negative_numbers = true)]
    value: String,
}

impl Resolve {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let value = read_json(Some(&self.value), "value")?;
        let store = app.existing()?;
        resolve_promise(&store, &self.token, value).await?;
        let run = self.token.run;
        let token = self.token;
        app.ui.result(
            &json!({ "run": run, "promise": token }),
            format_args!("{run} has the value, unless the promise had one already"),
        )
    }
}

const TERMINATE_AFTER: &str = "\
The run ends at once, whatever it does and even if it is stuck; its code gets no chance to clean up, and nothing is undone. Its \
jobs are cancelled by the next worker that has its workflow. To end a run in good order: windlass runs cancel.

Examples:
  windlass runs terminate latest --reason 'a bad deploy'";

/// End a run at once: a graph or a workflow in code, stuck or not.
#[derive(Debug, Args)]
#[command(after_help = TERMINATE_AFTER)]
pub(crate) struct Terminate {
    /// The run's id, `latest`, or the name that it was given with --id
    run: RunName,
    /// Why, for those who look at it later
    #[arg(long, default_value = "terminated by hand")]
    reason: String,
}

impl Terminate {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.run.find(store.as_ref()).await?;
        terminate_run(&store, run, &self.reason).await?;
        app.ui.result(&json!({ "run": run, "state": "terminated" }), format_args!("{run} terminated"))
    }
}
