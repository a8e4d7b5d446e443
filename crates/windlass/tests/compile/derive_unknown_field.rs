//! A key made of a field that is not there.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(unique = self.from)]
struct Welcome {
    to: String,
}

fn main() {}
