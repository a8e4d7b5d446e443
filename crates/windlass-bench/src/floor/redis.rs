//! The floor on Redis: a hash for each job, a list of ids, a set of leases.
//!
//! Claim and complete are scripts over a batch, on two connections with one request under way each: while one script
//! runs, the other's answer is on its way. An enqueue needs no script: the hashes and then one push of their ids, written
//! together, take about half the server's time of a script that does the same.

use super::{Bare, Beat, Floor, FloorError, Load, PAYLOAD_BYTES, Way};
use crate::server::{Server, own_name};
use crate::time::{Pace, Samples, Stopwatch};
use redis::{Connection, Script};
use std::sync::Arc;
use std::thread;

const PAYLOAD: &[u8] = &[b'x'; PAYLOAD_BYTES];
/// Connections that claim and complete.
const CONNECTIONS: usize = 2;
/// Jobs of one step at most: scripts cannot hand on more than some thousand values at once.
const STEP: usize = 1_000;
/// Jobs of a step while the queue is filled.
const FILL: usize = 200;
/// Keys of a step while it is cleared.
const CLEAR: usize = 5_000;
/// When a lease would end; nobody looks.
const LEASE_END_MS: u64 = 4_102_444_800_000;
/// How long the last job of a latency measurement may take.
const PATIENCE_SECONDS: u32 = 10;

/// A bare queue under a name of its own, beside the store that is measured.
#[derive(Clone, Debug)]
pub struct RedisFloor {
    server: Arc<Server>,
}

impl RedisFloor {
    /// On this server.
    pub fn new(server: Arc<Server>) -> Self {
        Self { server }
    }

    /// What `work` comes to on an empty queue, which is gone afterwards.
    fn on_queue<T>(&self, jobs: usize, work: impl FnOnce(&Queue) -> Result<T, FloorError>) -> Result<T, FloorError> {
        let mut connection = self.server.connection()?;
        let queue = Queue::new(&mut connection)?;
        let done = work(&queue);
        queue.clear(&mut connection, jobs)?;
        done
    }

    fn connections(&self, n: usize) -> Result<Vec<Connection>, FloorError> {
        (0..n).map(|_| self.server.connection()).collect()
    }

    /// Jobs per second and what the server spent, while each connection does its share of the work on a thread.
    fn timed(
        &self,
        jobs: usize,
        connections: Vec<Connection>,
        work: impl Fn(usize, &mut Connection) -> Result<(), FloorError> + Sync,
    ) -> Result<Bare, FloorError> {
        let before = self.server.read()?;
        let (watch, work) = (Stopwatch::start(), &work);
        thread::scope(|scope| {
            let start = |(n, mut connection): (usize, Connection)| {
                let named = thread::Builder::new().name(format!("windlass-bench-floor-{n}"));
                named.spawn_scoped(scope, move || work(n, &mut connection))
            };
            let running: Vec<_> = connections.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
            running.into_iter().try_for_each(|thread| thread.join().map_err(|_| gone())?)
        })?;
        let per_s = jobs as f64 / watch.seconds();
        Ok(Bare { per_s, spent: Some(self.server.read()?.since(&before, jobs)) })
    }
}

impl Floor for RedisFloor {
    /// One pipeline for each batch. Those that are under way at once are written together, to at most two connections.
    fn enqueue(&self, load: Load) -> Result<Bare, FloorError> {
        let batch = load.batch.clamp(1, STEP);
        self.on_queue(load.jobs, |queue| {
            let connections = self.connections(load.in_flight.clamp(1, CONNECTIONS))?;
            let (lanes, at_once) = (connections.len(), load.in_flight.max(1).div_ceil(connections.len()));
            self.timed(load.jobs, connections, |lane, connection| {
                let share = Share { from: load.jobs * lane / lanes, to: load.jobs * (lane + 1) / lanes };
                queue.enqueue(connection, share, batch, at_once)
            })
        })
    }

    fn drain(&self, load: Load) -> Result<Bare, FloorError> {
        let batch = load.batch.clamp(1, STEP);
        self.on_queue(load.jobs, |queue| {
            let mut connections = self.connections(CONNECTIONS)?;
            let all = Share { from: 0, to: load.jobs };
            connections.iter_mut().take(1).try_for_each(|first| queue.enqueue(first, all, FILL, 1))?;
            self.timed(load.jobs, connections, |lane, connection| queue.work_off(connection, lane, batch))
        })
    }

    /// An enqueue, a blocked connection that wakes, a claim.
    fn way(&self, beat: Beat) -> Result<Way, FloorError> {
        self.on_queue(beat.count as usize, |queue| {
            let (mut sends, mut takes) = (self.server.connection()?, self.server.connection()?);
            // Once through everything before it counts.
            queue.send(&mut sends, 0)?;
            queue.take(&mut takes)?;
            let pace = Pace::start(beat.rate);
            let all: Result<Vec<f64>, FloorError> = thread::scope(|scope| {
                let take = move || (0..beat.count).map(|_| Ok(pace.late_us(queue.take(&mut takes)?))).collect();
                let named = thread::Builder::new().name("windlass-bench-floor".to_owned());
                let taker = named.spawn_scoped(scope, take)?;
                for n in 0..beat.count {
                    pace.wait(n);
                    queue.send(&mut sends, n)?;
                }
                taker.join().map_err(|_| gone())?
            });
            Ok(Way { step: "hand_over", steps: 1, step_us: Samples::new(all?) })
        })
    }

    fn batch(&self) -> usize {
        64
    }
}

/// Ids that one connection enqueues.
#[derive(Clone, Copy, Debug)]
struct Share {
    from: usize,
    to: usize,
}

/// The names of its keys, and its scripts by their hashes.
struct Queue {
    list: String,
    leases: String,
    bell: String,
    jobs: String,
    claim: String,
    complete: String,
}

impl Queue {
    fn new(connection: &mut Connection) -> Result<Self, FloorError> {
        let name = own_name("windlass-floor");
        let mut load = |text: &str| Script::new(text).load(connection);
        let claim = load(include_str!("../../lua/floor_claim.lua"))?;
        let complete = load(include_str!("../../lua/floor_complete.lua"))?;
        let key = |what: &str| format!("{{{name}}}:{what}");
        let (list, leases, bell, jobs) = (key("list"), key("leases"), key("bell"), key("job:"));
        Ok(Self { list, leases, bell, jobs, claim, complete })
    }

    fn enqueue(
        &self,
        connection: &mut Connection,
        share: Share,
        batch: usize,
        at_once: usize,
    ) -> Result<(), FloorError> {
        let (mut calls, mut batches) = (redis::pipe(), 0);
        for from in (share.from..share.to).step_by(batch) {
            self.add_to(&mut calls, Share { from, to: share.to.min(from + batch) });
            batches += 1;
            if batches == at_once || from + batch >= share.to {
                calls.exec(connection)?;
                (calls, batches) = (redis::pipe(), 0);
            }
        }
        Ok(())
    }

    /// The hash first: an id in the list is always that of a whole job.
    fn add_to(&self, calls: &mut redis::Pipeline, share: Share) {
        let mut push = redis::cmd("RPUSH");
        push.arg(&self.list);
        for n in share.from..share.to {
            let id = id(n);
            calls.cmd("HSET").arg(format!("{}{id}", self.jobs)).arg("s").arg("w").arg("p").arg(PAYLOAD).ignore();
            push.arg(id);
        }
        calls.add_command(push).ignore();
    }

    /// Claims and completes until nothing is left.
    fn work_off(&self, connection: &mut Connection, lane: usize, batch: usize) -> Result<(), FloorError> {
        for step in 0.. {
            let token = format!("{lane}-{step}");
            let jobs = self.claim(connection, &token, batch)?;
            if jobs.is_empty() {
                break;
            }
            let mut call = redis::cmd("EVALSHA");
            call.arg(&self.complete).arg(2).arg(&self.leases).arg(&self.jobs).arg(&token);
            for (id, _) in &jobs {
                call.arg(id);
            }
            if call.query::<usize>(connection)? != jobs.len() {
                return Err(FloorError::Other("its jobs were not leased".to_owned()));
            }
        }
        Ok(())
    }

    fn claim(
        &self,
        connection: &mut Connection,
        token: &str,
        max: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, FloorError> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.claim).arg(3).arg(&self.list).arg(&self.leases).arg(&self.jobs);
        Ok(call.arg(max).arg(LEASE_END_MS).arg(token).query(connection)?)
    }

    /// Enqueues one job and rings.
    fn send(&self, connection: &mut Connection, n: u32) -> Result<(), FloorError> {
        let mut calls = redis::pipe();
        self.add_to(&mut calls, Share { from: n as usize, to: n as usize + 1 });
        calls.cmd("RPUSH").arg(&self.bell).arg(1).ignore();
        Ok(calls.exec(connection)?)
    }

    /// Waits for the bell and claims one job.
    fn take(&self, connection: &mut Connection) -> Result<u32, FloorError> {
        let rung: Option<(String, u32)> =
            redis::cmd("BLPOP").arg(&self.bell).arg(PATIENCE_SECONDS).query(connection)?;
        let jobs = self.claim(connection, "way", 1)?;
        let taken = jobs.first().and_then(|(id, _)| u32::from_str_radix(id, 16).ok());
        rung.and(taken).ok_or_else(|| FloorError::Other("its bell was silent".to_owned()))
    }

    fn clear(&self, connection: &mut Connection, jobs: usize) -> Result<(), FloorError> {
        redis::cmd("UNLINK").arg(&self.list).arg(&self.leases).arg(&self.bell).exec(connection)?;
        for from in (0..jobs).step_by(CLEAR) {
            let mut call = redis::cmd("UNLINK");
            for n in from..jobs.min(from + CLEAR) {
                call.arg(format!("{}{}", self.jobs, id(n)));
            }
            call.exec(connection)?;
        }
        Ok(())
    }
}

/// As long as a short id is.
fn id(n: usize) -> String {
    format!("{n:016x}")
}

fn gone() -> FloorError {
    FloorError::Other("its thread ended early".to_owned())
}
