//! State that cannot be shared between threads.

use serde::{Deserialize, Serialize};
use windlass::{Job, JobError, State, Worker};

#[derive(Serialize, Deserialize, Job)]
#[job(output = u32)]
struct Welcome {
    to: String,
}

#[windlass::handler]
async fn handler(_job: Welcome, count: State<std::cell::Cell<u32>>) -> Result<u32, JobError> {
    Ok(count.get())
}

fn main() {
    let store = windlass::open("memory://").unwrap();
    let _ = Worker::builder(store).state(std::cell::Cell::new(1_u32));
}
