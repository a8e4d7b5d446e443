//! Takes back the leases of workers that died, froze or lost the store.

use super::rounds::{Pace, Rounds};
use std::time::Duration;
use windlass_core::store::SweepKind;

/// How late a lease may be reaped while this process keeps time. The store names the end of the next lease, and a sweep
/// waits for that. A lease that is taken later and is shorter than this can end before the next sweep.
pub(super) const LEASES_LATE: Duration = Duration::from_millis(1_500);
const PACE: Pace = Pace { first: Duration::from_secs(1), longest: LEASES_LATE };

pub(super) async fn run(rounds: &Rounds<'_>) {
    let mut round = rounds.begin("reap", PACE);
    loop {
        round.look().await;
        let found = rounds.sweep(SweepKind::Reap).await;
        round.rest(found).await;
    }
}
