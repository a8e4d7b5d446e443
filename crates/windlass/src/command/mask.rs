//! Hiding secrets.

use memchr::memmem::Finder;
use std::borrow::Cow;

const HIDDEN: &[u8] = b"***";
/// A line of a value with several lines is not hidden when it is shorter: it would be `}` or `EOF`.
const PART_BYTES_MIN: usize = 4;

/// What must not be seen.
#[derive(Debug, Default)]
pub(super) struct Mask {
    finders: Vec<Finder<'static>>,
    longest: usize,
}

impl Mask {
    pub(super) fn of<'s>(secrets: impl Iterator<Item = &'s str>) -> Self {
        let mut parts: Vec<&str> = Vec::new();
        for secret in secrets {
            match secret.trim_end_matches(['\r', '\n']) {
                "" => {}
                line if !line.contains('\n') => parts.push(line),
                // Output comes in lines, and so do they.
                lines => parts.extend(lines.lines().filter(|line| line.len() >= PART_BYTES_MIN)),
            }
        }
        parts.sort_unstable();
        parts.dedup();
        let longest = parts.iter().map(|part| part.len()).max().unwrap_or(0);
        Self { finders: parts.iter().map(|part| Finder::new(part).into_owned()).collect(), longest }
    }

    /// The length of the longest thing to hide.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        self.finders.iter().any(|finder| finder.find(text).is_some())
    }

    /// The same without secrets. Of two that overlap nothing is left.
    pub(super) fn hide<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        if !self.is_in(text) {
            return Cow::Borrowed(text);
        }
        let mut found = Vec::new();
        for finder in &self.finders {
            let mut from = 0;
            while let Some(at) = finder.find(&text[from..]) {
                found.push((from + at, from + at + finder.needle().len()));
                // It may overlap with itself.
                from += at + 1;
            }
        }
        found.sort_unstable();
        let mut hidden = Vec::with_capacity(text.len());
        let mut end = 0;
        for (from, to) in found {
            if from >= end {
                hidden.extend_from_slice(&text[end..from]);
                hidden.extend_from_slice(HIDDEN);
            }
            end = end.max(to);
        }
        hidden.extend_from_slice(&text[end..]);
        Cow::Owned(hidden)
    }

    pub(super) fn hide_text(&self, text: String) -> String {
        match self.hide(text.as_bytes()) {
            Cow::Borrowed(_) => text,
            Cow::Owned(hidden) => String::from_utf8_lossy(&hidden).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(secrets: &[&str], text: &str) -> String {
        Mask::of(secrets.iter().copied()).hide_text(text.to_owned())
    }

    #[test]
    fn every_place_is_hidden_and_nothing_else() {
        assert_eq!(hidden(&["hunter2"], "hunter2, hunter and hunter2hunter2"), "***, hunter and ******");
        assert_eq!(hidden(&["", "\n"], "as it was"), "as it was");
    }

    #[test]
    fn secrets_that_overlap_leave_nothing() {
        assert_eq!(hidden(&["abcd", "cdef"], "xabcdefx"), "x***x");
        assert_eq!(hidden(&["aaaa"], "aaaaaa."), "***.");
        assert_eq!(hidden(&["pass", "password"], "my password"), "my ***");
    }

    #[test]
    fn each_line_of_a_long_secret_is_hidden_but_not_the_short_ones() {
        let key = "-----BEGIN-----\r\nMIIB\nab}\n-----END-----\n";
        assert_eq!(hidden(&[key], "-----BEGIN-----"), "***");
        assert_eq!(hidden(&[key], "x MIIB ab}"), "x *** ab}");
    }
}
