//! Links between documents lead somewhere, and every document can be reached.

use std::collections::BTreeSet;

use super::tree::SourceFile;
use super::{Finding, Tree};

/// Where a reader starts.
const INDEXES: [&str; 3] = ["README.md", "docs/README.md", "docs/index.md"];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut reachable = BTreeSet::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, target) in links(file) {
            let Some(path) = resolve(&file.path, &target) else {
                let message = format!("link `{target}` leads out of the project");
                findings.push(Finding::new(&file.path, line, message));
                continue;
            };
            if !tree.contains(&path) {
                let message = format!("link `{target}` leads nowhere: there is no {path}");
                findings.push(Finding::new(&file.path, line, message));
            }
            if INDEXES.contains(&file.path.as_str()) {
                reachable.insert(path);
            }
        }
    }
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"])) {
        let is_document = file.path.starts_with("docs/") && !INDEXES.contains(&file.path.as_str());
        if is_document && !reachable.contains(&file.path) {
            let message = "no index links to it: add it to README.md or docs/README.md";
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
}

/// The relative links of a document with their lines: inline ones and reference definitions, outside of code.
fn links(file: &SourceFile) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for (at, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            continue;
        }
        if in_fence {
            continue;
        }
        let prose = without_code(line);
        let inline = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        let defined = prose.strip_prefix('[').and_then(|rest| Some(rest.split_once("]: ")?.1));
        for target in inline.chain(defined) {
            // A title may follow, an anchor may end it; neither is part of the path.
            let target = target.split_whitespace().next().unwrap_or_default();
            let target = target.trim_matches(['<', '>']).split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') {
                links.push((at + 1, target.to_owned()));
            }
        }
    }
    links
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// The target's path from the root; none when it leaves the project.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{Finding, Tree, check};

    fn findings(files: &[(&str, &str)]) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Tree::of(files), &mut findings);
        findings
    }

    #[test]
    fn links_to_what_is_there_are_fine() {
        let readme = "[a](docs/a.md) [b](./docs/a.md#part \"title\") [c](docs/) [d](https://example.org) [e](#here)\n\n[f]: docs/a.md\n";
        let document = "[back](../README.md), `[code](nowhere.md)`\n```\n[fenced](nowhere.md)\n```\n";
        assert_eq!(findings(&[("README.md", readme), ("docs/a.md", document)]), []);
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let bad = "[a](gone.md)\n[b](../out.md)\n[c](/docs)\n\n[d]: gone.md\n";
        let lines: Vec<usize> = findings(&[("README.md", bad)]).iter().map(|f| f.line).collect();
        assert_eq!(lines, [1, 2, 3, 5]);
    }

    #[test]
    fn a_document_that_no_index_links_to_is_found() {
        let files = [
            ("README.md", "[docs](docs/README.md)\n"),
            ("docs/README.md", "[a](a.md)\n"),
            ("docs/a.md", "[b](b.md)\n"),
            ("docs/b.md", "\n"),
        ];
        let findings = findings(&files);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "docs/b.md");
    }
}
