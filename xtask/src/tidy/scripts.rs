//! One script per transition, and each says at its head what it is for, what it is given and what it can answer. A Lua
//! script also says what bounds it, because a server does nothing else while one runs.

use super::{Finding, Tree};

/// What the head of a Lua script must name, behind its first line, which says what it is for.
const LUA_FIELDS: [&str; 4] = ["KEYS", "ARGV", "Answers", "Bounds"];
/// Says why a loop comes to its end, above the loop or as its first line.
const ENDS: &str = "-- ends because: ";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        if in_folder(&file.path, "queries") && file.has_extension(&["sql"]) {
            check_query(&file.path, &file.text, findings);
        }
        if in_folder(&file.path, "lua") && file.has_extension(&["lua"]) {
            // Parts are no scripts: they have nothing to answer.
            if !in_folder(&file.path, "lib") {
                check_head(&file.path, &file.text, findings);
            }
            check_loops(&file.path, &file.text, findings);
        }
    }
}

fn check_query(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let header = header(text).to_lowercase();
    for field in ["purpose:", "outcomes:"] {
        if !header.contains(field) {
            let message = format!("the comment at its head has no line `-- {field} ...`");
            findings.push(Finding::new(path, 1, message));
        }
    }
}

fn check_head(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let header = header(text);
    let purpose = header.lines().next().and_then(|line| line.strip_prefix("-- ")).unwrap_or_default();
    let says = |line: &str, field: &str| {
        let rest = line.strip_prefix("-- ").and_then(|line| line.strip_prefix(field));
        rest.is_some_and(|rest| rest.starts_with(' ') && !rest.trim().is_empty())
    };
    if purpose.is_empty() || LUA_FIELDS.iter().any(|field| purpose.starts_with(field)) {
        findings.push(Finding::new(path, 1, "its first line does not say what it is for"));
    }
    for field in LUA_FIELDS {
        if !header.lines().any(|line| says(line, field)) {
            findings.push(Finding::new(path, 1, format!("the comment at its head has no line `-- {field} ...`")));
        }
    }
}

/// A `for` of Lua ends by itself; other loops say why they do.
fn check_loops(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (i, line) in lines.iter().enumerate() {
        let is_loop = line.starts_with("while ") || *line == "repeat" || line.starts_with("repeat ");
        let around = [i.checked_sub(1), Some(i + 1)];
        let says = around.into_iter().flatten().filter_map(|at| lines.get(at)).any(|line| line.starts_with(ENDS));
        if is_loop && !says {
            let message = format!("write `{ENDS}...` above the loop or as its first line, or use a `for` with a bound");
            findings.push(Finding::new(path, i + 1, message));
        }
    }
}

fn in_folder(path: &str, folder: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(parents, _)| parents.split('/').any(|part| part == folder))
}

/// The comment lines at the very top.
fn header(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("--")).map(|line| line.to_owned() + "\n").collect()
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
    fn a_query_without_purpose_or_outcomes_is_found() {
        let path = "crates/windlass-postgres/queries/claim.sql";
        assert_eq!(count(path, "SELECT 1;\n"), 2);
        assert_eq!(count(path, "-- Purpose: claim jobs.\nSELECT 1;\n"), 1);
        assert_eq!(count(path, "\n-- Purpose: late.\n-- Outcomes: none.\nSELECT 1;\n"), 2);
        assert_eq!(count(path, "-- Purpose: claim jobs.\n-- Outcomes: claimed.\nSELECT 1;\n"), 0);
        assert_eq!(count("crates/windlass-postgres/migrations/1.sql", "SELECT 1;\n"), 0);
    }

    #[test]
    fn a_lua_script_says_what_it_is_for_and_what_it_is_given_and_answers() {
        let path = "crates/windlass-redis/lua/claim.lua";
        let good = "-- Leases jobs.\n--\n-- KEYS    all\n-- ARGV    max\n-- Answers ok\n-- Bounds  max\n\nreturn 1\n";
        assert_eq!(count(path, good), 0);
        assert_eq!(count(path, "return 1\n"), 5);
        for field in ["KEYS    all", "ARGV    max", "Answers ok", "Bounds  max"] {
            assert_eq!(count(path, &good.replace(&format!("-- {field}\n"), "")), 1, "{field}");
            let name = field.split(' ').next().unwrap();
            assert_eq!(count(path, &good.replace(field, name)), 1, "{field} says nothing");
        }
        assert_eq!(count(path, &good.replace("-- Leases jobs.\n--\n", "")), 1);
        assert_eq!(count("crates/windlass-redis/lua/lib/claim.lua", "return 1\n"), 0);
        assert_eq!(count("crates/windlass-redis/src/lua.rs", "\n"), 0);
    }

    #[test]
    fn a_loop_says_why_it_ends() {
        let path = "crates/windlass-redis/lua/lib/claim.lua";
        for head in ["while a do", "repeat", "while true do"] {
            assert_eq!(count(path, &format!("  {head}\n    a()\n  end\n")), 1, "{head}");
            assert_eq!(count(path, &format!("-- ends because: a shrinks\n  {head}\n    a()\n")), 0);
            assert_eq!(count(path, &format!("  {head}\n    -- ends because: a shrinks\n    a()\n")), 0);
        }
        assert_eq!(count(path, "for i = 1, n do\n  a()\nend\n"), 0);
    }
}
