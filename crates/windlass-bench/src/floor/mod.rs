//! The floors: the least that a queue costs on each kind of store, with nothing around it.
//!
//! A floor carries no groups, no counters, no feed and no retries. A new kind of store gets its floor here: one file that
//! implements [`Floor`], and an arm in [`Ground::open`](crate::Ground::open).

mod memory;
mod sqlite;

use crate::time::Samples;
use std::fmt;

pub use memory::MemoryFloor;
pub use sqlite::SqliteFloor;

/// A payload as small as most are.
pub const PAYLOAD_BYTES: usize = 100;

/// How much work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// So many jobs.
    pub jobs: usize,
    /// So many of them in one step.
    pub batch: usize,
}

/// How often, for a floor of latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beat {
    /// So many.
    pub count: u32,
    /// So many a second.
    pub rate: f64,
}

/// What the way of one job costs at least, from its enqueue to the start of its handler.
#[derive(Clone, Debug)]
pub struct Way {
    /// What it is made of: `fsync`, `hand_over`.
    pub step: &'static str,
    /// How many of them.
    pub steps: u32,
    /// What one took, in microseconds, each time it was tried.
    pub step_us: Samples,
}

/// The bare minimum on one kind of store. It blocks its thread.
pub trait Floor: fmt::Debug + Send + Sync {
    /// Jobs per second, enqueued.
    fn enqueue(&self, load: Load) -> Result<f64, FloorError>;

    /// Jobs per second, claimed and completed.
    fn drain(&self, load: Load) -> Result<f64, FloorError>;

    /// What no enqueue and claim can do without.
    fn way(&self, beat: Beat) -> Result<Way, FloorError>;

    /// Steps and commits of the store so far, if it puts several into one.
    fn group_commit(&self) -> Option<(u64, u64)> {
        None
    }
}

/// A floor could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FloorError {
    /// SQLite refused.
    #[error("the floor cannot be measured: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file system refused.
    #[error("the floor cannot be measured: {0}")]
    Io(#[from] std::io::Error),
    /// Something else ended early.
    #[error("the floor cannot be measured: {0}")]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_floor_does_its_work() {
        let dir = tempfile::tempdir().unwrap();
        let floors: [Box<dyn Floor>; 2] = [Box::new(MemoryFloor), Box::new(SqliteFloor::new(dir.path()))];
        for floor in floors {
            let load = Load { jobs: 25, batch: 10 };
            assert!(floor.enqueue(load).unwrap() > 0.0, "{floor:?}");
            assert!(floor.drain(load).unwrap() > 0.0, "{floor:?}");
            let way = floor.way(Beat { count: 5, rate: 1_000.0 }).unwrap();
            assert!(way.step_us.percentile(50) > 0.0, "{floor:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
