//! The floors: the least that a queue costs on each kind of store, with nothing around it.
//!
//! A floor carries no groups, no counters, no feed and no retries. A new kind of store gets its floor here: one file that
//! implements [`Floor`], and an arm in [`Ground::open`](crate::Ground::open).

mod memory;
mod redis;
mod sqlite;

use crate::server::Spent;
use crate::time::Samples;
use ::redis::RedisError;
use std::fmt;

pub use memory::MemoryFloor;
pub use redis::RedisFloor;
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
    /// So many steps under way at once, where that makes a difference.
    pub in_flight: usize,
}

impl Load {
    /// One step after the other.
    pub fn new(jobs: usize, batch: usize) -> Self {
        Self { jobs, batch, in_flight: 1 }
    }
}

/// What a floor came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bare {
    /// Jobs per second.
    pub per_s: f64,
    /// What the server spent on each, where there is one.
    pub spent: Option<Spent>,
}

impl From<f64> for Bare {
    /// Where there is no server.
    fn from(per_s: f64) -> Self {
        Self { per_s, spent: None }
    }
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
    /// So many jobs, enqueued.
    fn enqueue(&self, load: Load) -> Result<Bare, FloorError>;

    /// So many jobs, claimed and completed.
    fn drain(&self, load: Load) -> Result<Bare, FloorError>;

    /// What no enqueue and claim can do without.
    fn way(&self, beat: Beat) -> Result<Way, FloorError>;

    /// The batch that this floor is known by.
    fn batch(&self) -> usize {
        1_000
    }

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
    /// Redis refused.
    #[error("the floor cannot be measured: {0}")]
    Redis(#[from] RedisError),
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
    use crate::Server;
    use std::sync::Arc;
    use windlass_servers::Redis;

    #[test]
    fn every_floor_does_its_work() {
        let dir = tempfile::tempdir().unwrap();
        let floors: [Box<dyn Floor>; 2] = [Box::new(MemoryFloor), Box::new(SqliteFloor::new(dir.path()))];
        for floor in floors {
            does_its_work(floor.as_ref());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn the_floor_of_redis_does_its_work_and_says_what_the_server_spent() {
        let redis = Redis::start().unwrap();
        let server = Arc::new(Server::connect(&redis.url()).unwrap());
        let floor = RedisFloor::new(Arc::clone(&server));
        does_its_work(&floor);
        let drained = floor.drain(Load::new(6_400, 64)).unwrap().spent.unwrap();
        // By job: HSET, HGET, and HGET of the token; the rest is shared by 64.
        assert!((3.0..3.2).contains(&drained.commands), "{drained:?}");
        assert!((2.0 / 64.0..0.05).contains(&drained.reads), "{drained:?}");
        let one_by_one = floor.enqueue(Load { jobs: 801, batch: 1, in_flight: 16 }).unwrap().spent.unwrap();
        // HSET and RPUSH; eight pairs come in one read.
        assert!((2.0..2.1).contains(&one_by_one.commands), "{one_by_one:?}");
        assert!((0.1..0.3).contains(&one_by_one.reads), "{one_by_one:?}");
        assert_eq!(server.remove("").unwrap(), 0, "nothing is left behind");
    }

    fn does_its_work(floor: &dyn Floor) {
        let load = Load::new(25, 10);
        assert!(floor.enqueue(load).unwrap().per_s > 0.0, "{floor:?}");
        assert!(floor.drain(load).unwrap().per_s > 0.0, "{floor:?}");
        let way = floor.way(Beat { count: 5, rate: 1_000.0 }).unwrap();
        assert!(way.step_us.percentile(50) > 0.0, "{floor:?}");
    }
}
