//! Removes what retention lets go. Nothing waits for it.

use super::rounds::{Pace, Rounds};
use std::time::Duration;
use windlass_core::store::SweepKind;

const PACE: Pace = Pace { first: Duration::from_secs(30), longest: Duration::from_secs(120) };

pub(super) async fn run(rounds: &Rounds<'_>) {
    let mut round = rounds.begin("prune", PACE);
    loop {
        round.look().await;
        let found = rounds.sweep(SweepKind::Prune).await;
        round.rest(found).await;
    }
}
