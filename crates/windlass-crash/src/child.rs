//! What all children have in common.

use crate::args::Part;
use crate::hand::Hand;
use crate::watch::Watch;
use crate::worker::IDLE_MS;
use crate::{QUEUE, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass_audit::{Entry, Ledger};
use windlass_core::name::QueueName;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::Store;
use windlass_core::time::{Clock, SystemClock};
use windlass_redis::RedisStore;
use windlass_sqlite::SqliteStore;

/// The store of a run, as it is by default.
pub(crate) fn open(dir: &Path, url: Option<&str>) -> Result<Arc<dyn Store>> {
    Ok(match url {
        Some(url) => Arc::new(RedisStore::open_url(url)?),
        None => Arc::new(SqliteStore::open(dir.join("jobs.db"))?),
    })
}

/// A child, ready to begin.
pub(crate) fn hand(part: Part) -> Result<Hand> {
    Ok(Hand {
        store: open(&part.dir, part.url.as_deref())?,
        ledger: Ledger::open(&part.dir, &part.name)?.synced(),
        dice: Dice::new(part.seed),
        bug: part.bug,
        watch: Arc::new(Watch::default()),
        idle_ms: IDLE_MS,
        name: part.name,
    })
}

/// Writes down by how much this process's clock is off.
pub(crate) async fn note_clock(hand: &Hand) -> Result<()> {
    let there = hand.insist(|| hand.store.now()).await?;
    let ahead_ms = SystemClock.now().as_ms().saturating_sub(there.as_ms());
    hand.ledger.note(&[Entry::ClockAheadMs(ahead_ms)]);
    Ok(())
}

/// The queue of a run.
pub(crate) fn queue() -> Result<QueueName> {
    Ok(QueueName::new(QUEUE)?)
}

/// A child's own dice.
pub(crate) struct Dice(StrongRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StrongRandom::seeded(seed))
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// The seed of somebody else's dice.
    pub(crate) fn seed(&self) -> u64 {
        self.0.next_u64()
    }
}

/// Lets time pass: a handler works, an enqueuer paces itself.
pub(crate) async fn pass_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
