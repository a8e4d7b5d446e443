//! `windlass workers`: who is there.

use crate::app::App;
use crate::failure::Failure;
use crate::table::{Cell, number, text, whole};
use crate::ui::Listing;
use clap::Args;
use comfy_table::Color;
use windlass::core::store::{Kinds, WorkerStatus};
use windlass::core::time::Timestamp;
use windlass_operate::text::relative_time;

const AFTER: &str = "\
A worker that was not heard of for its own time is shown as dead until it is pruned. With --json: what the worker said \
about itself (`beat`), when it came (`since`), when it was last heard of (`seen_at`), and whether it is `live`.

Examples:
  windlass workers
  windlass workers --json | jq 'select(.live) | .beat.running'";

/// List workers: live or not, what they do, and how busy they are.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Workers {}

impl Workers {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let now = store.now().await?;
        let headers = ["WORKER", "LIVE", "RUNNING", "SEEN", "QUEUES", "KINDS", "LABELS", "ABOUT"];
        let mut list = Listing::new(app.ui, &headers);
        store.workers().await?.iter().try_for_each(|worker| list.add(worker, || row(worker, now)))?;
        list.end("no workers", None, "")
    }
}

fn row(worker: &WorkerStatus, now: Timestamp) -> Vec<Cell> {
    let beat = &worker.beat;
    let live = if worker.live { whole("live").color(Color::Green) } else { whole("dead").color(Color::Red) };
    let kinds = match &beat.kinds {
        Kinds::Any => "any".to_owned(),
        Kinds::Only(kinds) => joined(kinds),
    };
    vec![
        text(&beat.worker),
        live,
        number(format_args!("{}/{}", beat.running, beat.slots)),
        whole(relative_time(worker.seen_at, now)),
        text(joined(&beat.queues)),
        text(kinds),
        text(joined(beat.labels.iter())),
        text(&beat.about),
    ]
}

fn joined<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(",")
}
