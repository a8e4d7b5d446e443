//! A pipeline of named steps: each is announced, timed and counted, and all run even when one fails.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::tally::Tally;

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    total: Tally,
    summary: Vec<(String, Tally, Duration)>,
}

impl Steps {
    /// Runs one step, whatever became of those before it.
    #[expect(clippy::disallowed_methods, reason = "the duration of a build is no business of the engine's clock")]
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Tally) {
        println!("\n==> {name}");
        let start = Instant::now();
        let tally = step();
        let taken = start.elapsed();
        println!("<== {}", describe(name, tally, taken));
        self.total.add(tally);
        self.summary.push((name.to_owned(), tally, taken));
    }

    /// One step that either works or does not.
    pub(crate) fn run_once(&mut self, name: &str, step: impl FnOnce() -> bool) {
        self.run(name, || Tally::step(step()));
    }

    /// Prints the table of steps and, as the very last line, the counts that CI reads.
    pub(crate) fn finish(self) -> ExitCode {
        println!();
        for (name, tally, taken) in &self.summary {
            println!("{}", describe(name, *tally, *taken));
        }
        println!("{}", last_line(self.total));
        if self.total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn describe(name: &str, tally: Tally, taken: Duration) -> String {
    let word = if tally.failed == 0 { "ok    " } else { "FAILED" };
    let seconds = taken.as_secs_f64();
    format!("{word} {name}: {} ok, {} not ok, {seconds:.1} s", tally.passed, tally.failed)
}

fn last_line(total: Tally) -> String {
    format!("{} passed, {} failed", total.passed, total.failed)
}

#[cfg(test)]
mod tests {
    use super::{Steps, Tally, last_line};
    use std::process::ExitCode;

    #[test]
    fn a_failed_step_does_not_stop_the_next_one_and_is_not_forgotten() {
        let mut steps = Steps::default();
        let mut ran = false;
        steps.run_once("bad", || false);
        steps.run("tests", || {
            ran = true;
            Tally { passed: 7, failed: 0 }
        });
        assert!(ran);
        assert_eq!(last_line(steps.total), "7 passed, 1 failed");
        assert_eq!(format!("{:?}", steps.finish()), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn without_a_failure_the_exit_code_says_so() {
        let mut steps = Steps::default();
        steps.run_once("good", || true);
        assert_eq!(last_line(steps.total), "1 passed, 0 failed");
        assert_eq!(format!("{:?}", steps.finish()), format!("{:?}", ExitCode::SUCCESS));
    }
}
