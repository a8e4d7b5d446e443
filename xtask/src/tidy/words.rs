//! One vocabulary: synonyms of our verbs and nouns do not appear, neither in prose nor inside identifiers.

use super::{Finding, Tree, is_rule_file};

/// A synonym as its parts (`claim_token` is two), and the word to use instead.
struct Banned {
    parts: &'static [&'static str],
    instead: &'static str,
}

const BANNED: [Banned; 4] = [
    Banned { parts: &["fetch"], instead: "claim (a job), read (anything else)" },
    Banned { parts: &["dequeue"], instead: "claim" },
    Banned { parts: &["claim", "token"], instead: "lease token" },
    Banned { parts: &["reclaim"], instead: "reap" },
];

/// Names that are not ours to choose.
const ALLOWED: [&str; 11] = [
    "fetch_add",
    "fetch_and",
    "fetch_max",
    "fetch_min",
    "fetch_nand",
    "fetch_or",
    "fetch_sub",
    "fetch_update",
    "fetch_xor",
    "git fetch",
    "cargo fetch",
];

/// A browser's API has its own names, so the dashboard's source is not read.
const EXTENSIONS: [&str; 9] = ["rs", "md", "sql", "lua", "toml", "yml", "yaml", "json", "txt"];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        if !file.has_extension(&EXTENSIONS) || is_rule_file(&file.path) {
            continue;
        }
        for (at, line) in file.text.lines().enumerate() {
            for Banned { parts, instead } in banned_in(line) {
                let word = parts.join("_");
                let message = format!("`{word}` is not one of our words: say {instead}");
                findings.push(Finding::new(&file.path, at + 1, message));
            }
        }
    }
}

fn banned_in(line: &str) -> impl Iterator<Item = &'static Banned> {
    let mut line = line.to_owned();
    for allowed in ALLOWED {
        line = line.replace(allowed, " ");
    }
    let identifiers: Vec<Vec<String>> =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').map(parts).filter(|parts| !parts.is_empty()).collect();
    BANNED.iter().filter(move |banned| identifiers.iter().any(|parts| contains(parts, banned.parts)))
}

fn contains(parts: &[String], banned: &[&str]) -> bool {
    parts.windows(banned.len()).any(|window| window.iter().zip(banned).all(|(part, stem)| is_form_of(part, stem)))
}

/// The stem itself or a form of it: fetches, fetched, fetching, fetcher; dequeued, dequeuing.
fn is_form_of(part: &str, stem: &str) -> bool {
    const ENDINGS: [&str; 7] = ["", "s", "es", "d", "ed", "ing", "er"];
    let short = stem.strip_suffix('e').unwrap_or(stem);
    [stem, short].iter().any(|base| {
        // Without its last e a stem alone is another word.
        part.strip_prefix(base).is_some_and(|end| ENDINGS.contains(&end) && part.len() >= stem.len())
    })
}

/// The lower-case parts of an identifier in any of the usual cases.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for piece in identifier.split('_') {
        let mut part = String::new();
        let mut previous_is_lower = false;
        for c in piece.chars() {
            if c.is_uppercase() && previous_is_lower {
                parts.push(std::mem::take(&mut part));
            }
            previous_is_lower = !c.is_uppercase();
            part.extend(c.to_lowercase());
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{Tree, banned_in, check, parts};

    fn count(line: &str) -> usize {
        banned_in(line).count()
    }

    #[test]
    fn identifiers_fall_into_their_parts() {
        assert_eq!(parts("claim_token"), ["claim", "token"]);
        assert_eq!(parts("ClaimToken"), ["claim", "token"]);
        assert_eq!(parts("CLAIM_TOKEN"), ["claim", "token"]);
        assert_eq!(parts("__x1Y"), ["x1", "y"]);
    }

    #[test]
    fn synonyms_are_found_in_every_dress() {
        let bad = [
            "workers fetch jobs",
            "Fetched by a worker.",
            "fn fetch_jobs()",
            "struct JobFetcher;",
            "let prefix_FETCH = 1;",
            "fn dequeue()",
            "dequeuing",
            "auto_dequeued",
            "claim_token: Token",
            "ClaimToken",
            "reclaiming",
            "ReclaimStalled",
        ];
        for line in bad {
            assert_eq!(count(line), 1, "{line}");
        }
    }

    #[test]
    fn other_words_are_left_alone() {
        let good = [
            "counter.fetch_add(1, Relaxed)",
            "run git fetch first",
            "claim and lease token",
            "a far-fetchable word: prefetching",
            "the claim, token in hand",
            "enqueue, claim, proclaim",
        ];
        for line in good {
            assert_eq!(count(line), 0, "{line}");
        }
    }

    #[test]
    fn our_own_table_and_the_dashboard_are_not_read() {
        let mut findings = Vec::new();
        let text = "fetch\n";
        let tree = Tree::of(&[("xtask/src/tidy/words.rs", text), ("dashboard/src/api.ts", text), ("docs/a.md", text)]);
        check(&tree, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("docs/a.md", 1));
    }
}
