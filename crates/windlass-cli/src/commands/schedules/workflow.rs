//! `windlass schedules workflow`.

use super::timing::Timing;
use crate::app::App;
use crate::failure::Failure;
use crate::json_arg::read_json;
use clap::Args;
use std::collections::BTreeMap;
use windlass::core::name::{Kind, QueueName, ScheduleName};
use windlass::durable::{ScheduledStart, kind_named};
use windlass_operate::values::{Span, pair};

const AFTER: &str = "\
Each tick enqueues a job that starts one run; any `windlass worker` on its queue takes it, and a worker in Rust that has \
`start_workflow` among its handlers. With --overlap skip no run is started while an earlier one of this schedule goes on. The \
runs have the labels windlass.schedule and windlass.tick. A schedule of this name that is there already is changed.

Examples:
  windlass schedules workflow nightly report '\"eu\"' --cron '30 2 * * *' --zone Europe/Berlin
  windlass schedules workflow sync sync@2 --every 5m --overlap skip --timeout 1h
  windlass runs list --label windlass.schedule=nightly";

/// Make or change a schedule that starts a workflow in code, and print its next three ticks.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Workflow {
    /// Its name
    name: ScheduleName,
    /// The workflow, with its version if that is not 1: report, report@2
    #[arg(value_name = "KIND[@VERSION]", value_parser = kind_named)]
    kind: Kind,
    /// The input of each run, JSON: as it stands here, `-` for standard input, `@FILE` for a file; null when it is left out
    #[arg(value_name = "INPUT", allow_negative_numbers = true)]
    input: Option<String>,
    /// The queue of the jobs that start the runs
    #[arg(long, value_name = "QUEUE", default_value = "default")]
    queue: QueueName,
    /// Cancel each run after so long; it ends as timed out
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// A label of the runs, by which they are found in lists; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    timing: Timing,
}

impl Workflow {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let rule = self.timing.rule()?;
        let input = read_json(self.input.as_deref(), "input")?;
        let mut start = ScheduledStart::new(self.kind.as_str(), input);
        start.queue = self.queue.to_string();
        start.start.overlap = self.timing.overlap();
        start.start.timeout_ms = self.timeout.map(|span| span.ms);
        let count = self.labels.len();
        start.start.labels = self.labels.into_iter().collect::<BTreeMap<_, _>>();
        if start.start.labels.len() < count {
            return Err(Failure::invalid("a label is given twice").hint("a label has one value; leave one of them out"));
        }
        super::put(app, self.timing.apply(start.schedule(self.name, rule)?)).await
    }
}
