//! A union cannot be stored.

use windlass::Job;

#[derive(Job)]
union Welcome {
    to: u32,
}

fn main() {}
