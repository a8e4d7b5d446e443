//! The test kit of durable workflows: what it simulates, and that each of its checks finds a workflow that is wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod behaviour;
mod children;
mod deadlines;
mod examples;
mod failures;
mod retries;
mod steps;
mod wrong;

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use std::panic::AssertUnwindSafe;
use windlass::Job;
use windlass::durable::Signal;

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = u64, attempts = 3)]
struct Charge {
    order: u64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop")]
struct Refund {
    order: u64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = String)]
struct Ship {
    order: u64,
}

#[derive(Serialize, Deserialize, Signal)]
struct Approve {
    by: String,
}

fn approve(by: &str) -> Approve {
    Approve { by: by.to_owned() }
}

/// The message of the panic with which a test of a workflow fails.
async fn failure<T>(test: impl Future<Output = T>) -> String {
    let Err(panic) = AssertUnwindSafe(test).catch_unwind().await else { panic!("the test did not fail") };
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.unwrap_or_else(|| panic.downcast_ref::<&str>().expect("a panic with a text").to_string());
    println!("{text}\n");
    text
}
