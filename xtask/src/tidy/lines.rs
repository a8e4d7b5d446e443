//! Rules about single lines: unfinished work, ignored tests, sleeps, machine paths, trailing whitespace.

use super::rust::{mask, tests_start};
use super::tree::SourceFile;
use super::{Finding, Tree, is_rule_file};

/// Folders on somebody's machine.
const MACHINE_PATHS: [&str; 4] = ["/home/", "/root/", "/work/", "/Users/"];

/// Marks of work that was left for later; later is an issue, not a comment.
const UNFINISHED_MACROS: [&str; 2] = ["todo!(", "unimplemented!("];
const UNFINISHED_WORDS: [&str; 2] = ["FIXME", "XXX"];

const SLEEPS: [&str; 3] = ["sleep(", "sleep_until(", "park_timeout("];
const SLEEP_REASON: &str = "// sleeps because:";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        check_whitespace(file, findings);
        if is_rule_file(&file.path) {
            continue;
        }
        check_machine_paths(file, findings);
        check_unfinished(file, findings);
        if file.is_rust() {
            check_ignored(file, findings);
            check_sleeps(file, findings);
        }
    }
}

/// Recorded bytes are what they are.
fn is_recorded(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "golden" | "fixtures" | "snapshots"))
}

fn check_whitespace(file: &SourceFile, findings: &mut Vec<Finding>) {
    if is_recorded(&file.path) {
        return;
    }
    for (at, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(&file.path, at + 1, "trailing whitespace"));
        }
    }
}

fn check_machine_paths(file: &SourceFile, findings: &mut Vec<Finding>) {
    for (at, line) in file.text.lines().enumerate() {
        for path in MACHINE_PATHS {
            // After a letter or a dot it is the middle of something else: a URL, a relative path.
            let is_absolute = |start: usize| {
                let before = line[..start].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '}' | '~'))
            };
            if line.match_indices(path).any(|(start, _)| is_absolute(start)) {
                let message = format!("`{path}` is a folder of somebody's machine");
                findings.push(Finding::new(&file.path, at + 1, message));
            }
        }
    }
}

fn check_unfinished(file: &SourceFile, findings: &mut Vec<Finding>) {
    for (at, line) in file.text.lines().enumerate() {
        let by_macro = UNFINISHED_MACROS.iter().filter(|mark| line.contains(**mark));
        let by_word = UNFINISHED_WORDS
            .iter()
            .filter(|mark| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == **mark));
        for mark in by_macro.chain(by_word) {
            findings.push(Finding::new(&file.path, at + 1, format!("`{mark}` marks unfinished work")));
        }
    }
}

fn check_ignored(file: &SourceFile, findings: &mut Vec<Finding>) {
    let masked = mask(&file.text);
    for (at, (line, code)) in file.text.lines().zip(masked.lines()).enumerate() {
        // The masked line tells code from prose; the reason is a literal, so it is read from the line itself.
        let is_bare_attribute = code.contains("#[ignore") && !has_reason(line);
        let is_bare_condition = code.contains("cfg_attr(") && code.trim_end().ends_with("ignore)]");
        if is_bare_attribute || is_bare_condition {
            let message = "an ignored test says why: `#[ignore = \"reason\"]`";
            findings.push(Finding::new(&file.path, at + 1, message));
        }
    }
}

fn has_reason(line: &str) -> bool {
    let after = line.split_once("#[ignore").map_or("", |(_, after)| after);
    let reason = after.trim_start().strip_prefix('=').map_or("", str::trim_start);
    reason.starts_with('"') && !reason.starts_with("\"\"")
}

fn check_sleeps(file: &SourceFile, findings: &mut Vec<Finding>) {
    let masked = mask(&file.text);
    let is_test_file = file.path.contains("/tests/")
        || file.path.ends_with("/tests.rs")
        || file.path.starts_with("crates/windlass-conformance/");
    let first = if is_test_file { 1 } else { tests_start(&masked).unwrap_or(usize::MAX) };
    let lines: Vec<&str> = file.text.lines().collect();
    for (at, code) in masked.lines().enumerate() {
        let explained = |at: usize| lines[at].contains(SLEEP_REASON);
        if at + 1 < first || !sleeps(code) || explained(at) || (at > 0 && explained(at - 1)) {
            continue;
        }
        let message = format!("wait on a signal or a virtual clock, or say `{SLEEP_REASON} ...`");
        findings.push(Finding::new(&file.path, at + 1, message));
    }
}

fn sleeps(code: &str) -> bool {
    SLEEPS.iter().any(|call| {
        code.match_indices(call).any(|(at, _)| {
            let before = &code[..at];
            let is_other_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            // A virtual clock's sleep is the wait that we want, a workflow's is a recorded timer; a definition is no call.
            let is_wanted = ["clock.", "clock().", "wf.", "fn "].iter().any(|end| before.ends_with(end));
            !is_other_name && !is_wanted
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{Finding, Tree, check};

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut findings);
        findings
    }

    fn lines_of(path: &str, text: &str) -> Vec<usize> {
        findings(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn trailing_whitespace_is_found_in_every_text_file_but_recorded_ones() {
        assert_eq!(lines_of("a.md", "one \ntwo\nthree\t\nfour\r\n"), [1, 3, 4]);
        assert_eq!(lines_of("a/golden/x.json", "one \n"), []);
    }

    #[test]
    fn machine_paths_are_found_and_look_alikes_are_not() {
        assert_eq!(lines_of("a.toml", "p = \"/home/me/x\"\n# /root/.cache\n/work/x\n/Users/me\n"), [1, 2, 3, 4]);
        assert_eq!(lines_of("a.md", "https://example.org/home/x and ./work/ and a/root/b\n"), []);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(lines_of("a.rs", "todo!()\nunimplemented!(\"x\")\n// FIXME: x\n-- XXX\n"), [1, 2, 3, 4]);
        assert_eq!(lines_of("a.sh", "mktemp XXXXXX\n"), []);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        assert_eq!(lines_of("a.rs", "#[ignore]\nfn t() {}\n"), [1]);
        assert_eq!(lines_of("a.rs", "#[ignore = \"\"]\nfn t() {}\n"), [1]);
        assert_eq!(lines_of("a.rs", "#[cfg_attr(miri, ignore)]\nfn t() {}\n"), [1]);
        assert_eq!(lines_of("a.rs", "#[ignore = \"needs root\"]\nfn t() {}\n"), []);
        assert_eq!(lines_of("a.rs", "// `#[ignore]` in prose\n"), []);
    }

    #[test]
    fn a_sleep_in_a_test_needs_a_reason() {
        let bare = "thread::sleep(x);\n";
        assert_eq!(lines_of("crates/a/tests/t.rs", bare), [1]);
        assert_eq!(lines_of("crates/a/src/job/tests.rs", bare), [1]);
        assert_eq!(lines_of("crates/windlass-conformance/src/a.rs", "tokio::time::sleep_until(x)\n"), [1]);
        assert_eq!(lines_of("crates/a/src/lib.rs", bare), []);
        let unit = "fn a() { sleep(x); }\n#[cfg(test)]\nmod tests {\n    fn t() { sleep(x); }\n}\n";
        assert_eq!(lines_of("crates/a/src/lib.rs", unit), [4]);
    }

    #[test]
    fn a_sleep_with_a_reason_or_on_a_virtual_clock_is_fine() {
        let path = "crates/a/tests/t.rs";
        assert_eq!(lines_of(path, "sleep(x); // sleeps because: the kernel must notice\n"), []);
        assert_eq!(lines_of(path, "// sleeps because: the kernel must notice\nsleep(x);\n"), []);
        assert_eq!(
            lines_of(path, "clock.sleep(x).await;\nwf.sleep(x).await;\nfn sleep(x: u8) {}\nno_sleep(x);\n\"sleep(\"\n"),
            []
        );
    }
}
