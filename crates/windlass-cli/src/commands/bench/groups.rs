//! `windlass bench groups`.

use super::cost::{Backlog, Costs};
use super::stand::{Common, Stand};
use crate::failure::Failure;
use clap::Args;
use windlass_bench::{Figure, Line};

/// Few groups; many are as many as there are jobs.
const FEW: u32 = 1_000;

/// What a job costs in one of a thousand groups, and in one of a million
///
/// Enqueue, claim and complete, 250 jobs at a time, on top of three backlogs of the same size: without groups, with 10^3
/// of them, and with a group for each job. `growth` is the cost with the most against that without, and on Redis
/// `redis_cpu_growth` is that of the server's processor alone. The floor has no groups.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench groups\n  windlass bench groups --jobs 100000 --store redis://127.0.0.1"
)]
pub(crate) struct Groups {
    #[command(flatten)]
    pub(super) common: Common,
}

impl Groups {
    pub(super) fn new(common: Common) -> Self {
        Self { common }
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        let jobs = self.common.jobs(1_000_000);
        let groups = [0, FEW.min(jobs), jobs];
        let backlogs = groups.map(|groups| Backlog { jobs, groups: (groups > 0).then_some(groups) });
        let costs = Costs::measure(stand, &backlogs, self.common.rounds()).await?;
        let line = Line::new("groups", &stand.ground.kind).with("jobs", jobs);
        Ok(costs.onto(line.with("groups", Figure::Counts(groups.map(u64::from).to_vec()))))
    }
}
