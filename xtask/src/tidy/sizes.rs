//! Sizes: files up to 500 lines, functions up to 70.

use super::rust::{Function, functions, mask};
use super::{Finding, Tree};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let message = format!("{lines} lines, at most {FILE_LINES_MAX}: split it by role");
            findings.push(Finding::new(&file.path, 0, message));
        }
        for Function { name, line, lines } in functions(&mask(&file.text)) {
            if lines > FUNCTION_LINES_MAX {
                let message = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Tree, check};

    fn findings(text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Tree::of(&[("a.rs", text)]), &mut findings);
        findings
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "x;\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_may_have_500_lines_and_not_one_more() {
        assert_eq!(findings(&"x\n".repeat(500)), []);
        assert_eq!(findings(&"x\n".repeat(501)).len(), 1);
    }

    #[test]
    fn a_function_may_have_70_lines_and_not_one_more() {
        assert_eq!(findings(&function_of(70)), []);
        let findings = findings(&(function_of(70) + &function_of(71)));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("fn long has 71 lines"));
    }
}
