//! Time, medians, percentiles.

use std::time::{Duration, Instant};

/// How long before its time a sleeper wakes, to spend the rest awake: the system's sleep is not exact enough to measure
/// by.
const AWAKE: Duration = Duration::from_micros(200);

/// Measures real time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Since the start.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Since the start, in seconds; never 0, because it is divided by.
    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Things that happen at a steady rate, each at its planned time whatever became of those before it: an open loop. What is
/// late is late by the plan, so that a stall counts for all that it delayed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    started: Stopwatch,
    rate: f64,
}

impl Pace {
    /// `rate` times a second, from now on.
    pub fn start(rate: f64) -> Self {
        Self { started: Stopwatch::start(), rate }
    }

    /// When the n-th is planned, counted from the start.
    pub fn planned(&self, n: u32) -> Duration {
        Duration::from_secs_f64(f64::from(n) / self.rate)
    }

    /// Waits for the n-th. It blocks its thread.
    #[expect(
        clippy::disallowed_methods,
        reason = "an async timer is no finer than a millisecond, which is what is measured"
    )]
    pub fn wait(&self, n: u32) {
        let planned = self.planned(n);
        loop {
            match planned.checked_sub(self.started.elapsed()) {
                None => return,
                Some(left) if left > AWAKE => std::thread::sleep(left - AWAKE),
                Some(_) => std::hint::spin_loop(),
            }
        }
    }

    /// How long after its planned time the n-th is now, in microseconds.
    pub fn late_us(&self, n: u32) -> f64 {
        self.started.elapsed().saturating_sub(self.planned(n)).as_secs_f64() * 1e6
    }
}

/// The median of a few measurements; 0 of none.
pub fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Many measurements, in order.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Puts them in order.
    pub fn new(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        Self(all)
    }

    /// What `percent` of them do not exceed; 0 of none.
    pub fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_rank() {
        let samples = Samples::new((1..=200).rev().map(f64::from).collect());
        assert_eq!([50, 90, 99, 100].map(|p| samples.percentile(p)), [100.0, 180.0, 198.0, 200.0]);
        assert_eq!(Samples::new(vec![7.0]).percentile(99), 7.0);
        assert_eq!(Samples::default().percentile(99), 0.0);
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn a_pace_is_kept_from_its_start_and_what_is_late_counts_from_the_plan() {
        let pace = Pace::start(1_000.0);
        pace.wait(5);
        assert!(pace.started.elapsed() >= Duration::from_millis(5));
        assert!(pace.late_us(0) >= 5_000.0, "the first was planned at once");
        assert_eq!(pace.late_us(1_000_000), 0.0);
    }
}
