//! It returns no result.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
async fn handler(_job: Welcome) -> u32 {
    1
}

fn main() {}
