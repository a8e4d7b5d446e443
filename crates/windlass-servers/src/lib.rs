//! Private servers for tests and benches: real ones, each on a free loopback port and in a folder of its own, ended with
//! the handle that stands for it.
//!
//! - [`Redis`]: one server, with a password, TLS, an append-only file or a locale if wanted
//! - [`Cluster`]: primaries and replicas, fail-overs and slots that move
//! - [`Sentinel`]: a primary, one or two replicas and three sentinels
//! - [`Proxy`]: stands between a client and a server and breaks the line as told
//!
//! Calls block, and none of them needs a runtime. A handle is shared by reference or in an `Arc`; a test that must go on
//! meanwhile makes its call on a thread of its own.
//!
//! # What ends a server
//!
//! A handle that is dropped kills its server, waits for it and removes its folder. A process that is killed drops
//! nothing, so each server has a watchdog: a shell that waits for the end of a pipe which only our process holds open, and
//! then does the same.
//!
//! # Where the programs are
//!
//! `redis-server` and `redis-cli` are looked for on `PATH`, or where `WINDLASS_TEST_REDIS_BIN` says: a folder that holds
//! them, or the server's file. `cargo xtask test` installs what is missing.

mod certificates;
mod cluster;
mod error;
mod locale;
mod ports;
mod process;
mod programs;
mod proxy;
mod redis;
mod resp;
mod sentinel;
mod wait;

pub use cluster::{Cluster, ClusterBuilder, Migration, SplitSlot};
pub use error::ServerError;
pub use proxy::{Counts, Delay, Faults, Proxy};
pub use redis::{Fsync, Redis, RedisBuilder};
pub use sentinel::Sentinel;
