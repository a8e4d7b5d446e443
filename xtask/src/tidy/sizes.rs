//! Sizes: files up to 500 lines, functions up to 70, with exceptions that can only shrink.

use std::collections::BTreeMap;

use super::rust::{Function, functions, mask};
use super::{Finding, Tree};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// An exception that allows this much more than the file has is due to be lowered.
const SLACK_LINES: usize = 25;

/// A file that may be longer, and why it is better whole.
struct Exception {
    path: &'static str,
    lines: usize,
    reason: &'static str,
}

const FILE_EXCEPTIONS: [Exception; 0] = [];

/// `path count` per line: how many functions over the limit a file still has.
const RATCHET: &str = "xtask/tidy-ratchet.txt";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    check_files(tree, &FILE_EXCEPTIONS, findings);
    check_functions(tree, findings);
}

fn check_files(tree: &Tree, exceptions: &[Exception], findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let lines = file.text.lines().count();
        let exception = exceptions.iter().find(|exception| exception.path == file.path);
        let allowed = exception.map_or(FILE_LINES_MAX, |exception| exception.lines);
        if lines > allowed {
            let message = format!("{lines} lines, at most {allowed}: split it by role");
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
    for exception in exceptions {
        let lines = tree.file(exception.path).map_or(0, |file| file.text.lines().count());
        let Exception { path, lines: allowed, reason } = exception;
        if lines <= FILE_LINES_MAX {
            let message = format!("no longer needs its size exception ({reason}): remove it");
            findings.push(Finding::new(path, 0, message));
        } else if lines + SLACK_LINES < *allowed {
            let message = format!("{lines} lines: lower its size exception of {allowed}");
            findings.push(Finding::new(path, 0, message));
        }
    }
}

fn check_functions(tree: &Tree, findings: &mut Vec<Finding>) {
    let ratchet_text = tree.file(RATCHET).map_or("", |file| file.text.as_str());
    let mut ratchet = read_ratchet(ratchet_text, findings);
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let mut long = functions(&mask(&file.text));
        long.retain(|function| function.lines > FUNCTION_LINES_MAX);
        let allowed = ratchet.remove(file.path.as_str()).unwrap_or(0);
        if long.len() > allowed {
            for Function { name, line, lines } in &long {
                let message = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(&file.path, *line, message));
            }
        } else if long.len() < allowed {
            let message = format!("{} has {} long functions left: lower {allowed}", file.path, long.len());
            findings.push(Finding::new(RATCHET, 0, message));
        }
    }
    for path in ratchet.keys() {
        findings.push(Finding::new(RATCHET, 0, format!("{path} is gone: remove its line")));
    }
}

fn read_ratchet<'a>(text: &'a str, findings: &mut Vec<Finding>) -> BTreeMap<&'a str, usize> {
    let mut ratchet = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.split_once(' ').and_then(|(path, count)| Some((path, count.parse().ok()?)));
        match entry {
            Some((path, count)) if count > 0 => drop(ratchet.insert(path, count)),
            _ => findings.push(Finding::new(RATCHET, at + 1, "expected `path count`, count above 0")),
        }
    }
    ratchet
}

#[cfg(test)]
mod tests {
    use super::{Exception, Finding, RATCHET, Tree, check_files, check_functions};

    fn files(lines: usize, exceptions: &[Exception]) -> Vec<Finding> {
        let mut findings = Vec::new();
        check_files(&Tree::of(&[("a.rs", &"x\n".repeat(lines))]), exceptions, &mut findings);
        findings
    }

    fn exception(lines: usize) -> [Exception; 1] {
        [Exception { path: "a.rs", lines, reason: "a test" }]
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "x;\n".repeat(lines - 2))
    }

    fn long_functions(text: &str, ratchet: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        check_functions(&Tree::of(&[("a.rs", text), (RATCHET, ratchet)]), &mut findings);
        findings
    }

    #[test]
    fn a_file_may_have_500_lines_and_not_one_more() {
        assert_eq!(files(500, &[]), []);
        assert_eq!(files(501, &[]).len(), 1);
    }

    #[test]
    fn a_size_exception_holds_until_it_is_exceeded_or_stale() {
        assert_eq!(files(600, &exception(610)), []);
        assert_eq!(files(611, &exception(610)).len(), 1);
        assert!(files(500, &exception(610))[0].message.contains("no longer needs"));
        assert!(files(550, &exception(610))[0].message.contains("lower"));
    }

    #[test]
    fn a_size_exception_for_a_file_that_is_gone_is_stale() {
        let mut findings = Vec::new();
        check_files(&Tree::of(&[]), &exception(610), &mut findings);
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn a_function_may_have_70_lines_and_not_one_more() {
        assert_eq!(long_functions(&function_of(70), ""), []);
        let findings = long_functions(&function_of(71), "");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("fn long has 71 lines"));
    }

    #[test]
    fn the_ratchet_allows_what_it_lists_and_must_follow_downwards() {
        let two = function_of(80) + &function_of(90);
        assert_eq!(long_functions(&two, "# why\na.rs 2\n"), []);
        assert_eq!(long_functions(&two, "a.rs 1\n").len(), 2);
        assert!(long_functions(&two, "a.rs 3\n")[0].message.contains("lower 3"));
    }

    #[test]
    fn stale_and_unreadable_ratchet_lines_are_findings() {
        assert!(long_functions("", "b.rs 1\n")[0].message.contains("is gone"));
        for bad in ["a.rs\n", "a.rs x\n", "a.rs 0\n"] {
            assert_eq!(long_functions("", bad).len(), 1, "{bad}");
        }
    }
}
