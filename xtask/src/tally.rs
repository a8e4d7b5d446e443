//! Counting: how many tests passed and failed, read from the summary lines of nextest and of `cargo test`.

/// What passed and what failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// One step that is not a test run.
    pub(crate) fn step(ok: bool) -> Self {
        Self { passed: u64::from(ok), failed: u64::from(!ok) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// The result of a test run from what it printed. `ok` is its exit status, which has the last word: a run that
    /// ended badly counts at least one failure (it may not even have compiled), and so does a run that ended well
    /// but printed no summary, because then we no longer understand it.
    pub(crate) fn of_run(ok: bool, lines: &[String]) -> Self {
        let lines: Vec<String> = lines.iter().map(|line| without_colours(line)).collect();
        // Nextest shows what a failed test printed, in which libtest counts the same failure again. So its own
        // summary, when there is one, is the only line that counts.
        let nextest = lines.iter().rev().find_map(|line| nextest_summary(line));
        let cargo_test = || lines.iter().filter_map(|line| cargo_test_summary(line)).reduce(Self::plus);
        let summary = nextest.or_else(cargo_test);
        let mut tally = summary.unwrap_or_default();
        if tally.failed == 0 && (!ok || summary.is_none()) {
            tally.failed = 1;
        }
        tally
    }

    fn plus(mut self, other: Self) -> Self {
        self.add(other);
        self
    }
}

/// `     Summary [   0.012s] 5 tests run: 4 passed (1 slow), 1 failed, 2 skipped`
fn nextest_summary(line: &str) -> Option<Tally> {
    let rest = line.trim_start().strip_prefix("Summary [")?;
    let (_, counts) = rest.split_once(" run: ").or_else(|| rest.split_once(" run:"))?;
    // failed, timed out, exec failed, and whatever comes: not a pass.
    Some(sum(without_parentheses(counts).split(','), |what| what != "skipped"))
}

/// `test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn cargo_test_summary(line: &str) -> Option<Tally> {
    let (_, counts) = line.trim_start().strip_prefix("test result: ")?.split_once(". ")?;
    Some(sum(counts.split(';'), |what| what == "failed"))
}

/// Adds up items such as `4 passed`; `is_failure` is asked about the words behind the other numbers.
fn sum<'a>(items: impl Iterator<Item = &'a str>, is_failure: impl Fn(&str) -> bool) -> Tally {
    let mut tally = Tally::default();
    for (count, what) in items.filter_map(counted) {
        match what {
            "passed" => tally.passed += count,
            _ if is_failure(what) => tally.failed += count,
            _ => {}
        }
    }
    tally
}

fn counted(item: &str) -> Option<(u64, &str)> {
    let (count, what) = item.trim().split_once(' ')?;
    Some((count.parse().ok()?, what.trim()))
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        })
        .collect()
}

/// Without escape sequences: `CARGO_TERM_COLOR=always` is common in CI.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::Tally;

    fn of_run(ok: bool, line: &str) -> (u64, u64) {
        let Tally { passed, failed } = Tally::of_run(ok, &[line.to_owned()]);
        (passed, failed)
    }

    #[test]
    fn nextest_lines() {
        let clean = "     Summary [   0.012s] 5 tests run: 5 passed, 0 skipped";
        assert_eq!(of_run(true, clean), (5, 0));
        let mixed = "     Summary [  61.5s] 9/12 tests run: 5 passed (2 slow, 1 leaky), 2 failed, 1 timed out, 1 exec failed, 3 skipped";
        assert_eq!(of_run(false, mixed), (5, 4));
        let single = "     Summary [   0.012s] 1 test run: 1 passed, 7 skipped";
        assert_eq!(of_run(true, single), (1, 0));
    }

    #[test]
    fn coloured_nextest_lines() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.012s] \u{1b}[1m5\u{1b}[0m tests run: \u{1b}[1m4\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m1\u{1b}[0m \u{1b}[31;1mfailed\u{1b}[0m, 0 skipped";
        assert_eq!(of_run(false, line), (4, 1));
    }

    #[test]
    fn cargo_test_lines_are_summed() {
        let lines = [
            "test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s".to_owned(),
            "noise: 7 passed; 7 failed".to_owned(),
            "test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out".to_owned(),
        ];
        assert_eq!(Tally::of_run(false, &lines), Tally { passed: 5, failed: 3 });
    }

    #[test]
    fn a_failed_test_that_nextest_shows_is_counted_once() {
        let lines = [
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out".to_owned(),
            "     Summary [   0.012s] 5 tests run: 4 passed, 1 failed, 0 skipped".to_owned(),
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out".to_owned(),
        ];
        assert_eq!(Tally::of_run(false, &lines), Tally { passed: 4, failed: 1 });
    }

    #[test]
    fn a_run_that_did_not_compile_is_a_failure() {
        assert_eq!(of_run(false, "error: could not compile `windlass-core`"), (0, 1));
    }

    #[test]
    fn a_run_that_ended_badly_although_every_test_passed_is_a_failure() {
        let clean = "     Summary [   0.012s] 5 tests run: 5 passed, 0 skipped";
        assert_eq!(of_run(false, clean), (5, 1));
    }

    #[test]
    fn a_run_without_a_summary_is_a_failure() {
        assert_eq!(of_run(true, "all good, believe me"), (0, 1));
    }
}
