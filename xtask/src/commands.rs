//! `check` and `test`: the pipelines.

use std::process::{Command, ExitCode};

use crate::shell::{cargo, inherit, tee};
use crate::steps::Steps;
use crate::tally::Tally;
use crate::{examples, tidy, tools};

/// Before every commit. Of what is missing it installs only the packages without which tests would fail: a check that
/// takes minutes is a check that is skipped.
pub(crate) fn check() -> ExitCode {
    let mut steps = Steps::default();
    steps.run_once("tools", tools::prepare_packaged);
    steps.run_once("format", format);
    steps.run_once("clippy", clippy);
    steps.run("quick tests", quick_tests);
    steps.run_once("tidy", tidy::is_clean);
    steps.finish()
}

/// What CI runs.
pub(crate) fn test() -> ExitCode {
    let mut steps = Steps::default();
    steps.run_once("tools", tools::prepare);
    steps.run_once("format", format);
    steps.run_once("clippy", clippy);
    steps.run_once("clippy without default features", clippy_bare);
    steps.run_once("build of the examples", examples::build_all);
    steps.run("tests", all_tests);
    steps.run("doc tests", || counted(cargo(&["test", "--workspace", "--doc", "--no-fail-fast"])));
    steps.run("examples", examples::run_all);
    steps.run_once("tidy", tidy::is_clean);
    steps.run_once("rustdoc", rustdoc);
    steps.finish()
}

fn format() -> bool {
    inherit(cargo(&["fmt", "--all", "--", "--check"]))
}

fn clippy() -> bool {
    inherit(cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
}

/// The workspace turns every default feature of `windlass` on; users may build it without them.
fn clippy_bare() -> bool {
    inherit(cargo(&["clippy", "--package", "windlass", "--no-default-features", "--quiet", "--", "-D", "warnings"]))
}

fn rustdoc() -> bool {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--quiet", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    inherit(doc)
}

fn quick_tests() -> Tally {
    if tools::has_nextest() {
        let targets = ["--workspace", "--lib", "--bins", "--tests"];
        return counted(nextest("quick", &targets));
    }
    println!("cargo-nextest is missing (`cargo xtask test` installs it): using `cargo test`");
    let quick = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
    let mut tests = cargo(&quick);
    tests.args(["--", "--skip", "slow_"]);
    counted(tests)
}

fn all_tests() -> Tally {
    let targets = ["--workspace", "--all-targets"];
    if tools::ensure_subcommand("nextest") {
        return counted(nextest("ci", &targets));
    }
    // Slower, and without a time limit for each test, but the same tests.
    println!("cargo-nextest could not be installed: using `cargo test`");
    let mut tests = cargo(&["test", "--no-fail-fast"]);
    tests.args(targets);
    counted(tests)
}

fn nextest(profile: &str, targets: &[&str]) -> Command {
    let mut run = cargo(&["nextest", "run", "--no-fail-fast", "--profile", profile]);
    run.args(targets);
    run
}

fn counted(command: Command) -> Tally {
    match tee(command) {
        Ok((status, lines)) => Tally::of_run(status.success(), &lines),
        Err(error) => {
            eprintln!("error: cannot start cargo: {error}");
            Tally::step(false)
        }
    }
}
