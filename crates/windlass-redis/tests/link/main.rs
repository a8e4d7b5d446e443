//! The link against real servers.

#![allow(clippy::disallowed_methods, reason = "a test over processes waits for them, by the real clock")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod calls;
mod cluster;
mod doors;
mod sentinel;
mod server;
mod speed;
mod subscribe;
mod tls;
