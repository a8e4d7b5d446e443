//! Schedules as people and programs see them.

use crate::error::OperateError;
use crate::job_view::payload_json;
use crate::values::Span;
use serde_json::{Value, json};
use windlass::Job as _;
use windlass::core::job::JobSpec;
use windlass::core::schedule::{Rule, Schedule};
use windlass::core::time::Timestamp;
use windlass::durable::StartWorkflow;

/// A rule in words: its cron expression with the zone, or `every 5m`.
pub fn rule_text(rule: &Rule) -> String {
    match rule {
        Rule::Cron { expression, zone } => format!("{expression} {zone}"),
        Rule::Every { ms } => format!("every {}", Span { ms: *ms }),
    }
}

/// What a schedule creates: the kind of its jobs, or `run of order@2`.
pub fn scheduled_kind(spec: &JobSpec) -> String {
    let start =
        (spec.kind.as_str() == StartWorkflow::KIND).then(|| spec.payload.to_json::<StartWorkflow>().ok()).flatten();
    start.map_or_else(|| spec.kind.to_string(), |start| format!("run of {}", start.kind))
}

/// A schedule with a readable payload, as `windlass schedules list --json` prints it.
pub fn schedule_view(schedule: &Schedule) -> Value {
    let mut value = json!(schedule);
    value["spec"]["payload"] = json!(payload_json(&schedule.spec.payload));
    value["spec"]["content_type"] = json!(schedule.spec.payload.content_type);
    value
}

/// The next ticks, at most `max`, as far as the end and the limit of the schedule allow them.
pub fn next_ticks(schedule: &Schedule, max: usize) -> Result<Vec<Timestamp>, OperateError> {
    let mut ticks = Vec::new();
    let Some(first) = schedule.next_tick.filter(|_| !schedule.is_over()) else { return Ok(ticks) };
    let left = schedule.limit.map_or(u64::MAX, |limit| limit.saturating_sub(schedule.fired));
    let mut next = Some(first);
    while let Some(tick) = next.filter(|tick| schedule.end.is_none_or(|end| *tick <= end)) {
        if ticks.len() >= max || ticks.len() as u64 >= left {
            break;
        }
        ticks.push(tick);
        next = schedule.rule.next_after(tick, schedule.start.unwrap_or(first))?;
    }
    Ok(ticks)
}
