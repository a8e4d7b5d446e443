//! It holds something over an await that cannot go to another thread.

use serde::{Deserialize, Serialize};
use windlass::{Job, JobError};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
async fn handler(_job: Welcome) -> Result<u32, JobError> {
    let count = std::rc::Rc::new(1);
    std::future::ready(()).await;
    Ok(*count)
}

fn main() {}
