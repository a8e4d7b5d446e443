//! A key that cannot be displayed.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(unique = self.lines)]
struct Invoice {
    lines: Vec<u32>,
}

fn main() {}
