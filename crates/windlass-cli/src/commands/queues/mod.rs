//! `windlass queues`: look at queues and change them.

mod change;
mod set;
pub(crate) use set::{print_changes, put};
mod show;

use crate::app::App;
use crate::failure::Failure;
use crate::table::{number, text};
use crate::ui::Listing;
use clap::{Args, Subcommand};
use windlass_operate::queue_view::settings_note;

/// Look at queues and change them.
#[derive(Debug, Subcommand)]
pub(crate) enum Queues {
    List(List),
    Show(show::Show),
    /// Pause a queue, or one kind of it: nothing is claimed any more, what runs goes on.
    #[command(after_help = "Examples:\n  windlass queues pause mail\n  windlass queues pause mail --kind newsletter")]
    Pause(change::SetPaused<true>),
    /// Resume a queue, or one kind of it.
    #[command(after_help = "Examples:\n  windlass queues resume mail\n  windlass queues resume mail --kind newsletter")]
    Resume(change::SetPaused<false>),
    Drain(change::Drain),
    Clean(change::Clean),
    Set(Box<set::Set>),
    Obliterate(change::Obliterate),
}

dispatch!(Queues: List, Show, Pause, Resume, Drain, Clean, Set, Obliterate);

const AFTER: &str = "\
Examples:
  windlass queues list
  windlass queues list --json | jq 'select(.counts.failed > 0) | .name'";

/// List all queues and what is in them.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct List {}

impl List {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let headers = ["QUEUE", "SCHEDULED", "READY", "ACTIVE", "SUCCEEDED", "FAILED", "CANCELLED", "NOTE"];
        let mut list = Listing::new(app.ui, &headers);
        for queue in store.queues().await? {
            list.add(&queue, || {
                let counts = queue.counts;
                let numbers =
                    [counts.scheduled, counts.ready, counts.active, counts.succeeded, counts.failed, counts.cancelled];
                let mut row = vec![text(&queue.name)];
                row.extend(numbers.map(number));
                row.push(text(settings_note(&queue.settings)));
                row
            })?;
        }
        list.end("no queues; a queue is made by its first job", None, "")
    }
}
