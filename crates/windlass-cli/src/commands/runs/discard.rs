//! `windlass runs discard`.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use serde_json::json;
use windlass::durable::{Discard as What, StoredMessage};
use windlass_operate::code_run::short_json;
use windlass_operate::names::RunName;
use windlass_operate::run_change::{discard_message, find_discardable};
use windlass_operate::text::printable;

const AFTER: &str = "\
Without --item and --signal it is the message that the reason names (windlass runs show): a signal or the value of a promise that \
does not decode, or a message that is not understood. It is taken from the inbox in one step with a record of the history, which \
keeps it, and the run goes on. A message that the history has already stays there, and the code never gets it, in no replay. What \
code of an earlier build has received cannot be discarded: deploy code that reads it.

Examples:
  windlass runs discard order-7
  windlass runs discard order-7 --signal approve --yes
  windlass runs discard order-7 --item 5 --yes --json";

/// Drop a message that a stuck run of a workflow in code cannot read, and let the run go on.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Discard {
    /// The run's id, `latest`, or the name that it was given with --id
    run: RunName,
    /// The message with this number in the inbox
    #[arg(long, value_name = "N", conflicts_with = "signal")]
    item: Option<u64>,
    /// The oldest signal of this name in the inbox
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Discard {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.run.find(store.as_ref()).await?;
        let which = match (self.item, self.signal) {
            (Some(number), _) => What::Item(number),
            (None, Some(name)) => What::Signal(name),
            (None, None) => What::Unreadable,
        };
        let found = find_discardable(&store, run, &which).await?;
        app.ui.confirm(format_args!("drop {}", described(&found)), self.yes)?;
        // What was shown, and nothing else.
        let which = found.item.map(What::Item).or(found.record.map(What::Record)).unwrap_or(which);
        let StoredMessage { item, record, at, signal, id, text } = discard_message(&store, run, &which).await?;
        let answer = json!({
            "run": run, "item": item, "record": record, "at": at, "signal": signal, "message_id": id, "text": text,
        });
        app.ui.result(&answer, format_args!("{run} goes on without {}", described(&found)))
    }
}

fn described(message: &StoredMessage) -> String {
    let what = message.signal.as_ref().map_or_else(|| "the message".to_owned(), |name| format!("the signal {name}"));
    let number = match (message.item, message.record) {
        (Some(item), _) => format!(" (message {item})"),
        (None, Some(record)) => format!(" (record {record})"),
        (None, None) => String::new(),
    };
    printable(&format!("{what}{number} of {}: {}", message.at, short_json(&message.text)))
}
