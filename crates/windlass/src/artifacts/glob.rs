//! Patterns: `*` and `?` within a part of a path, `**` for any number of parts. Everything else stands for itself.
//!
//! Our own, because a crate for this (globset) brings an engine for regular expressions. Matching goes back to the last star
//! alone, so that it costs at most length times length, whatever the pattern.

use super::{ArtifactError, ArtifactResult};
use windlass_core::artifact::PATH_BYTES_MAX;

/// A pattern, as its parts.
#[derive(Debug)]
pub(super) struct Pattern {
    /// As it was written.
    pub(super) text: String,
    parts: Vec<String>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> ArtifactResult<Self> {
        let refused = |why: &str| Err(ArtifactError::refused(text, why));
        if text.is_empty() || text.len() > PATH_BYTES_MAX {
            return refused("a pattern has 1 to 1,024 bytes; `.` means everything in the folder");
        }
        if text.chars().any(char::is_control) {
            return refused("a pattern has no control characters");
        }
        if text.starts_with('/') {
            return refused("a pattern is relative to the folder; leave out the `/` at its beginning");
        }
        let parts: Vec<String> = text.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect();
        if parts.iter().any(|part| part == "..") {
            return refused("a pattern does not leave its folder: no `..`");
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// True if it names one file or folder.
    pub(super) fn is_plain(&self) -> bool {
        !self.parts.iter().any(|part| is_wild(part))
    }

    /// The folder that everything it can match is in; of a plain one the whole path.
    pub(super) fn root(&self) -> String {
        let plain: Vec<&str> = self.parts.iter().map(String::as_str).take_while(|part| !is_wild(part)).collect();
        plain.join("/")
    }

    /// Whether it matches this path.
    pub(super) fn matches(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('/').collect();
        wild(&self.parts, &path, |part| part == "**", |part, text| is_part(part, text))
    }

    /// Whether anything in this folder can match.
    pub(super) fn may_match_below(&self, folder: &str) -> bool {
        let mut parts = self.parts.iter();
        for text in folder.split('/') {
            match parts.next() {
                None => return false,
                Some(part) if part == "**" => return true,
                Some(part) if !is_part(part, text) => return false,
                Some(_) => {}
            }
        }
        parts.next().is_some()
    }
}

fn is_wild(part: &str) -> bool {
    part.contains(['*', '?'])
}

fn is_part(part: &str, text: &str) -> bool {
    let (part, text): (Vec<char>, Vec<char>) = (part.chars().collect(), text.chars().collect());
    wild(&part, &text, |c| *c == '*', |c, other| *c == '?' || c == other)
}

/// Matches a sequence with stars, which stand for any number of items.
fn wild<P, T>(pattern: &[P], text: &[T], is_star: impl Fn(&P) -> bool, fits: impl Fn(&P, &T) -> bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // The last star, and how far the text was when it began to take.
    let mut star: Option<(usize, usize)> = None;
    // ends because: each turn moves on in the text, in the pattern, or lets the star take one more.
    while t < text.len() {
        match pattern.get(p) {
            Some(item) if is_star(item) => {
                star = Some((p, t));
                p += 1;
            }
            Some(item) if fits(item, &text[t]) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(is_star)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(path)
    }

    #[test]
    fn stars_and_marks() {
        for (pattern, path) in [
            ("a.txt", "a.txt"),
            ("./a.txt", "a.txt"),
            ("*", "a"),
            ("*", ".hidden"),
            ("*.txt", "a.b.txt"),
            ("a*b*c", "a-b-b-c"),
            ("?.txt", "ü.txt"),
            ("dist/*.js", "dist/x.js"),
            ("**", "a/b/c"),
            ("**/*.rs", "main.rs"),
            ("**/*.rs", "a/b/main.rs"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/c/z"),
            ("a/**/b/**/c", "a/b/x/b/y/c"),
            ("a/**", "a/b"),
            ("a**b", "a-b"),
            ("[x]{y}", "[x]{y}"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*", "a/b"),
            ("*.txt", "a.txt.gz"),
            ("?", "ab"),
            ("?", "/"),
            ("a?b", "a/b"),
            ("dist/*.js", "dist/a/x.js"),
            ("**/*.rs", "a.rs/b"),
            ("a/**/z", "b/a/z"),
            ("a/*/z", "a/z"),
            ("a", "ab"),
            ("[ab]", "a"),
            ("{a,b}", "a"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn folders_that_cannot_help_are_not_looked_into() {
        let pattern = Pattern::new("src/*/x/*.rs").unwrap();
        assert_eq!(pattern.root(), "src");
        for folder in ["src", "src/a", "src/a/x"] {
            assert!(pattern.may_match_below(folder), "{folder}");
        }
        for folder in ["lib", "src/a/y", "src/a/x/b", "src/a/x/b/c"] {
            assert!(!pattern.may_match_below(folder), "{folder}");
        }
        assert!(Pattern::new("a/**/z").unwrap().may_match_below("a/b/c/d"));
        assert_eq!(Pattern::new("./a//b/").unwrap().root(), "a/b");
    }

    #[test]
    fn patterns_that_leave_the_folder_are_refused() {
        for bad in ["", "/etc/*", "../x", "a/../../x", "a\0b", &"a".repeat(1_025)] {
            assert!(matches!(Pattern::new(bad), Err(ArtifactError::Refused { .. })), "{bad}");
        }
    }

    /// With one backtracking point per star this would take longer than the universe has.
    #[test]
    fn a_hostile_pattern_costs_little() {
        let path = "a".repeat(255);
        assert!(!matches(&format!("{}b", "a*".repeat(200)), &path));
        let deep = vec!["a"; 500].join("/");
        assert!(!matches(&format!("{}b", "**/a/".repeat(100)), &deep));
    }
}
