//! A job that cannot be stored.

use windlass::Job;

#[derive(Job)]
struct Welcome {
    to: String,
}

fn main() {}
