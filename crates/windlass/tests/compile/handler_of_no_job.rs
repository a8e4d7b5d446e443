//! The first argument is a type that nobody has made a job.

use serde::{Deserialize, Serialize};
use windlass::{Job, JobError};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

struct Letter;

#[windlass::handler]
async fn handler(_job: Letter) -> Result<(), JobError> {
    Ok(())
}

fn main() {}
