//! It returns something else than the job says.

use serde::{Deserialize, Serialize};
use windlass::{Job, JobError};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
async fn handler(_job: Welcome) -> Result<String, JobError> {
    Ok(String::new())
}

fn main() {}
