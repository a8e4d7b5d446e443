//! Its error is no error.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
async fn handler(_job: Welcome) -> Result<u32, String> {
    Ok(1)
}

fn main() {}
