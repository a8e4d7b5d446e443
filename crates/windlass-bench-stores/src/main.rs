//! Measures the stores through their traits, and the bare floor beside them in the same run.
//!
//! One JSON line per measurement, medians of three. Only ratios mean anything: the machine's speed moves from minute to
//! minute, and both sides of a ratio are measured one after the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot run should stop")]

mod stores;

use std::process::ExitCode;
use stores::{ALL, Settings};

const USAGE: &str = "\
Usage: cargo xtask bench-stores [SCENARIO...] [--quick] [--only STORE] [--dir DIR] [--redis URL]

Scenarios (default: all):
  sqlite-drain    claim + complete at batch 1000, beside the floor
  sqlite-enqueue  one by one from 256 tasks, beside the floor at the batch that group commit reached
  memory-drain    claim + complete at batch 64
  redis-drain     claim + complete in two tasks at batch 64, beside the floor at 64 and at 256
  redis-enqueue   one by one from 16 tasks, beside the floor with as many calls under way
  redis-bulk      1000 jobs a call, beside the floor at the same batch; bytes per job
  scale           cost per job at 10^6 stored jobs against 10^3, on every store
  groups          10^3 and 10^6 groups against the plain case, on every store
  labels          10^3 label sets against the plain case, on every store

--quick  a tenth of the work, once: to see that it runs
--only   one store of those that scale, groups and labels measure: memory, sqlite, redis
--dir    where the database files go; the floor's file lies beside them (default: a temporary folder)
--redis  a server that is there already, instead of a private one for each scenario; keys are put under a prefix of
         their own and removed afterwards

`windlass bench` measures the whole runtime.";

fn main() -> ExitCode {
    let mut settings = Settings::default();
    let mut wanted = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => settings.quick = true,
            "--redis" => settings.redis = arguments.next(),
            "--only" => settings.only = arguments.next(),
            "--dir" => settings.dir = arguments.next().map(Into::into),
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            name if ALL.iter().any(|(known, _)| *known == name) => wanted.push(name.to_owned()),
            unknown => {
                eprintln!("unknown argument `{unknown}`\n\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    for (name, run) in ALL {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(&settings);
        }
    }
    ExitCode::SUCCESS
}
