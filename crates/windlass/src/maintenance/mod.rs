//! The work that time brings: leases that run out, jobs that come due, schedules, and what nobody needs any more.
//!
//! Any number of processes may do it at once: the store lets each item be handled once. Steps are bounded, and a loop
//! that finds more to do goes on at once. One that finds nothing only reads; it comes back when the store has said that
//! there will be something, and otherwise rarer and rarer, each process at moments of its own. Where a look costs a
//! server something, one process looks and the others rest, for as long as it lives.

#[cfg(test)]
mod late;
mod rounds;
mod tick;

use rounds::{Pace, Rounds};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::name::WorkerId;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{Store, SweepKind};

/// How late a lease may be reaped while this process keeps time. The store names the end of the next lease, and a sweep
/// waits for that. A lease that is taken later and is shorter than this can end before the next sweep.
const LEASES_LATE: Duration = Duration::from_millis(1_500);
/// Takes back the leases of workers that died, froze or lost the store.
const REAP: Pace = Pace { first: Duration::from_secs(1), longest: LEASES_LATE };
/// Makes due jobs ready on queues that nobody claims from at the moment; a claim does it for its own queues.
const PROMOTE: Pace = Pace { first: Duration::from_secs(1), longest: Duration::from_secs(4) };
/// Removes what retention lets go. Nothing waits for it.
const PRUNE: Pace = Pace { first: Duration::from_secs(30), longest: Duration::from_secs(120) };
/// A tick should not be late, and a look costs one reading of an index.
const TICK: Pace = Pace { first: Duration::from_secs(1), longest: Duration::from_secs(1) };

/// How long the store has to answer when timekeeping is given up.
const GIVE_UP: Duration = Duration::from_secs(1);

/// Runs all of it until it is dropped.
#[derive(Clone)]
pub struct Maintenance {
    store: Arc<dyn Store>,
    random: Arc<dyn Random>,
    follow: bool,
}

impl Maintenance {
    /// Over a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, random: Arc::new(StrongRandom::from_system()), follow: false }
    }

    /// With its moments drawn from here, so that a test can be repeated.
    pub(crate) fn with_random(self, random: Arc<dyn Random>) -> Self {
        Self { random, ..self }
    }

    /// Looks again whenever anything has changed, and otherwise only when something is due: to the millisecond, and
    /// without a wake-up in between, as a virtual clock wants it. On a busy store it would never come to rest.
    #[cfg(feature = "testing")]
    pub(crate) fn follow_the_feed(self) -> Self {
        Self { follow: true, ..self }
    }

    /// Never returns; drop it to end it. Another process then takes over after at most 1.5 s.
    pub async fn run(&self) {
        self.run_until(std::future::pending()).await;
    }

    /// Runs until `stop` returns, and then leaves timekeeping to the other processes, so that none of them has to wait
    /// for this one. A store that does not answer is not waited for.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        let keeper = WorkerId::new(format!("timekeeper-{:016x}", self.random.next_u64())).ok();
        let keeper = keeper.filter(|_| !self.follow);
        tokio::select! {
            () = stop => {}
            () = self.work(keeper.as_ref()) => {}
        }
        if let Some(keeper) = keeper {
            let given_up = tokio::time::timeout(GIVE_UP, self.store.claim_maintenance(keeper, 0)).await;
            if !matches!(given_up, Ok(Ok(_))) {
                tracing::info!("timekeeping was not handed over; another process takes over when it is due");
            }
        }
    }

    /// Sweeps for as long as this process keeps time; without a name it does so always.
    async fn work(&self, keeper: Option<&WorkerId>) {
        let rounds = Rounds { store: self.store.as_ref(), random: self.random.as_ref(), follow: self.follow };
        let sweeps = || async {
            tokio::join!(
                rounds.repeat("reap", REAP, || rounds.sweep(SweepKind::Reap)),
                rounds.repeat("promote", PROMOTE, || rounds.sweep(SweepKind::Promote)),
                rounds.repeat("prune", PRUNE, || rounds.sweep(SweepKind::Prune)),
                rounds.repeat("tick", TICK, || tick::once(&rounds)),
            );
        };
        let Some(keeper) = keeper else { return sweeps().await };
        let mut rest = Duration::ZERO;
        loop {
            rounds.until_keeper(keeper, rest).await;
            // Begun anew: a process that takes over sweeps at once, however long its last sweeps were to rest.
            rest = tokio::select! {
                () = sweeps() => return,
                rest = rounds.while_keeper(keeper) => rest,
            };
        }
    }
}

opaque_debug!(Maintenance);
