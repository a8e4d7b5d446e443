//! What is done to the workers, and when.

use super::board::Board;
use super::fleet::Fleet;
use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use windlass::core::id::JobId;
use windlass::core::job::State;
use windlass::core::name::QueueName;
use windlass::core::random::{Random, StrongRandom};
use windlass::core::store::{Filter, LIST_MAX, ListRequest, Store, Sweep, SweepKind};
use windlass::core::time::Timestamp;
use windlass_operate::text::count;

/// The first one comes soon, so that the shortest demo has one.
const FIRST_MS: u64 = 600;
/// The time between two.
const PACE_MS_MIN: u64 = 700;
const PACE_MS_MAX: u64 = 5_000;
/// How long a worker that was killed stays dead.
const DEAD_MS: u64 = 800;
/// How much longer than its lease a worker is frozen: a lease that has run out is reaped within a second.
const FROZEN_BEYOND_MS: u64 = 1_500;
/// How often a good moment is looked for, how often one in which the worker holds jobs, and how long somebody else may
/// need to write meanwhile.
const TRIALS: u32 = 40;
const TRIALS_FOR_JOBS: u32 = 20;
const TRIAL_TIME: Duration = Duration::from_millis(250);
const BETWEEN_TRIALS: Duration = Duration::from_millis(15);

/// What can be done to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Freeze,
    Kill,
}

/// One after the other, at a steady pace.
#[derive(Debug)]
pub(super) struct Faults {
    next_at: Timestamp,
    next: Fault,
    pace_ms: u64,
    frozen_ms: u64,
    random: StrongRandom,
}

impl Faults {
    /// For a demo that ends by itself after `end`: a short one has them faster, so that it has some of each.
    pub(super) fn new(now: Timestamp, lease: Duration, end: Option<Duration>, seed: u64) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let lease_ms = ms(lease);
        let pace_ms_max = end.map_or(PACE_MS_MAX, |end| (ms(end) / 4).clamp(PACE_MS_MIN, PACE_MS_MAX));
        Self {
            next_at: now.plus_ms(FIRST_MS),
            next: Fault::Freeze,
            pace_ms: lease_ms.saturating_mul(2).clamp(PACE_MS_MIN, pace_ms_max),
            frozen_ms: lease_ms.saturating_add(FROZEN_BEYOND_MS),
            random: StrongRandom::seeded(seed),
        }
    }

    /// What is to be done now.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Fault> {
        if now < self.next_at {
            return None;
        }
        let fault = self.next;
        self.next_at = now.plus_ms(self.pace_ms);
        self.next = match fault {
            Fault::Freeze => Fault::Kill,
            Fault::Kill => Fault::Freeze,
        };
        Some(fault)
    }

    /// One that runs, with jobs if there is one. The last one is left alone, so that somebody works.
    fn victim(&self, fleet: &Fleet, board: &Board) -> Option<usize> {
        let running = fleet.running();
        let alone = running.len() < 2 && fleet.members.len() > 1;
        if alone || running.is_empty() {
            return None;
        }
        let busy: Vec<usize> = running.iter().copied().filter(|at| board.held(&fleet.members[*at].name) > 0).collect();
        let among = if busy.is_empty() { running } else { busy };
        let at = usize::try_from(self.random.next_u64() % among.len() as u64).unwrap_or(0);
        among.get(at).copied()
    }

    pub(super) async fn strike(&self, fault: Fault, fleet: &mut Fleet, board: &mut Board, store: &Arc<dyn Store>) {
        for trial in 0..TRIALS {
            let Some(at) = self.victim(fleet, board) else {
                board.events.say("there is nobody to spare: the last worker is left alone");
                return;
            };
            fleet.stop_for_a_trial(at);
            // A store that does not answer is no reason to end; there is another trial.
            let held = held_by(store, &fleet.members[at].name).await.unwrap_or_default();
            let worth = !held.is_empty() || trial >= TRIALS_FOR_JOBS;
            if worth && (fault == Fault::Kill || others_can_write(store).await) {
                return self.settle(fault, fleet, board, (at, held));
            }
            fleet.go_on(at);
            tokio::time::sleep(BETWEEN_TRIALS).await;
        }
    }

    /// Makes a trial a fault.
    fn settle(&self, fault: Fault, fleet: &mut Fleet, board: &mut Board, (at, held): (usize, Vec<JobId>)) {
        let done = match fault {
            Fault::Kill => {
                fleet.kill(at, board.now.plus_ms(DEAD_MS));
                "was killed"
            }
            Fault::Freeze => {
                fleet.keep_frozen(at, board.now.plus_ms(self.frozen_ms));
                "was frozen"
            }
        };
        let number = fleet.members[at].number;
        board.events.fault(format!("worker {number} {done} while it held {}", count(held.len() as u64, "job")));
        board.bereave(number, held);
    }
}

/// A process that is stopped in the middle of a commit holds the file's write lock, and nobody can write until it goes
/// on. That is SQLite's way and nothing that a lease could mend, so the demo looks for a better moment.
async fn others_can_write(store: &Arc<dyn Store>) -> bool {
    let write = store.sweep(Sweep { kind: SweepKind::Promote, max: 1 });
    matches!(tokio::time::timeout(TRIAL_TIME, write).await, Ok(Ok(_)))
}

/// The jobs that a worker holds.
async fn held_by(store: &Arc<dyn Store>, name: &str) -> Result<Vec<JobId>, Failure> {
    let mut held = Vec::new();
    for queue in super::jobs::QUEUES {
        let filter = Filter { queue: Some(QueueName::new(queue)?), state: Some(State::Active), ..Filter::default() };
        let page = store.list(ListRequest { filter, limit: LIST_MAX, ..ListRequest::default() }).await?;
        let his = page.jobs.iter().filter(|job| job.worker.as_ref().is_some_and(|worker| worker.as_str() == name));
        held.extend(his.map(|job| job.id));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_frozen_and_killed_in_turn() {
        let start = Timestamp::from_ms(1_000_000);
        let mut faults = Faults::new(start, Duration::from_millis(400), None, 1);
        assert_eq!(faults.due(start.plus_ms(599)), None);
        assert_eq!(faults.due(start.plus_ms(600)), Some(Fault::Freeze));
        assert_eq!(faults.due(start.plus_ms(1_399)), None);
        assert_eq!(faults.due(start.plus_ms(1_400)), Some(Fault::Kill));
        assert_eq!(faults.due(start.plus_ms(2_200)), Some(Fault::Freeze));
    }

    #[test]
    fn a_short_demo_has_one_of_each_before_it_ends() {
        let start = Timestamp::from_ms(1_000_000);
        let mut faults = Faults::new(start, Duration::from_secs(2), Some(Duration::from_secs(3)), 1);
        assert_eq!(faults.due(start.plus_ms(600)), Some(Fault::Freeze));
        assert_eq!(faults.due(start.plus_ms(1_350)), Some(Fault::Kill));
    }
}
