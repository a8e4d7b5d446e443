//! The work that time brings: leases that run out, jobs that come due, schedules, and what nobody needs any more.
//!
//! Any number of processes may do it at once: the store lets each item be handled once. Steps are bounded, and a loop
//! that finds more to do goes on at once. One that finds nothing only reads; it comes back when the store has said that
//! there will be something, and otherwise rarer and rarer, each process at moments of its own. Where a look costs a
//! server something, one process looks and the others rest, for as long as it lives.

mod promote;
mod prune;
mod reap;
mod rounds;
mod tick;

use rounds::Rounds;
use std::sync::Arc;
use windlass_core::name::WorkerId;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::Store;

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

    /// Never returns; drop it to end it.
    pub async fn run(&self) {
        let rounds = Rounds { store: self.store.as_ref(), random: self.random.as_ref(), follow: self.follow };
        let work = async {
            tokio::join!(reap::run(&rounds), promote::run(&rounds), prune::run(&rounds), tick::run(&rounds));
        };
        if self.follow {
            return work.await;
        }
        let name = format!("timekeeper-{:016x}", self.random.next_u64());
        let Ok(keeper) = WorkerId::new(name) else { return work.await };
        let mut work = std::pin::pin!(work);
        loop {
            rounds.until_keeper(&keeper).await;
            tokio::select! {
                () = &mut work => return,
                () = rounds.while_keeper(&keeper) => {}
            }
        }
    }
}

impl std::fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Maintenance")
    }
}
