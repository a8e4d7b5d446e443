//! The server behind a Redis store: what it has spent, what it holds, and the keys that a bench leaves there.
//!
//! It has a connection of its own, which blocks its thread. What it asks is itself counted by the server: a command for
//! each reading, nothing beside the thousands of a measurement.

use crate::floor::FloorError;
use parking_lot::Mutex;
use redis::{Client, Connection, InfoDict};
use std::fmt;
use std::time::Duration;
use windlass_core::random::{Random, StrongRandom};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long any answer may take: a large backlog takes a while to be removed.
const ANSWER: Duration = Duration::from_secs(60);
/// Looks at the memory until it stands still.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// What the server's own housekeeping moves between two looks.
const STILL_BYTES: u64 = 16 * 1_024;
/// Keys of one step of a scan.
const SCAN: usize = 5_000;

/// A Redis server, asked on a connection of its own.
pub struct Server {
    client: Client,
    admin: Mutex<Connection>,
}

/// What a server has done since it started.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// Processor time of all its threads, in microseconds.
    pub cpu_us: f64,
    /// Commands, those inside of scripts included.
    pub commands: u64,
    /// Reads from sockets: about one for each round trip.
    pub reads: u64,
}

/// What a server has spent on each job.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spent {
    /// Processor time, in microseconds.
    pub cpu_us: f64,
    /// Commands, those inside of scripts included.
    pub commands: f64,
    /// Reads from sockets: about one for each round trip.
    pub reads: f64,
}

impl Server {
    /// The server that a store's URL names; the options of the store are left aside.
    pub fn connect(url: &str) -> Result<Self, FloorError> {
        let address = url.split_once('?').map_or(url, |(address, _)| address);
        let client = Client::open(address)?;
        let admin = Mutex::new(open(&client)?);
        Ok(Self { client, admin })
    }

    /// One more connection.
    pub(crate) fn connection(&self) -> Result<Connection, FloorError> {
        open(&self.client)
    }

    /// What it has done so far.
    pub fn read(&self) -> Result<Reading, FloorError> {
        let info: String = redis::cmd("INFO").arg("everything").query(&mut *self.admin.lock())?;
        let dict = InfoDict::new(&info);
        let seconds = number::<f64>(&dict, "used_cpu_user")? + number::<f64>(&dict, "used_cpu_sys")?;
        let commands = info.lines().filter_map(calls).sum();
        Ok(Reading { cpu_us: seconds * 1e6, commands, reads: number(&dict, "total_reads_processed")? })
    }

    /// Bytes that it holds, once what was removed is really gone. Buffers of connections are among them: some hundred
    /// thousand, which a large backlog makes nothing.
    #[expect(clippy::disallowed_methods, reason = "what the server frees in the background is waited for")]
    pub fn memory(&self) -> Result<u64, FloorError> {
        let mut admin = self.admin.lock();
        // Not all allocators and not all hosted servers know it, and it only makes the figure steadier.
        let _purged: redis::RedisResult<()> = redis::cmd("MEMORY").arg("PURGE").query(&mut *admin);
        let mut last = u64::MAX;
        for _ in 0..LOOKS {
            let info: InfoDict = redis::cmd("INFO").arg("memory").query(&mut *admin)?;
            let used: u64 = number(&info, "used_memory")?;
            let pending: u64 = number(&info, "lazyfree_pending_objects")?;
            if pending == 0 && used.abs_diff(last) < STILL_BYTES {
                return Ok(used);
            }
            last = used;
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(last)
    }

    /// Removes every key that has `part` in its name; answers how many. Whoever asks must have chosen a part that
    /// nobody else has.
    pub fn remove(&self, part: &str) -> Result<u64, FloorError> {
        let mut admin = self.admin.lock();
        let (mut cursor, mut removed) = (0_u64, 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("*{part}*")).arg("COUNT").arg(SCAN);
            let (next, keys): (u64, Vec<Vec<u8>>) = scan.query(&mut *admin)?;
            if !keys.is_empty() {
                removed += redis::cmd("UNLINK").arg(keys).query::<u64>(&mut *admin)?;
            }
            if next == 0 {
                return Ok(removed);
            }
            cursor = next;
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password that an address may carry.
        f.debug_struct("Server").field("addr", &self.client.get_connection_info().addr()).finish_non_exhaustive()
    }
}

impl Reading {
    /// What was spent on each of `jobs` jobs between an earlier reading and this one.
    pub fn since(&self, earlier: &Self, jobs: usize) -> Spent {
        let per_job = |more: u64| more as f64 / jobs.max(1) as f64;
        Spent {
            cpu_us: (self.cpu_us - earlier.cpu_us) / jobs.max(1) as f64,
            commands: per_job(self.commands.saturating_sub(earlier.commands)),
            reads: per_job(self.reads.saturating_sub(earlier.reads)),
        }
    }
}

/// A name that nobody else has: what begins with it may be removed afterwards.
pub fn own_name(what: &str) -> String {
    format!("{what}-{:016x}", StrongRandom::from_system().next_u64())
}

fn open(client: &Client) -> Result<Connection, FloorError> {
    let connection = client.get_connection_with_timeout(CONNECT)?;
    connection.set_read_timeout(Some(ANSWER))?;
    Ok(connection)
}

/// `cmdstat_hset:calls=21,usec=175,...`
fn calls(line: &str) -> Option<u64> {
    let (_, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    figures.split(',').next()?.parse().ok()
}

fn number<T: redis::FromRedisValue>(info: &InfoDict, name: &str) -> Result<T, FloorError> {
    info.get(name).ok_or_else(|| FloorError::Other(format!("the server does not say its `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_servers::Redis;

    #[test]
    fn what_is_done_between_two_readings_is_counted_inside_of_scripts_too() {
        let redis = Redis::start().unwrap();
        let server = Server::connect(&redis.url()).unwrap();
        let mut other = server.connection().unwrap();
        let before = server.read().unwrap();
        let script = "for i = 1, 1000 do redis.call('HSET', 'h', i, i) end";
        for _ in 0..10 {
            redis::cmd("EVAL").arg(script).arg(0).exec(&mut other).unwrap();
        }
        let spent = server.read().unwrap().since(&before, 100);
        // 10,000 HSET and 10 EVAL, and the reading itself.
        assert!((100.1..100.2).contains(&spent.commands), "{spent:?}");
        assert!((0.1..0.2).contains(&spent.reads), "{spent:?}");
        assert!(spent.cpu_us > 1.0, "{spent:?}");
    }

    #[test]
    fn memory_is_what_is_held_and_goes_back_when_it_is_removed() {
        let redis = Redis::start().unwrap();
        let server = Server::connect(&redis.url()).unwrap();
        let mut other = server.connection().unwrap();
        redis::cmd("SET").arg("{kept}:x").arg(1).exec(&mut other).unwrap();
        let name = own_name("windlass-bench");
        let before = server.memory().unwrap();
        let mut sets = redis::pipe();
        for key in 0..30_000 {
            sets.cmd("SET").arg(format!("{{{name}}}:{key}")).arg(&[0_u8; 100]).ignore();
            if sets.len() == 100 {
                sets.exec(&mut other).unwrap();
                sets.clear();
            }
        }
        let held = server.memory().unwrap() - before;
        // A value of 100 bytes, a key of 50, their entries.
        assert!((6_000_000..9_000_000).contains(&held), "{held}");
        assert_eq!(server.remove(&name).unwrap(), 30_000);
        let after = server.memory().unwrap();
        // The table of keys shrinks later.
        assert!(after.abs_diff(before) < 1_000_000, "{before} and then {after}");
        let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut other).unwrap();
        assert_eq!(left, ["{kept}:x"]);
    }

    #[test]
    fn names_are_never_the_same_and_options_of_the_store_are_not_the_servers() {
        assert_ne!(own_name("a"), own_name("a"));
        let redis = Redis::start().unwrap();
        let server = Server::connect(&format!("{}?prefix=x", redis.url())).unwrap();
        assert!(!format!("{server:?}").contains("prefix"), "{server:?}");
        assert!(Server::connect("redis://127.0.0.1:1/").is_err());
    }
}
