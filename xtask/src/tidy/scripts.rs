//! One script per transition, and each says at its head what it is for and what it can answer.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        let is_script = (in_folder(&file.path, "queries") && file.has_extension(&["sql"]))
            || (in_folder(&file.path, "lua") && file.has_extension(&["lua"]));
        if !is_script {
            continue;
        }
        let header = header(&file.text);
        for field in ["purpose:", "outcomes:"] {
            if !header.contains(field) {
                let message = format!("the comment at its head has no line `-- {field} ...`");
                findings.push(Finding::new(&file.path, 1, message));
            }
        }
    }
}

fn in_folder(path: &str, folder: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(parents, _)| parents.split('/').any(|part| part == folder))
}

/// The comment lines at the very top, in lower case; before them only a Lua script's `#!` flags.
fn header(text: &str) -> String {
    text.lines()
        .skip_while(|line| line.starts_with("#!"))
        .take_while(|line| line.starts_with("--"))
        .map(|line| line.to_lowercase() + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Tree, check};

    fn count(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut findings);
        findings.len()
    }

    #[test]
    fn a_script_without_purpose_or_outcomes_is_found() {
        let path = "crates/windlass-postgres/queries/claim.sql";
        assert_eq!(count(path, "SELECT 1;\n"), 2);
        assert_eq!(count(path, "-- Purpose: claim jobs.\nSELECT 1;\n"), 1);
        assert_eq!(count(path, "\n-- Purpose: late.\n-- Outcomes: none.\nSELECT 1;\n"), 2);
        assert_eq!(count(path, "-- Purpose: claim jobs.\n-- Outcomes: claimed.\nSELECT 1;\n"), 0);
    }

    #[test]
    fn lua_scripts_too_and_no_other_files() {
        let good = "#!lua flags=allow-oom\n-- Purpose: x.\n-- Outcomes: y.\nreturn 1\n";
        assert_eq!(count("crates/windlass-redis/lua/claim.lua", good), 0);
        assert_eq!(count("crates/windlass-redis/lua/claim.lua", "return 1\n"), 2);
        assert_eq!(count("crates/windlass-postgres/migrations/1.sql", "SELECT 1;\n"), 0);
        assert_eq!(count("crates/windlass-redis/src/lua.rs", "\n"), 0);
    }
}
