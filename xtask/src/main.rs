//! The project's own commands, run as `cargo xtask COMMAND`.
//!
//! It has no dependencies: it is the first thing that a fresh machine builds.

mod commands;
mod examples;
mod mutants;
mod programs;
mod shell;
mod steps;
mod suggest;
mod tally;
mod tidy;
mod tools;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND [ARGS]

  check                     before every commit: format, clippy, the quick tests, tidy (under 2 minutes)
  test                      everything CI runs; installs what it needs; ends with `N passed, N failed`
  tidy                      sizes, words, script headers, links: the rules no compiler checks
  mutants [--all] [-- ARGS] mutate the machine and the guards (--all: every crate), list the survivors
  bench-stores [ARGS]       measure the stores against their floors (release build)
  crash [ARGS]              kill workers with SIGKILL in a loop and audit the ledger (release build)
  help                      this text
";

const COMMANDS: [&str; 7] = ["check", "test", "tidy", "mutants", "bench-stores", "crash", "help"];

/// Wrong use of the command line, as everywhere in the project.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprint!("{HELP}");
        return ExitCode::from(EXIT_USAGE);
    };
    // `check`, `test` and `tidy` always do the whole of their work: an argument would be ignored in silence.
    if matches!(command.as_str(), "check" | "test" | "tidy") && !rest.is_empty() {
        eprintln!("error: `cargo xtask {command}` takes no arguments, found `{}`", rest.join(" "));
        return ExitCode::from(EXIT_USAGE);
    }
    match command.as_str() {
        "check" => commands::check(),
        "test" => commands::test(),
        "tidy" => tidy::run(),
        "mutants" => mutants::run(rest),
        "bench-stores" => programs::run(&programs::BENCH, rest),
        "crash" => programs::run(&programs::CRASH, rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        unknown => {
            eprintln!("error: unknown command `{unknown}`");
            if let Some(near) = suggest::nearest(unknown, &COMMANDS) {
                eprintln!("  did you mean `cargo xtask {near}`?");
            }
            eprintln!("  `cargo xtask help` lists the commands");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, HELP};

    #[test]
    fn help_names_every_command() {
        for command in COMMANDS {
            assert!(HELP.contains(&format!("\n  {command} ")), "{command} is not in the help");
        }
    }
}
