//! Makes due jobs ready on queues that nobody claims from at the moment; a claim does it for its own queues.

use super::rounds::{Pace, Rounds};
use std::time::Duration;
use windlass_core::store::SweepKind;

const PACE: Pace = Pace { first: Duration::from_secs(1), longest: Duration::from_secs(4) };

pub(super) async fn run(rounds: &Rounds<'_>) {
    let mut round = rounds.begin("promote", PACE);
    loop {
        round.look().await;
        let found = rounds.sweep(SweepKind::Promote).await;
        round.rest(found).await;
    }
}
