//! Creates the jobs of schedules whose tick has come.

use super::rounds::{Found, Rounds, STEP_MAX};
use windlass_core::Result;
use windlass_core::schedule::{Ticked, tick};
use windlass_core::time::Timestamp;

pub(super) async fn once(rounds: &Rounds<'_>) -> Result<Found> {
    let Ticked { handled, failed, .. } = tick(rounds.store, STEP_MAX).await?;
    for (schedule, error) in failed {
        tracing::error!(%schedule, %error, "a tick could not be handled");
    }
    let more = handled >= u64::from(STEP_MAX);
    let next_at = if rounds.follow { next_tick(rounds).await? } else { None };
    Ok(Found { any: handled > 0, more, next_at })
}

/// Reads all schedules, which is too much to do every second.
async fn next_tick(rounds: &Rounds<'_>) -> Result<Option<Timestamp>> {
    let schedules = rounds.store.schedules().await?;
    Ok(schedules.into_iter().filter(|schedule| !schedule.paused).filter_map(|schedule| schedule.next_tick).min())
}
