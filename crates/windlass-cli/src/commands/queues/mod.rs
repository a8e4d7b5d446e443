//! `windlass queues`: look at queues and change them.

mod change;
mod set;
pub(crate) use set::put;
mod show;

use crate::app::App;
use crate::failure::Failure;
use crate::table::{Table, number, text};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use windlass_operate::queue_view::settings_note;

/// Look at queues and change them.
#[derive(Debug, Subcommand)]
pub(crate) enum Queues {
    List(List),
    Show(show::Show),
    Pause(change::Pause),
    Resume(change::Resume),
    Drain(change::Drain),
    Clean(change::Clean),
    Set(Box<set::Set>),
    Obliterate(change::Obliterate),
}

impl Queues {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        match self {
            Self::List(list) => list.run(app).await,
            Self::Show(show) => show.run(app).await,
            Self::Pause(pause) => pause.run(app).await,
            Self::Resume(resume) => resume.run(app).await,
            Self::Drain(drain) => drain.run(app).await,
            Self::Clean(clean) => clean.run(app).await,
            Self::Set(set) => set.run(app).await,
            Self::Obliterate(obliterate) => obliterate.run(app).await,
        }
    }
}

const AFTER: &str = "\
Examples:
  windlass queues list
  windlass queues list --json | jq 'select(.counts.failed > 0) | .name'";

/// List all queues and what is in them.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct List {}

impl List {
    async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let mut table =
            Table::new(&["QUEUE", "SCHEDULED", "READY", "ACTIVE", "SUCCEEDED", "FAILED", "CANCELLED", "NOTE"]);
        for queue in store.queues().await? {
            if app.ui.json {
                app.ui.json(&queue)?;
                continue;
            }
            let counts = queue.counts;
            let numbers =
                [counts.scheduled, counts.ready, counts.active, counts.succeeded, counts.failed, counts.cancelled];
            let mut row = vec![text(&queue.name)];
            row.extend(numbers.map(number));
            row.push(text(settings_note(&queue.settings)));
            table.row(row);
        }
        if !app.ui.json {
            match table.is_empty() {
                true => app.ui.note("no queues; a queue is made by its first job"),
                false => app.ui.table(&table)?,
            }
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}
