//! The rules that no compiler checks. Each rule is a file below, reads the tree as text and reports findings.
//!
//! The rules are heuristics on purpose: a finding must be cheap to understand and cheap to fix.

mod comparisons;
mod lines;
mod links;
mod manifests;
mod rust;
mod scripts;
mod sizes;
mod tree;
mod words;

use std::fmt;
use std::process::ExitCode;

use tree::Tree;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// From 1; 0 means the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The rules' own tables name what they ban.
fn is_rule_file(path: &str) -> bool {
    path == "xtask/src/tidy.rs" || path.starts_with("xtask/src/tidy/")
}

/// `cargo xtask tidy`.
pub(crate) fn run() -> ExitCode {
    if is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks the whole project and prints what it finds.
pub(crate) fn is_clean() -> bool {
    let tree = match Tree::read(&crate::shell::root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("error: cannot read the project: {error}");
            return false;
        }
    };
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", tree.files.len(), findings.len());
    findings.is_empty()
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    sizes::check(tree, &mut findings);
    words::check(tree, &mut findings);
    lines::check(tree, &mut findings);
    scripts::check(tree, &mut findings);
    comparisons::check(tree, &mut findings);
    manifests::check(tree, &mut findings);
    links::check(tree, &mut findings);
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::{Finding, check, tree::Tree};

    #[test]
    fn a_clean_tree_has_no_findings_and_a_dirty_one_is_told_where() {
        let manifest = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        let clean = [("crates/a/Cargo.toml", manifest), ("crates/a/src/lib.rs", "//! A crate.\n")];
        assert_eq!(check(&Tree::of(&clean)), []);
        let dirty = [("crates/a/src/lib.rs", "//! A crate.\nfn f() { todo!() } \n")];
        let findings = check(&Tree::of(&dirty));
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.line == 2));
    }

    #[test]
    fn a_finding_is_printed_so_that_an_editor_can_jump_to_it() {
        assert_eq!(Finding::new("a.rs", 3, "bad").to_string(), "a.rs:3: bad");
        assert_eq!(Finding::new("a.rs", 0, "bad").to_string(), "a.rs: bad");
    }
}
