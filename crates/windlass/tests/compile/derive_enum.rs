//! An enum may be a job, but its variants are of one kind.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
enum Notice {
    #[job(queue = "mail")]
    Mail,
}

fn main() {}
