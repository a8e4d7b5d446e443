//! The first argument is no job.

use serde::{Deserialize, Serialize};
use windlass::{Ctx, Job, JobError};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
async fn handler(_ctx: Ctx, _job: Welcome) -> Result<u32, JobError> {
    Ok(1)
}

fn main() {}
