//! `windlass jobs list`.

use super::Which;
use crate::app::App;
use crate::failure::Failure;
use crate::table::{Cell, maybe, number, state, text, whole};
use crate::ui::Listing;
use clap::Args;
use windlass::core::job::JobSummary;
use windlass::core::store::{LIST_MAX, ListOrder, ListRequest};
use windlass::core::time::Timestamp;
use windlass_operate::job_view::{listed_note, listed_time};
use windlass_operate::text::relative_time;

const AFTER: &str = "\
Jobs come by queue and state, and within a state in the order in which they come or came; --newest turns that round. \
With --json each job is a line; when there are more, the last line is {\"cursor\": \"…\"} for --cursor, which goes with the \
same filter and order only.

Examples:
  windlass jobs list --state failed
  windlass jobs list --queue mail --text ada@example.org --newest
  windlass jobs list --state failed --all --json | windlass jobs retry -";

/// List and search jobs.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct List {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX)), allow_negative_numbers = true)]
    limit: u32,
    /// All of them, page by page
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where an earlier listing ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// The latest first
    #[arg(long)]
    newest: bool,
    #[command(flatten)]
    which: Which,
}

impl List {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let now = store.now().await?;
        let order = if self.newest { ListOrder::Descending } else { ListOrder::Ascending };
        let filter = self.which.filter();
        let (mut cursor, mut left) = (self.cursor, if self.all { u64::MAX } else { u64::from(self.limit) });
        let mut list = Listing::new(app.ui, &["ID", "QUEUE", "KIND", "STATE", "TRIES", "PRIO", "WHEN", "NOTE"]);
        loop {
            let limit = u32::try_from(left).unwrap_or(LIST_MAX).min(LIST_MAX);
            let page = store.list(ListRequest { filter: filter.clone(), order, cursor, limit }).await?;
            cursor = page.cursor;
            left -= page.jobs.len() as u64;
            for job in &page.jobs {
                list.add(job, || row(job, now))?;
            }
            // A page may be short and still carry a cursor.
            if cursor.is_none() || left == 0 {
                break;
            }
        }
        list.end("no jobs", cursor, "--all, or ")
    }
}

fn row(job: &JobSummary, now: Timestamp) -> Vec<Cell> {
    vec![
        whole(job.id),
        text(&job.queue),
        text(&job.kind),
        state(job.state),
        number(format_args!("{}/{}", job.attempt, job.attempts_max)),
        number(job.priority),
        whole(relative_time(listed_time(job), now)),
        maybe(listed_note(job)),
    ]
}
