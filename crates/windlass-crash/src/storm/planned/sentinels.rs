//! A Sentinel that is outdated or frozen during a failover, and processes that start right after it.

use super::PlannedStorm;
use crate::Result;
use crate::child::pass_ms;
use crate::storm::bed::{Bed, at};
use crate::storm::fault::BrokenSentinel;

/// Callers that start together.
const NEWCOMERS: u32 = 4;

/// When new processes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Right after the promotion: the old primary is dead, or still has its role.
    Promoted,
    /// When the old primary is a replica of the new one.
    Attached,
}

impl Start {
    /// For how long the other Sentinels are stopped, so that the outdated one answers first; longer than the store waits for
    /// further answers. Not after a promotion: the old primary then agrees with the outdated Sentinel, and a process that
    /// does not reach the Sentinel that leads the failover cannot find out.
    fn head_start_ms(self) -> Option<u64> {
        match self {
            Self::Promoted => None,
            Self::Attached => Some(600),
        }
    }
}

impl PlannedStorm {
    /// Before the failover.
    pub(super) async fn break_sentinel(&self) -> Result<()> {
        match self.fault.broken_sentinel() {
            None => Ok(()),
            Some(BrokenSentinel::Outdated) => {
                // Of two nodes it has named the right one again after every second failover.
                let name_primary = |bed: &Bed| {
                    let sentinel = bed.sentinel()?;
                    Ok(sentinel.restart_stale_sentinel(bed.outdated()?, sentinel.primary_port()?)?)
                };
                at(&self.bed, name_primary).await
            }
            Some(BrokenSentinel::Frozen) => {
                let drawn = self.dice.below(u64::MAX);
                at(&self.bed, move |bed| {
                    let sentinels = bed.sentinel()?.sentinels();
                    let index = usize::try_from(drawn % sentinels.len().max(1) as u64)?;
                    Ok(sentinels.get(index).ok_or("there are no sentinels")?.pause()?)
                })
                .await
            }
        }
    }

    /// Starts callers after a failover. Returns the longest time until one of them was acknowledged.
    pub(super) async fn newcomers_ms(&mut self, start: Start) -> Result<u64> {
        let Some(broken) = self.fault.broken_sentinel() else { return Ok(0) };
        let head_start_ms = start.head_start_ms().filter(|_| broken == BrokenSentinel::Outdated);
        if head_start_ms.is_some() {
            at(&self.bed, |bed| bed.sentinel()?.sentinels().iter().try_for_each(|one| Ok(one.pause()?))).await?;
        }
        let newcomers = self.load.start_newcomers(NEWCOMERS)?;
        if let Some(head_start_ms) = head_start_ms {
            pass_ms(head_start_ms).await;
            self.continue_sentinels().await?;
        }
        newcomers.longest_ms().await
    }

    /// Lets Sentinels that are stopped go on.
    pub(super) async fn continue_sentinels(&self) -> Result<()> {
        let resume = |bed: &Bed| {
            let mut stopped = bed.sentinel()?.sentinels().iter().filter(|one| !one.is_up());
            stopped.try_for_each(|one| Ok(one.resume()?))
        };
        at(&self.bed, resume).await
    }
}
