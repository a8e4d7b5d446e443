//! It is not async.

use serde::{Deserialize, Serialize};
use windlass::{Job, JobError};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
fn handler(_job: Welcome) -> Result<u32, JobError> {
    Ok(1)
}

fn main() {}
