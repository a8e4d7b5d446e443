//! It asks for something that a handler cannot ask for.

use serde::{Deserialize, Serialize};
use windlass::{Ctx, Job, JobError};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

struct Pool;

#[windlass::handler]
async fn handler(_job: Welcome, _pool: Pool, _ctx: Ctx) -> Result<u32, JobError> {
    Ok(1)
}

fn main() {}
