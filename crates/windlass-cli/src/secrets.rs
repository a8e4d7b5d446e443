//! Passwords are never shown: not in results, not in errors, not in the arguments of processes that are started.

/// Stands for what is not shown.
const HIDDEN: &str = "***";
/// Options of a URL whose values nobody may see.
const SECRET_OPTION: &str = "password=";

/// A URL without the user and the passwords that may stand in it. The names of files are left as they are.
pub(crate) fn masked(url: &str) -> String {
    if url.starts_with("sqlite:") || url.starts_with("memory") {
        return url.to_owned();
    }
    let start = match url.split_once("://") {
        Some((scheme, _)) => scheme.len() + 3,
        // Not the URL of anything; what stands before an @ may be a password all the same.
        None if url.contains(':') => url.find(':').map_or(0, |at| at + 1),
        None => return url.to_owned(),
    };
    without_options(&without_user(url, start))
}

/// Words in which such a URL may stand, such as the line of a file that cannot be read. Rather too much is hidden there
/// than too little.
pub(crate) fn hide(text: &str) -> String {
    let begins = |line: &str| match line.find("://") {
        Some(at) => Some(at + 3),
        // Nearly one.
        None => line.find("redis").and_then(|at| Some(at + line[at..].find(':')? + 1)),
    };
    let line = |line: &str| match begins(line) {
        Some(start) => without_options(&without_user(line, start)),
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A password may hold an @ itself, so the last one counts.
fn without_user(text: &str, start: usize) -> String {
    match text[start..].rfind('@') {
        Some(at) => format!("{}{HIDDEN}{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

fn without_options(text: &str) -> String {
    let mut parts = text.split(SECRET_OPTION);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| matches!(c, '&' | '"' | '`' | '\'') || c.is_whitespace()).unwrap_or(part.len());
        shown.push_str(SECRET_OPTION);
        shown.push_str(HIDDEN);
        shown.push_str(&part[end..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (url, shown) in [
            ("redis://ada:se@cret@localhost:6379/0", "redis://***@localhost:6379/0"),
            ("rediss://:se/cret@h?prefix=a", "rediss://***@h?prefix=a"),
            (
                "redis+sentinel://u:secret@a,b/main?sentinel_password=secret&prefix=x",
                "redis+sentinel://***@a,b/main?sentinel_password=***&prefix=x",
            ),
            ("redis+sentinel://a/main?sentinel_password=secret", "redis+sentinel://a/main?sentinel_password=***"),
            ("redis:/ada:secret@localhost", "redis:***@localhost"),
            ("ada:secret@localhost", "ada:***@localhost"),
        ] {
            assert_eq!(masked(url), shown);
        }
        for plain in
            ["sqlite:///var/lib/a@b.db", "sqlite://a@b/jobs.db", "jobs@home.db", "memory", "", "redis://localhost:6379"]
        {
            assert_eq!(masked(plain), plain);
        }
    }

    #[test]
    fn nor_in_the_midst_of_other_words() {
        for text in [
            "line 1\n1 | store = \"redis://ada:secret@localhost\n  | ^",
            "unexpected argument 'redis://ada:secret@h' found",
            "`redis:/ada:secret@h` is no URL",
            "unexpected argument 'rediz://ada:secret@h' found",
            "redis+sentinel://h/m?sentinel_password=secret&prefix=x",
            "'rediss://h?sentinel_password=secret'",
        ] {
            let shown = hide(text);
            assert!(!shown.contains("secret") && shown.contains(HIDDEN), "{shown}");
            assert_eq!(shown.lines().count(), text.lines().count());
        }
        for plain in ["`redis://localhost` is away", "mail to ada@example.org", "is redis up?", "é redis é = 1\n"] {
            assert_eq!(hide(plain), plain);
        }
    }
}
