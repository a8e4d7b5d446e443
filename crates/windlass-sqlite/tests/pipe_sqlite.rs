//! The suite against a SQLite store in another process, every call and answer as JSON through a pipe.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot begin should stop")]

#[path = "support/pipe.rs"]
mod pipe;

fn main() {
    pipe::main(true);
}
