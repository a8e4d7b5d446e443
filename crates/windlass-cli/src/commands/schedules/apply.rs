//! `windlass schedules apply`: the schedules that a workflow names under `on`.

use crate::app::App;
use crate::failure::Failure;
use crate::workflow_file::{WorkflowFile, refused};
use clap::Args;
use windlass::Job as _;
use windlass::core::job::JobSpec;
use windlass::core::name::{Kind, QueueName, ScheduleName};
use windlass::core::payload::Payload;
use windlass::core::schedule::Schedule;
use windlass::graph::yaml::Trigger;
use windlass::runs::StartRun;
use windlass_operate::values::pair;

const AFTER: &str = "\
Each tick enqueues a job that starts the run; any `windlass worker` on its queue takes it. The schedules are named after the \
workflow; said again, they are changed. They keep the workflow as it is in the file now: apply it again when it has changed.

Examples:
  windlass schedules apply nightly.yml
  windlass schedules apply report.yml --input region=eu --queue reports";

/// Make the schedules that a workflow names under `on: schedule`.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Apply {
    /// The file; - is standard input
    file: String,
    /// An input of its runs; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// The queue of the jobs that start the runs
    #[arg(long, value_name = "QUEUE", default_value = "default")]
    queue: QueueName,
}

impl Apply {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let workflow = WorkflowFile::open(&self.file)?.workflow(app.ui.json)?;
        if workflow.triggers.is_empty() {
            return Err(Failure::failed(format!("{} names no schedule", self.file))
                .hint("write on: { schedule: [{ cron: '0 4 * * *' }] }"));
        }
        let inputs = workflow.resolve_inputs(self.inputs.into_iter().collect()).map_err(|error| refused(&error))?;
        let name = workflow.graph.name.clone();
        let payload = Payload::json(&StartRun { graph: workflow.graph, inputs })?;
        let spec = JobSpec::new(self.queue, Kind::new(StartRun::KIND)?, payload);
        spec.check()?;
        let store = app.store()?;
        let (now, stored) = (store.now().await?, store.schedules().await?);
        for (at, Trigger::Schedule(rule)) in workflow.triggers.iter().enumerate() {
            let name = if at == 0 { name.clone() } else { format!("{name}-{}", at + 1) };
            let schedule = Schedule::new(ScheduleName::new(&name)?, rule.clone(), spec.clone());
            let known = stored.iter().find(|stored| stored.name == schedule.name);
            let schedule = schedule.arm(known, now)?;
            store.put_schedule(schedule.clone()).await?;
            app.ui.note(format_args!("{} `{}`", if known.is_some() { "changed" } else { "added" }, schedule.name));
            super::print(app, &schedule, now)?;
        }
        Ok(())
    }
}
