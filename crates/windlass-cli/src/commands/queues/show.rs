//! `windlass queues show`.

use super::set::lines;
use crate::app::App;
use crate::failure::Failure;
use crate::many;
use crate::ui::STRONG;
use crate::values::about;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::process::ExitCode;
use windlass::core::name::QueueName;
use windlass::core::store::{MetricsRequest, MinuteMetrics};
use windlass::core::time::Timestamp;

const MINUTES: usize = 60;

const AFTER: &str = "\
The last hour counts the sixty minutes up to now; the spark line has one mark for each two of them, on a scale of its own.

Examples:
  windlass queues show mail
  windlass queues show mail --json | jq .last_hour.enqueued_per_s";

/// Show a queue: counts, settings, and what happened in the last hour.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Show {
    /// The queue
    queue: QueueName,
}

/// What happened in the last hour.
#[derive(Debug, Default, Serialize)]
struct LastHour {
    enqueued: u64,
    claimed: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    retried: u64,
    stalled: u64,
    enqueued_per_s: f64,
    finished_per_s: f64,
    wait_ms_mean: Option<u64>,
    run_ms_mean: Option<u64>,
}

impl Show {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let store = app.existing()?;
        let queue = many::queue(store.as_ref(), &self.queue).await?;
        let now = store.now().await?;
        let from = now.minus_ms((MINUTES as u64 - 1) * 60_000);
        let minutes = store.metrics(MetricsRequest { queue: self.queue.clone(), from, to: now }).await?;
        let hour = sum(&minutes);
        if app.ui.json {
            let mut value = json!(queue);
            value["last_hour"] = json!(hour);
            value["minutes"] = json!(minutes);
            app.ui.json(&value)?;
        } else {
            let field = |name: &str, text: String| app.ui.line(format_args!("{STRONG}{name:<18}{STRONG:#} {text}"));
            field("queue", queue.name.to_string())?;
            let counts = serde_json::to_value(queue.counts).unwrap_or_default();
            for state in windlass::core::job::State::ALL {
                field(state.as_str(), counts[state.as_str()].to_string())?;
            }
            for (name, text) in lines(&queue.settings) {
                field(name, text)?;
            }
            app.ui.line("")?;
            people(&hour, &spark(&minutes, from), field)?;
        }
        store.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

fn people(hour: &LastHour, spark: &str, field: impl Fn(&str, String) -> Result<(), Failure>) -> Result<(), Failure> {
    let mean = |ms: Option<u64>| ms.map_or("-".to_owned(), about);
    field(
        "last hour",
        format!(
            "{} enqueued, {} claimed, {} succeeded, {} failed, {} cancelled, {} retried, {} stalled",
            hour.enqueued, hour.claimed, hour.succeeded, hour.failed, hour.cancelled, hour.retried, hour.stalled
        ),
    )?;
    field("rates", format!("{:.2} enqueued/s, {:.2} finished/s", hour.enqueued_per_s, hour.finished_per_s))?;
    field("mean wait and run", format!("{}, {}", mean(hour.wait_ms_mean), mean(hour.run_ms_mean)))?;
    field("enqueued", spark.to_owned())
}

fn sum(minutes: &[MinuteMetrics]) -> LastHour {
    let total = |count: fn(&MinuteMetrics) -> u64| minutes.iter().map(count).sum::<u64>();
    let per_s = |count: u64| {
        // Rounded, because a mean over an hour is no more exact than that.
        f64::from(u32::try_from(count.saturating_mul(100) / 3_600).unwrap_or(u32::MAX)) / 100.0
    };
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

/// One mark for each two minutes, from the lowest to the highest.
fn spark(minutes: &[MinuteMetrics], from: Timestamp) -> String {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut sums = [0u64; MINUTES / 2];
    for minute in minutes {
        let at = usize::try_from(minute.minute.minute() - from.minute()).unwrap_or(usize::MAX) / 2;
        if let Some(sum) = sums.get_mut(at) {
            *sum += minute.enqueued;
        }
    }
    let most = sums.iter().copied().max().unwrap_or(0).max(1);
    let mark = |sum: u64| usize::try_from((sum.saturating_mul(7)).div_ceil(most)).unwrap_or(7).min(7);
    sums.iter().map(|sum| MARKS[mark(*sum)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hour_is_summed_and_drawn() {
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
        let drawn = spark(&minutes, from);
        assert_eq!((drawn.chars().count(), drawn.chars().next(), drawn.chars().nth(1)), (30, Some('▂'), Some('▁')));
        assert_eq!(drawn.chars().last(), Some('█'));
        assert_eq!(sum(&[]).wait_ms_mean, None);
    }
}
