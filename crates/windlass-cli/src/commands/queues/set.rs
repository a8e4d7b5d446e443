//! `windlass queues set`: only what is named is changed.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use serde_json::json;
use windlass::core::name::QueueName;
use windlass::core::store::{QueueSettings, RetentionRule, Setting};
use windlass_operate::queue_view::settings_lines;
use windlass_operate::values::{OrNone, RateText, Span};

const AFTER: &str = "\
Only what is named is changed; `none` clears a setting. The queue is made if it is not there.

Examples:
  windlass queues set mail --cap 10 --rate 100/1m
  windlass queues set mail --rate none --max-length 1000000
  windlass queues set mail --keep-succeeded 1h --keep-failed 30d
  windlass queues set tenants --group-cap 2 --group-weight 1";

/// Change the settings of a queue.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
#[group(id = "settings", multiple = true)]
pub(crate) struct Set {
    /// The queue
    queue: QueueName,
    /// How many jobs may be active at once
    #[arg(long, value_name = "N|none")]
    cap: Option<OrNone<u32>>,
    /// How many jobs may start in how long: 100/1m
    #[arg(long, value_name = "RATE|none")]
    rate: Option<OrNone<RateText>>,
    /// How many jobs may wait; further ones are refused
    #[arg(long, value_name = "N|none")]
    max_length: Option<OrNone<u64>>,
    /// How long succeeded jobs are kept
    #[arg(long, value_name = "TIME|none", help_heading = "Retention")]
    keep_succeeded: Option<OrNone<Span>>,
    /// How many succeeded jobs are kept
    #[arg(long, value_name = "N|none", help_heading = "Retention")]
    keep_succeeded_count: Option<OrNone<u64>>,
    /// How long failed jobs are kept
    #[arg(long, value_name = "TIME|none", help_heading = "Retention")]
    keep_failed: Option<OrNone<Span>>,
    /// How many failed jobs are kept
    #[arg(long, value_name = "N|none", help_heading = "Retention")]
    keep_failed_count: Option<OrNone<u64>>,
    /// How long cancelled jobs are kept
    #[arg(long, value_name = "TIME|none", help_heading = "Retention")]
    keep_cancelled: Option<OrNone<Span>>,
    /// How many cancelled jobs are kept
    #[arg(long, value_name = "N|none", help_heading = "Retention")]
    keep_cancelled_count: Option<OrNone<u64>>,
    /// How many jobs of one group may be active at once, where the group says nothing else
    #[arg(long, value_name = "N|none", help_heading = "Every group")]
    group_cap: Option<OrNone<u32>>,
    /// How many jobs of one group may start in how long
    #[arg(long, value_name = "RATE|none", help_heading = "Every group")]
    group_rate: Option<OrNone<RateText>>,
    /// The share of a group
    #[arg(long, value_name = "N|none", help_heading = "Every group")]
    group_weight: Option<OrNone<u32>>,
}

impl Set {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let none_given =
            Failure::invalid("nothing is to be changed").hint("name a setting, such as --cap 10; see --help");
        let mut checked = QueueSettings::default();
        if !self.apply(&mut checked) {
            return Err(none_given);
        }
        // Before the store is opened, which would make the file.
        checked.check()?;
        let store = app.store()?;
        let known = store.queues().await?.into_iter().find(|queue| queue.name == self.queue);
        let before = known.map(|queue| queue.settings).unwrap_or_default();
        let mut after = before.clone();
        self.apply(&mut after);
        after.check()?;
        if after != before {
            store.configure(Setting::Queue { queue: self.queue.clone(), settings: after.clone() }).await?;
        }
        if app.ui.json {
            return app.ui.json(&json!({ "queue": self.queue, "before": before, "after": after }));
        }
        print_changes(app, settings_lines(&before), settings_lines(&after))
    }

    /// Puts what was named into `settings`; false when nothing was.
    fn apply(&self, settings: &mut QueueSettings) -> bool {
        let keep = &mut settings.retention;
        let rate = |given: OrNone<RateText>| given.value().map(|rate| rate.0);
        [
            put(&mut settings.cap, self.cap.map(OrNone::value)),
            put(&mut settings.rate, self.rate.map(rate)),
            put(&mut settings.len_max, self.max_length.map(OrNone::value)),
            put_rule(&mut keep.succeeded, self.keep_succeeded, self.keep_succeeded_count),
            put_rule(&mut keep.failed, self.keep_failed, self.keep_failed_count),
            put_rule(&mut keep.cancelled, self.keep_cancelled, self.keep_cancelled_count),
            put(&mut settings.groups.cap, self.group_cap.map(OrNone::value)),
            put(&mut settings.groups.rate, self.group_rate.map(rate)),
            put(&mut settings.groups.weight, self.group_weight.map(OrNone::value)),
        ]
        .contains(&true)
    }
}

/// Prints the settings that have changed.
pub(crate) fn print_changes<T: IntoIterator<Item = (&'static str, String)>>(
    app: &App,
    before: T,
    after: T,
) -> Result<(), Failure> {
    let mut changed = false;
    for ((name, old), (_, new)) in before.into_iter().zip(after).filter(|(old, new)| old != new) {
        app.ui.line(format_args!("{name}: {old} → {new}"))?;
        changed = true;
    }
    if !changed {
        app.ui.note("it was set so already");
    }
    Ok(())
}

/// Takes over what was given; false when nothing was.
pub(crate) fn put<T>(place: &mut T, given: Option<T>) -> bool {
    given.map(|value| *place = value).is_some()
}

fn put_rule(rule: &mut RetentionRule, age: Option<OrNone<Span>>, count: Option<OrNone<u64>>) -> bool {
    let aged = put(&mut rule.age_ms, age.map(|age| age.value().map(|span| span.ms)));
    put(&mut rule.count, count.map(OrNone::value)) | aged
}
