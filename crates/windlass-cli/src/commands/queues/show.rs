//! `windlass queues show`.

use crate::app::App;
use crate::failure::Failure;
use crate::ui::STRONG;
use clap::Args;
use windlass::core::name::QueueName;
use windlass_operate::names::find_queue;
use windlass_operate::queue_view::{QueueHour, queue_view, read_hour, settings_lines};
use windlass_operate::text::rough_duration;

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

impl Show {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let queue = find_queue(store.as_ref(), &self.queue).await?;
        let hour = read_hour(store.as_ref(), &queue).await?;
        if app.ui.json {
            app.ui.json(&queue_view(&queue, &hour))?;
        } else {
            let field = |name: &str, text: String| app.ui.line(format_args!("{STRONG}{name:<18}{STRONG:#} {text}"));
            field("queue", queue.name.to_string())?;
            let counts = serde_json::to_value(queue.counts).unwrap_or_default();
            for state in windlass::core::job::State::ALL {
                field(state.as_str(), counts[state.as_str()].to_string())?;
            }
            for (name, text) in settings_lines(&queue.settings) {
                field(name, text)?;
            }
            app.ui.line("")?;
            print_hour(&hour, field)?;
        }
        Ok(())
    }
}

fn print_hour(queue: &QueueHour, field: impl Fn(&str, String) -> Result<(), Failure>) -> Result<(), Failure> {
    let (hour, mean) = (&queue.hour, |ms: Option<u64>| ms.map_or("-".to_owned(), rough_duration));
    field(
        "last hour",
        format!(
            "{} enqueued, {} claimed, {} succeeded, {} failed, {} cancelled, {} retried, {} stalled",
            hour.enqueued, hour.claimed, hour.succeeded, hour.failed, hour.cancelled, hour.retried, hour.stalled
        ),
    )?;
    field("rates", format!("{:.2} enqueued/s, {:.2} finished/s", hour.enqueued_per_s, hour.finished_per_s))?;
    field("mean wait and run", format!("{}, {}", mean(hour.wait_ms_mean), mean(hour.run_ms_mean)))?;
    field("enqueued", spark_line(&queue.enqueued))
}

/// One mark for each number, on a scale from zero to the largest.
fn spark_line(numbers: &[u64]) -> String {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or(0).max(1);
    let mark = |number: u64| usize::try_from((number.saturating_mul(7)).div_ceil(most)).unwrap_or(7).min(7);
    numbers.iter().map(|number| MARKS[mark(*number)]).collect()
}

#[cfg(test)]
mod tests {
    use super::spark_line;

    #[test]
    fn a_spark_line_scales_to_its_largest_number() {
        assert_eq!(spark_line(&[2, 0, 720]), "▂▁█");
        assert_eq!(spark_line(&[0, 0]), "▁▁");
    }
}
