//! `windlass jobs`: look at jobs and change them.

mod change;
mod list;
mod logs;
mod show;
mod watch;

use clap::{Args, Subcommand};
use windlass::core::job::State;
use windlass::core::name::{GroupName, Kind, Label, QueueName};
use windlass::core::store::Filter;

/// Look at jobs and change them.
#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    List(list::List),
    Show(show::Show),
    Retry(change::Retry),
    Cancel(change::Cancel),
    Remove(change::Remove),
    Logs(logs::Logs),
    Watch(watch::Watch),
}

dispatch!(Jobs: List, Show, Retry, Cancel, Remove, Logs, Watch);

/// Which jobs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which jobs")]
#[group(id = "filter", multiple = true)]
pub(crate) struct Which {
    /// On this queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<QueueName>,
    /// In this state: scheduled, ready, active, succeeded, failed, cancelled
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<State>,
    /// Of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// Of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<GroupName>,
    /// That require this label
    #[arg(long, value_name = "LABEL")]
    label: Option<Label>,
    /// With this text in the custom id, the last error, or the payload
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
}

impl Which {
    pub(crate) fn filter(self) -> Filter {
        let Self { queue, state, kind, group, label, text } = self;
        Filter { queue, state, kind, group, label, text }
    }

    /// In words, for a question.
    pub(crate) fn words(&self) -> String {
        let state = self.state.map_or("".to_owned(), |state| format!("{state} "));
        let mut words = format!("all {state}jobs");
        let mut and = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                words.push_str(&format!(" of {name} `{value}`"));
            }
        };
        and("queue", self.queue.as_ref().map(QueueName::as_str));
        and("kind", self.kind.as_ref().map(Kind::as_str));
        and("group", self.group.as_ref().map(GroupName::as_str));
        and("label", self.label.as_ref().map(Label::as_str));
        and("text", self.text.as_deref());
        words
    }
}
