//! `windlass schedules add`.

use super::timing::Timing;
use crate::app::App;
use crate::failure::Failure;
use crate::job_args::JobArgs;
use clap::Args;
use windlass::core::job::Due;
use windlass::core::name::ScheduleName;
use windlass::core::schedule::Schedule;

const AFTER: &str = "\
A schedule of this name that is there already is changed; when its rule and start stay the same, so does its next tick. \
When the clocks change, a time that is left out ticks at the moment of the change, and one that comes twice ticks once.

Examples:
  windlass schedules add nightly reports render --cron '30 2 * * *' --zone Europe/Berlin
  windlass schedules add heartbeat ops ping --every 5m --overlap skip
  windlass schedules add backfill ops copy '{\"from\":1}' --every 1h --limit 24 --catch-up all:24";

/// Make or change a schedule, and print its next three ticks.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Add {
    /// Its name
    name: ScheduleName,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    timing: Timing,
}

impl Add {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let rule = self.timing.rule()?;
        let (spec, due) = self.job.read()?.into_spec()?;
        if due != Due::Now {
            return Err(Failure::invalid("a schedule says when its jobs start; leave out --delay and --run-at"));
        }
        let schedule = self.timing.apply(Schedule::new(self.name, rule, spec));
        super::put(app, schedule).await
    }
}
