//! The executor, driven by a simulated store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod cancellation;
mod children;
mod codec;
mod combinators;
mod deadlines;
mod deploys;
mod depth;
mod drops;
mod example;
mod golden;
mod limits;
mod misuse;
mod property;
mod retries;
mod runtime;
mod segments;
mod signals;
mod steps;
mod support;
mod threads;
mod turns;
