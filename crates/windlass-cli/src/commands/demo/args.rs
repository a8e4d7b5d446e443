//! What can be asked of the demo.

use clap::Args;
use std::time::Duration;
use windlass_operate::values::Span;

const AFTER: &str = "\
Examples:
  windlass demo                                     watch it until q or Ctrl-C
  windlass demo --for 20s --json                    one summary line for programs
  windlass demo --keep --for 10s                    and look at the store afterwards
  windlass demo --store sqlite://demo.db            beside `windlass top --store sqlite://demo.db`
  windlass demo --store redis://localhost:6379      on a server; only the queues demo-… are touched

Exit code: 0 when every job ended, nothing was lost and nothing completed twice, 1 otherwise";

/// See it all, live: jobs flow, fail, retry, time out; workers are frozen and killed; nothing is lost
///
/// Starts worker processes over one store, enqueues email, webhook, thumbnail and invoice jobs, freezes a worker or
/// kills one now and then, and in the end compares what was acknowledged, what the workers wrote down and what the store
/// has. Without --store that is a temporary SQLite file; `WINDLASS_STORE` is left alone, so that a demo never gets into a
/// store by accident. With --store it may be any other that processes can share: a file, a Redis server, a Sentinel set, a
/// Cluster.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Demo {
    /// End by itself after this time: 20s, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = time_to_run)]
    pub(super) duration: Option<Duration>,
    /// Worker processes
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) workers: u32,
    /// Jobs that each of them runs at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) slots: u32,
    /// Jobs enqueued per second
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub(super) rate: u32,
    /// How long a job takes, more or less
    #[arg(long, default_value = "150ms", value_name = "TIME", value_parser = latency)]
    pub(super) latency: Duration,
    /// The share of attempts that fail, from 0 to 1
    #[arg(long, default_value_t = 0.1, value_name = "SHARE", value_parser = share)]
    pub(super) fail_rate: f64,
    /// The share of jobs that hang until their timeout, from 0 to 1; only thumbnails do
    #[arg(long, default_value_t = 0.02, value_name = "SHARE", value_parser = share)]
    pub(super) hang_rate: f64,
    /// For how long a worker may vanish before its jobs go to others
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = lease)]
    pub(super) lease: Duration,
    /// Repeat the jobs and failures of another run
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Freeze and kill nobody
    #[arg(long)]
    pub(super) no_faults: bool,
    /// Keep the temporary store, and say how to look at it
    #[arg(long)]
    pub(super) keep: bool,
}

impl Demo {
    /// How long one attempt at a thumbnail may take.
    pub(super) fn timeout(&self) -> Duration {
        self.latency * 3 + Duration::from_millis(300)
    }
}

fn time_to_run(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), Duration::from_secs(24 * 3_600))
}

fn latency(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, Duration::from_secs(60))
}

/// A worker renews at a third of its lease: below this a busy machine would lose leases by itself.
fn lease(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(300), Duration::from_secs(60))
}

fn between(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let time = text.parse::<Span>().map_err(|wrong| wrong.to_string())?.duration();
    if (min..=max).contains(&time) { Ok(time) } else { Err(format!("give from {min:?} to {max:?}")) }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "give a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("give a number from 0 to 1".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_lie_between_nothing_and_all() {
        assert_eq!((share("0"), share("1")), (Ok(0.0), Ok(1.0)));
        for wrong in ["2", "-0.1", "NaN", "inf", "x"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
