//! What all children have in common.

use crate::args::Part;
use crate::{QUEUE, Result};
use std::io::Read;
use std::time::Duration;
use windlass_core::name::QueueName;
use windlass_core::random::{Random, StrongRandom};
use windlass_sqlite::SqliteStore;

/// Ends this process when its parent does: then nobody holds the other end of standard input any more.
pub(crate) fn end_with_parent() -> Result<()> {
    let watch = || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    };
    std::thread::Builder::new().name("parent-watch".to_owned()).spawn(watch)?;
    Ok(())
}

/// The store of a run, durable as it is by default.
pub(crate) fn open(dir: &std::path::Path) -> Result<SqliteStore> {
    Ok(SqliteStore::open(dir.join("jobs.db"))?)
}

/// The queue of a run.
pub(crate) fn queue() -> Result<QueueName> {
    Ok(QueueName::new(QUEUE)?)
}

/// A child's own dice.
pub(crate) struct Dice(StrongRandom);

impl Dice {
    pub(crate) fn of(part: &Part) -> Self {
        Self::new(part.seed)
    }

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
