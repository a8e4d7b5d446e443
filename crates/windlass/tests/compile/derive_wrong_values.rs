//! Values that cannot be meant.

use serde::{Deserialize, Serialize};
use windlass::Job;

#[derive(Serialize, Deserialize, Job)]
#[job(timeout = "30 seconds")]
struct One;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "")]
struct Two;

#[derive(Serialize, Deserialize, Job)]
#[job(attempts = "five")]
struct Three;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", kind = "b")]
struct Four;

#[derive(Serialize, Deserialize, Job)]
#[job("mail")]
struct Five;

#[derive(Serialize, Deserialize, Job)]
#[job(attempts = 0)]
struct Six;

fn main() {}
