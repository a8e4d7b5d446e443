//! Every crate takes the workspace's lints; one that does not would be held to nothing, in silence.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        let is_manifest = file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml");
        if !is_manifest || !file.text.lines().any(|line| line.trim() == "[package]") {
            continue;
        }
        if !takes_workspace_lints(&file.text) {
            let message = "without `[lints]` `workspace = true` no lint applies to this crate";
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        (section == "[lints]" && line == "workspace = true") || (section.is_empty() && line == "lints.workspace = true")
    })
}

#[cfg(test)]
mod tests {
    use super::{Tree, check};

    fn count(text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Tree::of(&[("crates/a/Cargo.toml", text)]), &mut findings);
        findings.len()
    }

    #[test]
    fn a_crate_without_the_workspace_lints_is_found() {
        assert_eq!(count("[package]\nname = \"a\"\n"), 1);
        assert_eq!(count("[package]\nname = \"a\"\n[lints]\nworkspace = false\n"), 1);
        assert_eq!(count("[package]\nname = \"a\"\n[lints.clippy]\n[dependencies.x]\nworkspace = true\n"), 1);
        assert_eq!(count("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"), 0);
        assert_eq!(count("lints.workspace = true\n[package]\nname = \"a\"\n"), 0);
    }

    #[test]
    fn a_manifest_of_a_workspace_alone_has_no_crate_to_lint() {
        assert_eq!(count("[workspace]\nmembers = []\n"), 0);
    }
}
