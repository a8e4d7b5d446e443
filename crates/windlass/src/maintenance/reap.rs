//! Takes back the leases of workers that died, froze or lost the store.

use super::rounds::{Pace, Rounds};
use std::time::Duration;
use windlass_core::store::SweepKind;

/// The store says when the next lease ends. Whatever is leased later ends later, but for leases shorter than this.
const PACE: Pace = Pace { first: Duration::from_secs(1), longest: Duration::from_secs(4) };

pub(super) async fn run(rounds: &Rounds<'_>) {
    let mut round = rounds.begin("reap", PACE);
    loop {
        round.look().await;
        let found = rounds.sweep(SweepKind::Reap).await;
        round.rest(found).await;
    }
}
