//! `windlass bench scale`.

use super::cost::{Backlog, Costs};
use super::stand::{Common, Stand};
use crate::failure::Failure;
use clap::Args;
use windlass_bench::{Figure, Line};

/// The smallest backlog.
const SMALLEST: u32 = 1_000;

/// What a job costs with a thousand stored, and with a million
///
/// Enqueue, claim and complete, 250 jobs at a time, on top of backlogs from 10^3 to 10^6 jobs. `growth` is the cost at
/// the largest against the smallest, and on Redis `redis_cpu_growth` is that of the server's processor alone. The floor
/// is the bare table or queue, empty.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  windlass bench scale\n  windlass bench scale --huge --store memory://")]
pub(crate) struct Scale {
    #[command(flatten)]
    pub(super) common: Common,
    /// Up to 10^7 jobs
    #[arg(long, conflicts_with = "jobs")]
    huge: bool,
}

impl Scale {
    pub(super) fn new(common: Common) -> Self {
        Self { common, huge: false }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let largest = if self.huge { 10_000_000 } else { self.common.jobs(1_000_000) };
        let sizes = sizes(SMALLEST, largest);
        let backlogs: Vec<Backlog> = sizes.iter().map(|jobs| Backlog { jobs: *jobs, groups: None }).collect();
        let costs = Costs::measure(stand, &backlogs, self.common.rounds()).await?;
        let line = Line::new("scale", &stand.ground.kind).with("jobs", largest);
        Ok(costs.onto(line.with("stored", Figure::Counts(sizes.into_iter().map(u64::from).collect()))))
    }
}

/// The smallest size times powers of ten, up to the largest, which closes the row.
pub(super) fn sizes(smallest: u32, largest: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(smallest), |size| size.checked_mul(10));
    powers.take_while(|size| *size < largest).chain([largest]).collect()
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_go_up_to_the_largest() {
        assert_eq!(sizes(1_000, 1_000_000), [1_000, 10_000, 100_000, 1_000_000]);
        assert_eq!(sizes(1_000, 2_500), [1_000, 2_500]);
        assert_eq!(sizes(1_000, 7), [7]);
    }
}
