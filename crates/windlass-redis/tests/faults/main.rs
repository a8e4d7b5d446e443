//! What the store promises while its servers, or the way to them, break.
//!
//! The storms let a whole crew work meanwhile and count afterwards; the others break one thing and look at one answer.
//! `cargo xtask crash storm` is the long version of the storms, and prints their table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod durable;
mod failover_wakes;
mod memory;
mod recount;
mod replies;
mod sentinels;
mod storms;
mod support;
mod wakes;
mod workers;
