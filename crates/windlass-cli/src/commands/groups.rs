//! `windlass groups`: look at the groups of a queue and change them.

use crate::app::App;
use crate::commands::queues::{print_changes, put};
use crate::failure::Failure;
use crate::table::{Cell, maybe, number, text};
use crate::ui::Listing;
use clap::{Args, Subcommand};
use serde_json::json;
use windlass::core::name::{GroupName, QueueName};
use windlass::core::store::{GroupSettings, GroupStatus, GroupsRequest, LIST_MAX, Setting, Store};
use windlass::core::time::Timestamp;
use windlass_operate::names::find_queue;
use windlass_operate::queue_view::{GroupLimits, group_settings_lines, group_view};
use windlass_operate::text::relative_time;
use windlass_operate::values::{OrNone, RateText};

/// Look at the groups of a queue and change their settings.
#[derive(Debug, Subcommand)]
pub(crate) enum Groups {
    List(List),
    Set(Set),
}

dispatch!(Groups: List, Set);

const LIST_AFTER: &str = "\
What the queue says for every group is marked with (queue), a cap that runs have set with (runs). With --json `cap` is the \
group's own, and `effective_cap` the one that holds; `effective_rate` and `effective_weight` likewise.

Examples:
  windlass groups list tenants
  windlass groups list tenants --json";

/// List the groups of a queue that have work or settings.
#[derive(Debug, Args)]
#[command(after_help = LIST_AFTER)]
pub(crate) struct List {
    /// The queue
    queue: QueueName,
}

impl List {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let all = find_queue(store.as_ref(), &self.queue).await?.settings.groups;
        let now = store.now().await?;
        let mut list = Listing::new(app.ui, &["GROUP", "READY", "ACTIVE", "CAP", "RATE", "WEIGHT", "NOTE"]);
        let mut after = None;
        loop {
            let request = GroupsRequest { queue: self.queue.clone(), after, limit: LIST_MAX };
            let page = store.groups(request).await?;
            for group in &page.groups {
                list.add(&group_view(group, all), || row(group, all, now))?;
            }
            after = page.groups.last().map(|group| group.name.clone()).filter(|_| page.more);
            if after.is_none() {
                break;
            }
        }
        list.end("no groups", None, "")
    }
}

fn row(group: &GroupStatus, all: GroupSettings, now: Timestamp) -> Vec<Cell> {
    let limits = GroupLimits::new(group, all);
    let limited = group.rate_limited_until.map(|until| format!("rate limited, goes on {}", relative_time(until, now)));
    vec![
        text(&group.name),
        number(group.ready),
        number(group.active),
        maybe(limits.cap),
        maybe(limits.rate),
        maybe(limits.weight),
        text(limited.unwrap_or_default()),
    ]
}

/// Change the settings of one group; what it does not say, the queue's settings for groups say.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass groups set tenants acme --cap 5 --weight 2\n  windlass groups set tenants acme --rate none"
)]
pub(crate) struct Set {
    /// The queue
    queue: QueueName,
    /// The group
    group: GroupName,
    /// How many of its jobs may be active at once
    #[arg(long, value_name = "N|none")]
    cap: Option<OrNone<u32>>,
    /// How many of its jobs may start in how long: 100/1m
    #[arg(long, value_name = "RATE|none")]
    rate: Option<OrNone<RateText>>,
    /// Its share: a group of weight 2 gets two turns where one of weight 1 gets one
    #[arg(long, value_name = "N|none")]
    weight: Option<OrNone<u32>>,
}

impl Set {
    async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        find_queue(store.as_ref(), &self.queue).await?;
        let before = self.find(store.as_ref()).await?.map(|group| group.settings).unwrap_or_default();
        let mut after = before;
        let given = [
            put(&mut after.cap, self.cap.map(OrNone::value)),
            put(&mut after.rate, self.rate.map(|rate| rate.value().map(|rate| rate.0))),
            put(&mut after.weight, self.weight.map(OrNone::value)),
        ];
        if !given.contains(&true) {
            return Err(
                Failure::invalid("nothing is to be changed").hint("name a setting, such as --cap 5; see --help")
            );
        }
        after.check()?;
        let (queue, group) = (self.queue, self.group);
        store.configure(Setting::Group { queue: queue.clone(), group: group.clone(), settings: after }).await?;
        if app.ui.json {
            return app.ui.json(&json!({ "queue": queue, "group": group, "before": before, "after": after }));
        }
        print_changes(app, group_settings_lines(before), group_settings_lines(after))
    }

    /// The group as it is now. Groups come by name, so those behind it are not read.
    async fn find(&self, store: &dyn Store) -> Result<Option<GroupStatus>, Failure> {
        let mut after = None;
        loop {
            let page = store.groups(GroupsRequest { queue: self.queue.clone(), after, limit: LIST_MAX }).await?;
            after = page.groups.last().map(|group| group.name.clone()).filter(|last| page.more && *last < self.group);
            if let Some(found) = page.groups.into_iter().find(|group| group.name == self.group) {
                return Ok(Some(found));
            }
            if after.is_none() {
                return Ok(None);
            }
        }
    }
}
