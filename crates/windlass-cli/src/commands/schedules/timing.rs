//! When a schedule ticks, as flags.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use windlass::core::schedule::{CatchUp, Overlap, Rule, Schedule};
use windlass::core::time::Timestamp;
use windlass_operate::values::{InvalidValue, Span};

/// When a schedule ticks, and what a tick does.
#[derive(Debug, Args)]
pub(super) struct Timing {
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

impl Timing {
    pub(super) fn rule(&self) -> Result<Rule, Failure> {
        match (&self.cron, self.every) {
            (Some(cron), _) => Ok(Rule::cron_in(self.zone.clone(), cron.clone())),
            (None, Some(every)) => Ok(Rule::every_ms(every.ms)),
            (None, None) => {
                Err(Failure::invalid("it is not said when it ticks").hint("give --cron '0 3 * * *', or --every 5m"))
            }
        }
    }

    pub(super) fn overlap(&self) -> Overlap {
        if self.overlap == OverlapArg::Skip { Overlap::Skip } else { Overlap::Allow }
    }

    /// The schedule with what was said here, but for the rule.
    pub(super) fn apply(&self, schedule: Schedule) -> Schedule {
        Schedule {
            start: self.start,
            end: self.end,
            limit: self.limit,
            overlap: self.overlap(),
            catch_up: self.catch_up,
            paused: self.paused,
            ..schedule
        }
    }
}
