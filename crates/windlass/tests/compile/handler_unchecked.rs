//! Without the attribute the compiler cannot tell which of the conditions does not hold.

use serde::{Deserialize, Serialize};
use windlass::{Job, JobError, Worker};

#[derive(Serialize, Deserialize, Job)]
struct Welcome {
    to: String,
}

async fn handler(_job: Welcome) -> Result<u32, JobError> {
    Ok(1)
}

fn main() {
    let _ = Worker::builder(windlass::open("memory://").unwrap()).handle(handler);
}
