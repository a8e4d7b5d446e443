//! Queues and groups as people and programs see them: their settings in words, and what happened in the last hour.

use crate::error::OperateError;
use crate::values::{Span, rate_text};
use serde::Serialize;
use serde_json::{Value, json};
use windlass::core::rate::Rate;
use windlass::core::store::{
    GroupSettings, GroupStatus, MetricsRequest, MinuteMetrics, QueueSettings, QueueStatus, RetentionRule, Store,
};
use windlass::core::time::Timestamp;

const MINUTES: usize = 60;
const MINUTES_PER_BAR: usize = 2;

/// What happened on a queue in the sixty minutes up to now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LastHour {
    /// Jobs that were enqueued.
    pub enqueued: u64,
    /// Attempts that began.
    pub claimed: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed for good.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Attempts that failed and were followed by another.
    pub retried: u64,
    /// Attempts whose worker vanished.
    pub stalled: u64,
    /// Jobs that were enqueued per second, to two decimals.
    pub enqueued_per_s: f64,
    /// Jobs that ended per second, to two decimals.
    pub finished_per_s: f64,
    /// The mean time from ready to claimed; `None` when nothing was claimed.
    pub wait_ms_mean: Option<u64>,
    /// The mean time of an attempt; `None` when none has ended.
    pub run_ms_mean: Option<u64>,
}

/// A queue with its last hour.
#[derive(Clone, Debug)]
pub struct QueueHour {
    /// The sums of the hour.
    pub hour: LastHour,
    /// The minutes in which something happened.
    pub minutes: Vec<MinuteMetrics>,
    /// Jobs enqueued in each two minutes, the oldest first.
    pub enqueued: Vec<u64>,
}

/// Reads what happened on a queue in the last hour.
pub async fn read_hour(store: &dyn Store, queue: &QueueStatus) -> Result<QueueHour, OperateError> {
    let now = store.now().await?;
    let from = now.minus_ms((MINUTES as u64 - 1) * 60_000);
    let minutes = store.metrics(MetricsRequest { queue: queue.name.clone(), from, to: now }).await?;
    Ok(QueueHour { hour: sum(&minutes), enqueued: bars(&minutes, from), minutes })
}

/// A queue and its last hour, as `windlass queues show --json` prints them.
pub fn queue_view(queue: &QueueStatus, hour: &QueueHour) -> Value {
    let mut value = json!(queue);
    value["last_hour"] = json!(hour.hour);
    value["minutes"] = json!(hour.minutes);
    value
}

fn sum(minutes: &[MinuteMetrics]) -> LastHour {
    let total = |count: fn(&MinuteMetrics) -> u64| minutes.iter().map(count).sum::<u64>();
    // Rounded, because a mean over an hour is no more exact than that.
    let per_s = |count: u64| f64::from(u32::try_from(count.saturating_mul(100) / 3_600).unwrap_or(u32::MAX)) / 100.0;
    let (claimed, ended) = (total(|m| m.claimed), total(|m| m.succeeded + m.failed + m.cancelled));
    let enqueued = total(|m| m.enqueued);
    let attempts = ended + total(|m| m.retried);
    LastHour {
        enqueued,
        claimed,
        succeeded: total(|m| m.succeeded),
        failed: total(|m| m.failed),
        cancelled: total(|m| m.cancelled),
        retried: total(|m| m.retried),
        stalled: total(|m| m.stalled),
        enqueued_per_s: per_s(enqueued),
        finished_per_s: per_s(ended),
        wait_ms_mean: total(|m| m.waited_ms).checked_div(claimed),
        run_ms_mean: total(|m| m.ran_ms).checked_div(attempts),
    }
}

fn bars(minutes: &[MinuteMetrics], from: Timestamp) -> Vec<u64> {
    let mut bars = vec![0; MINUTES / MINUTES_PER_BAR];
    for minute in minutes {
        let at = usize::try_from(minute.minute.minute() - from.minute()).unwrap_or(usize::MAX) / MINUTES_PER_BAR;
        if let Some(bar) = bars.get_mut(at) {
            *bar += minute.enqueued;
        }
    }
    bars
}

/// What differs from the defaults of a queue, in a few words.
pub fn settings_note(settings: &QueueSettings) -> String {
    let mut notes = Vec::new();
    if settings.paused {
        notes.push("paused".to_owned());
    }
    notes.extend(settings.paused_kinds.iter().map(|kind| format!("{kind} paused")));
    notes.extend(settings.cap.map(|cap| format!("cap {cap}")));
    notes.extend(settings.rate.map(|rate| format!("rate {}", rate_text(rate))));
    notes.extend(settings.len_max.map(|max| format!("at most {max}")));
    notes.join(", ")
}

/// Every setting of a queue with its value in words, always the same settings in the same order.
pub fn settings_lines(settings: &QueueSettings) -> Vec<(&'static str, String)> {
    let keep = |rule: RetentionRule| match (rule.age_ms.map(|ms| Span { ms }), rule.count) {
        (None, None) => "for ever".to_owned(),
        (Some(age), None) => age.to_string(),
        (None, Some(count)) => format!("the last {count}"),
        (Some(age), Some(count)) => format!("{age}, the last {count}"),
    };
    let kinds: Vec<&str> = settings.paused_kinds.iter().map(AsRef::as_ref).collect();
    let [cap, rate, weight] = group_settings_lines(settings.groups).map(|(_, value)| value);
    vec![
        ("paused", if settings.paused { "yes" } else { "no" }.to_owned()),
        ("paused kinds", or_none(Some(kinds.join(", ")).filter(|text| !text.is_empty()))),
        ("cap", or_none(settings.cap)),
        ("rate", or_none(settings.rate.map(rate_text))),
        ("max length", or_none(settings.len_max)),
        ("keep succeeded", keep(settings.retention.succeeded)),
        ("keep failed", keep(settings.retention.failed)),
        ("keep cancelled", keep(settings.retention.cancelled)),
        ("group cap", cap),
        ("group rate", rate),
        ("group weight", weight),
    ]
}

/// Every setting of a group with its value in words.
pub fn group_settings_lines(settings: GroupSettings) -> [(&'static str, String); 3] {
    [
        ("cap", or_none(settings.cap)),
        ("rate", or_none(settings.rate.map(rate_text))),
        ("weight", or_none(settings.weight)),
    ]
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// The limits that hold for a group, each with its origin where it is not the group's own: `5 (queue)`, `2 (runs)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// How many of its jobs may be active at once.
    pub cap: Option<String>,
    /// How many of its jobs may start in how long.
    pub rate: Option<String>,
    /// Its share.
    pub weight: Option<String>,
}

impl GroupLimits {
    /// `all` are the settings of the queue for every group.
    pub fn new(group: &GroupStatus, all: GroupSettings) -> Self {
        let own = group.settings;
        let of_runs = group.run_cap.filter(|_| own.cap.is_none()).map(|cap| format!("{cap} (runs)"));
        let rate = |rate: Option<Rate>| rate.map(rate_text);
        Self {
            cap: of_runs.or_else(|| effective(own.cap, all.cap)),
            rate: effective(rate(own.rate), rate(all.rate)),
            weight: effective(own.weight, all.weight),
        }
    }
}

fn effective<T: ToString>(own: Option<T>, all: Option<T>) -> Option<String> {
    own.map(|own| own.to_string()).or_else(|| all.map(|all| format!("{} (queue)", all.to_string())))
}

/// A group with its own settings and those that hold, as `windlass groups list --json` prints it.
pub fn group_view(group: &GroupStatus, all: GroupSettings) -> Value {
    let (limits, mut value) = (group.limits(all), json!(group));
    value["cap"] = json!(group.settings.cap);
    value["effective_cap"] = json!(limits.cap);
    value["effective_rate"] = json!(limits.rate);
    value["effective_weight"] = json!(limits.weight);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::core::name::GroupName;

    #[test]
    fn the_last_hour_is_the_sum_of_its_minutes() {
        let from = Timestamp::from_ms(600_000);
        let at = |minute: u64, enqueued| MinuteMetrics {
            minute: from.plus_ms(minute * 60_000),
            enqueued,
            claimed: 2,
            succeeded: 2,
            waited_ms: 100,
            ran_ms: 40,
            ..Default::default()
        };
        let minutes = [at(0, 1), at(1, 1), at(59, 720)];
        let hour = sum(&minutes);
        assert_eq!((hour.enqueued, hour.wait_ms_mean, hour.run_ms_mean), (722, Some(50), Some(20)));
        assert!((hour.enqueued_per_s - 0.2).abs() < 0.001);
        let bars = bars(&minutes, from);
        assert_eq!((bars.len(), bars[0], bars[1], bars[29]), (30, 2, 0, 720));
        assert_eq!(sum(&[]).wait_ms_mean, None);
    }

    #[test]
    fn the_cap_of_a_group_says_whether_runs_or_the_queue_have_set_it() {
        let cap = |cap| GroupSettings { cap, ..GroupSettings::default() };
        let shown = |own, run_cap, all| {
            let name = GroupName::new("acme").unwrap();
            let group =
                GroupStatus { name, ready: 0, active: 0, settings: cap(own), run_cap, rate_limited_until: None };
            let holds = group_view(&group, cap(all))["effective_cap"].as_u64();
            (GroupLimits::new(&group, cap(all)).cap, holds)
        };
        assert_eq!(shown(Some(5), Some(2), Some(7)), (Some("5".to_owned()), Some(5)));
        assert_eq!(shown(None, Some(2), Some(7)), (Some("2 (runs)".to_owned()), Some(2)));
        assert_eq!(shown(None, None, Some(7)), (Some("7 (queue)".to_owned()), Some(7)));
        assert_eq!(shown(None, None, None), (None, None));
    }
}
