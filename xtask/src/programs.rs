//! The programs that measure and torture: always optimised, because a debug build measures the compiler.

use std::process::ExitCode;

use crate::shell::{cargo, inherit};

/// A crate of the workspace with a program that a command runs.
pub(crate) struct Program {
    package: &'static str,
    /// The cargo profile to build it with.
    profile: &'static str,
}

pub(crate) const BENCH: Program = Program { package: "windlass-bench-stores", profile: "dist" };
pub(crate) const CRASH: Program = Program { package: "windlass-crash", profile: "release" };

/// Runs the program with the arguments; its exit code tells only good from bad.
pub(crate) fn run(program: &Program, args: &[String]) -> ExitCode {
    let Program { package, profile } = program;
    let mut run = cargo(&["run", "--profile", profile, "--quiet", "--package", package, "--"]);
    run.args(args);
    if inherit(run) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
