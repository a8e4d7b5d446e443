//! `windlass feed`: how long the feed is.

use crate::app::App;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use serde_json::json;
use windlass::core::store::{FEED_EVENTS_MAX, FEED_EVENTS_MIN, FeedRequest};

/// Show or set how many events the feed keeps.
#[derive(Debug, Subcommand)]
pub(crate) enum Feed {
    Show(Show),
    Set(Set),
}

dispatch!(Feed: Show, Set);

const AFTER_SHOW: &str = "\
With --json: `events`, how many the feed keeps at least, and `end`, the number of its last entry.

Examples:
  windlass feed show
  windlass feed show --json | jq .events";

/// Show how many events the feed keeps, and where it ends.
#[derive(Debug, Args)]
#[command(after_help = AFTER_SHOW)]
pub(crate) struct Show {}

impl Show {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let events = store.feed_events().await?;
        let end = store.read_feed(FeedRequest { after: None, max: 1 }).await?.next.0;
        app.ui.result(
            &json!({ "events": events, "end": end }),
            format_args!("keeps at least {events} events; the last entry is {end}"),
        )
    }
}

const AFTER_SET: &str = "\
The length is stored: it holds for every process that uses the store, until it is set again. The default is 100000. A \
reader that is further behind than the feed is long misses events, and is told so. On Redis an event takes 30 to 110 bytes \
of memory.

Examples:
  windlass feed set --events 20000
  windlass feed set --events 1000000";

/// Set how many events the feed keeps at least.
#[derive(Debug, Args)]
#[command(after_help = AFTER_SET)]
pub(crate) struct Set {
    /// How many events, from 1000 to 10000000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(FEED_EVENTS_MIN..=FEED_EVENTS_MAX))]
    events: u64,
}

impl Set {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let before = store.feed_events().await?;
        store.set_feed_events(self.events).await?;
        app.ui.result(
            &json!({ "events": self.events, "before": before }),
            format_args!("keeps at least {} events, before: {before}", self.events),
        )
    }
}
