//! `cargo xtask mutants`: does a test notice when the machine or a guard is wrong?

use std::fs;
use std::process::ExitCode;

use crate::EXIT_USAGE;
use crate::shell::{cargo, inherit, root};
use crate::tools;

/// Where a silent mistake loses a job.
const FILES: [&str; 4] = [
    "crates/windlass-core/src/job/*.rs",
    "crates/windlass-core/src/engine/*.rs",
    "crates/windlass-core/src/rate.rs",
    "crates/windlass-core/src/retry.rs",
];

/// Whose tests speak for those files: the core's own, and the suite that runs over the memory store.
const TEST_PACKAGES: [&str; 2] = ["windlass-core", "windlass-conformance"];

const OUTPUT: &str = "mutants.out";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    all: bool,
    extra: Vec<String>,
}

pub(crate) fn run(args: &[String]) -> ExitCode {
    let options = match parse(args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("error: {message}\n  usage: cargo xtask mutants [--all] [-- ARGS of cargo-mutants]");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if !tools::ensure_subcommand("nextest") || !tools::ensure_subcommand("mutants") {
        eprintln!("error: cargo-nextest and cargo-mutants are needed and could not be installed");
        return ExitCode::FAILURE;
    }
    let outcomes = root().join(OUTPUT);
    // cargo-mutants would keep the last run as mutants.out.old; an old list must never be taken for a new one.
    let _ = fs::remove_dir_all(&outcomes);
    let mut mutants = cargo(&arguments(&options));
    mutants.env("NEXTEST_PROFILE", "quick");
    // Each job builds in the target folder of its own copy. One shared folder would let the mutants of two jobs overwrite
    // each other, and the tests would judge the wrong one.
    mutants.env_remove("CARGO_TARGET_DIR");
    let ended_well = inherit(mutants);
    let list = |name: &str| lines(&fs::read_to_string(outcomes.join(name)).unwrap_or_default());
    report(&list("caught.txt"), &list("missed.txt"), &list("timeout.txt"));
    if ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--all" => options.all = true,
            "--" => options.extra = args.by_ref().cloned().collect(),
            unknown => return Err(format!("unknown argument `{unknown}`")),
        }
    }
    Ok(options)
}

fn arguments(options: &Options) -> Vec<String> {
    let mut arguments: Vec<String> = ["mutants", "--jobs", "2", "--test-tool", "nextest"].map(str::to_owned).to_vec();
    if options.all {
        arguments.push("--workspace".to_owned());
    } else {
        for file in FILES {
            arguments.extend(["--file".to_owned(), file.to_owned()]);
        }
        for package in TEST_PACKAGES {
            arguments.extend(["--test-package".to_owned(), package.to_owned()]);
        }
    }
    arguments.extend(options.extra.iter().cloned());
    arguments
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn report(caught: &[String], missed: &[String], timed_out: &[String]) {
    println!("\nsurvivors:");
    for mutant in missed {
        println!("  {mutant}");
    }
    println!(
        "{} caught, {} timed out (caught too: the tests did not end), {} survived",
        caught.len(),
        timed_out.len(),
        missed.len()
    );
}

#[cfg(test)]
mod tests {
    use super::{FILES, Options, TEST_PACKAGES, arguments, parse};

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_follows_the_dashes_is_passed_on() {
        let options = parse(&words(&["--all", "--", "--shard", "1/4"])).unwrap();
        assert_eq!(options, Options { all: true, extra: words(&["--shard", "1/4"]) });
        assert!(parse(&words(&["--al"])).is_err());
    }

    #[test]
    fn without_all_only_the_listed_files_are_mutated() {
        let arguments = arguments(&Options::default());
        let count = |word: &str| arguments.iter().filter(|argument| *argument == word).count();
        assert_eq!(count("--file"), FILES.len());
        assert_eq!(count("--test-package"), TEST_PACKAGES.len());
        assert_eq!(count("--workspace"), 0);
    }
}
