//! "Did you mean": the known word nearest to an unknown one.

/// At most this many edits away, or the suggestion confuses more than it helps.
const EDITS_MAX: usize = 3;

/// The candidate nearest to `word`, if one is near.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .map(|candidate| (edits(word, candidate), *candidate))
        .filter(|(distance, candidate)| {
            // A prefix (`bench`) is a shortened command, however much is missing.
            *distance <= EDITS_MAX.min(word.len() / 2) || (word.len() >= 3 && candidate.starts_with(word))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, left_char) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right_char) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(left_char != *right_char);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    #[test]
    fn edits_counts_insertions_deletions_and_substitutions() {
        assert_eq!(edits("tidy", "tidy"), 0);
        assert_eq!(edits("tdy", "tidy"), 1);
        assert_eq!(edits("tests", "test"), 1);
        assert_eq!(edits("chuck", "check"), 1);
        assert_eq!(edits("", "test"), 4);
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let known = ["check", "test", "bench-stores"];
        assert_eq!(nearest("chekc", &known), Some("check"));
        assert_eq!(nearest("bench", &known), Some("bench-stores"));
        assert_eq!(nearest("deploy", &known), None);
        assert_eq!(nearest("x", &known), None);
    }
}
