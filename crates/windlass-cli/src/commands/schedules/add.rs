//! `windlass schedules add`.

use crate::app::App;
use crate::failure::Failure;
use crate::job_args::JobArgs;
use clap::{Args, ValueEnum};
use windlass::core::job::Due;
use windlass::core::name::ScheduleName;
use windlass::core::schedule::{CatchUp, Overlap, Rule, Schedule};
use windlass::core::time::Timestamp;
use windlass_operate::values::{InvalidValue, Span};

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
    /// Five fields (minute, hour, day, month, weekday), six with the second before them, or @hourly, @daily, …
    #[arg(long, value_name = "CRON", conflicts_with = "every")]
    cron: Option<String>,
    /// The time zone of --cron by its IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC", conflicts_with = "every")]
    zone: String,
    /// At a fixed interval, of a second or more: 30s, 5m, 1h
    #[arg(long, value_name = "TIME")]
    every: Option<Span>,
    /// No tick before this time, RFC 3339
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    start: Option<Timestamp>,
    /// No tick after this time, RFC 3339
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    end: Option<Timestamp>,
    /// How many ticks may create a job
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// What a tick does while the last job has not ended
    #[arg(long, value_enum, default_value_t = OverlapArg::Allow)]
    overlap: OverlapArg,
    /// What happens to ticks that were missed: skip, latest, or all:MAX
    #[arg(long, value_name = "HOW", default_value = "latest", value_parser = catch_up)]
    catch_up: CatchUp,
    /// Make it paused
    #[arg(long)]
    paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OverlapArg {
    /// It creates its job all the same
    Allow,
    /// It creates none
    Skip,
}

fn catch_up(text: &str) -> Result<CatchUp, InvalidValue> {
    match text.split_once(':') {
        None if text == "skip" => Ok(CatchUp::Skip),
        None if text == "latest" => Ok(CatchUp::Latest),
        Some(("all", max)) if max.parse::<u32>().is_ok() => Ok(CatchUp::All { max: max.parse().unwrap_or(0) }),
        _ => Err(InvalidValue("write skip, latest, or all:MAX, such as all:10".to_owned())),
    }
}

impl Add {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let rule = match (self.cron, self.every) {
            (Some(cron), _) => Rule::cron_in(self.zone, cron),
            (None, Some(every)) => Rule::every_ms(every.ms),
            (None, None) => {
                return Err(
                    Failure::invalid("it is not said when it ticks").hint("give --cron '0 3 * * *', or --every 5m")
                );
            }
        };
        let (spec, due) = self.job.read()?.into_spec()?;
        if due != Due::Now {
            return Err(Failure::invalid("a schedule says when its jobs start; leave out --delay and --run-at"));
        }
        let schedule = Schedule {
            start: self.start,
            end: self.end,
            limit: self.limit,
            overlap: if self.overlap == OverlapArg::Skip { Overlap::Skip } else { Overlap::Allow },
            catch_up: self.catch_up,
            paused: self.paused,
            ..Schedule::new(self.name, rule, spec)
        };
        // Before the store is opened, which would make the file.
        schedule.check()?;
        let store = app.store()?;
        let now = store.now().await?;
        let stored = store.schedules().await?.into_iter().find(|stored| stored.name == schedule.name);
        let schedule = schedule.arm(stored.as_ref(), now)?;
        store.put_schedule(schedule.clone()).await?;
        app.ui.note(format_args!("{} `{}`", if stored.is_some() { "changed" } else { "added" }, schedule.name));
        super::print(app, &schedule, now)?;
        if schedule.is_over() {
            app.ui.note("note: it will never tick; check --start, --end and --limit");
        }
        Ok(())
    }
}
