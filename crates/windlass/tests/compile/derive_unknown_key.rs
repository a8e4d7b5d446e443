//! A key that is misspelt.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(attemts = 5)]
struct Welcome {
    to: String,
}

fn main() {}
