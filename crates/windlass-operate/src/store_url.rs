//! URLs of stores: whether one names a store, and how it is shown without its passwords.

use crate::error::OperateError;
use crate::text::nearest_name;

/// Replaces a hidden value.
const HIDDEN: &str = "***";
/// The end of the names of options that hold passwords.
const SECRET_OPTION: &str = "password=";

/// A URL without its user and passwords. The names of files stay as they are.
pub fn masked(url: &str) -> String {
    if url.starts_with("sqlite:") || url.starts_with("memory") {
        return url.to_owned();
    }
    let start = match url.split_once("://") {
        Some((scheme, _)) => scheme.len() + 3,
        // Not a URL; what stands before an @ may be a password all the same.
        None if url.contains(':') => url.find(':').map_or(0, |at| at + 1),
        None => return url.to_owned(),
    };
    without_options(&without_user(url, start))
}

/// Text that may contain such a URL, such as a line of a file, without users and passwords. When in doubt, it hides more.
pub fn hide_passwords(text: &str) -> String {
    let begins = |line: &str| match line.find("://") {
        Some(at) => Some(at + 3),
        // Mistyped, such as `redis:/user:password@host`.
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

/// The schemes of URLs of stores.
const SCHEMES: [&str; 6] = ["sqlite", "memory", "redis", "rediss", "redis+sentinel", "redis+cluster"];
const KNOWN: &str = "sqlite://, redis://, rediss://, redis+sentinel://, redis+cluster:// and memory://";

/// Checks that a URL names a kind of store. The error suggests what was probably meant.
pub fn check(url: &str) -> Result<(), OperateError> {
    let Some((scheme, _)) = url.split_once("://") else {
        return Err(OperateError::invalid(format!("`{}` is not the URL of a store", masked(url))).hint(meant(url)));
    };
    if SCHEMES.contains(&scheme) {
        return Ok(());
    }
    let plain = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let shown = if plain { format!("`{scheme}://`") } else { "what stands before ://".to_owned() };
    let error = OperateError::invalid(format!("{shown} is no kind of store; there are {KNOWN}"));
    Err(match nearest_name(scheme, &SCHEMES) {
        Some(near) => error.hint(format!("did you mean `{near}://`?")),
        None => error,
    })
}

/// What to write instead of text without `://`.
fn meant(url: &str) -> String {
    let end = url.find(|c: char| !(c.is_ascii_alphabetic() || c == '+')).unwrap_or(url.len());
    let (word, rest) = url.split_at(end);
    if (rest.starts_with(':') || rest.starts_with("//")) && SCHEMES.contains(&word) {
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        // A path begins with its own slash, a server does not.
        let rest = if word == "sqlite" && !rest.starts_with("//") { rest } else { rest.trim_start_matches('/') };
        return format!("did you mean `{}`?", masked(&format!("{word}://{rest}")));
    }
    if is_host_and_port(url) {
        return format!("a server is named as {}", masked(&format!("redis://{url}")));
    }
    format!("a file is named as sqlite://{}; for a try there is memory://", masked(url))
}

fn is_host_and_port(url: &str) -> bool {
    let port = url.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| port.parse::<u16>().is_ok()) && !url.contains('/')
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
    fn a_password_in_other_text_is_not_shown() {
        for text in [
            "line 1\n1 | store = \"redis://ada:secret@localhost\n  | ^",
            "unexpected argument 'redis://ada:secret@h' found",
            "`redis:/ada:secret@h` is no URL",
            "unexpected argument 'rediz://ada:secret@h' found",
            "redis+sentinel://h/m?sentinel_password=secret&prefix=x",
            "'rediss://h?sentinel_password=secret'",
        ] {
            let shown = hide_passwords(text);
            assert!(!shown.contains("secret") && shown.contains(HIDDEN), "{shown}");
            assert_eq!(shown.lines().count(), text.lines().count());
        }
        for plain in ["`redis://localhost` is away", "mail to ada@example.org", "is redis up?", "é redis é = 1\n"] {
            assert_eq!(hide_passwords(plain), plain);
        }
    }

    #[test]
    fn the_error_suggests_what_was_probably_meant() {
        for (url, words) in [
            ("redis:/localhost:6379", "did you mean `redis://localhost:6379`?"),
            ("redis:localhost", "did you mean `redis://localhost`?"),
            ("redis//localhost", "did you mean `redis://localhost`?"),
            ("redis+cluster:/a,b", "did you mean `redis+cluster://a,b`?"),
            ("sqlite:jobs.db", "did you mean `sqlite://jobs.db`?"),
            ("sqlite:/var/jobs.db", "did you mean `sqlite:///var/jobs.db`?"),
            ("sqlite//jobs.db", "did you mean `sqlite://jobs.db`?"),
            ("memory:", "did you mean `memory://`?"),
            ("localhost:6379", "redis://localhost:6379"),
            ("jobs.db", "sqlite://jobs.db"),
            ("redis/jobs.db", "sqlite://redis/jobs.db"),
            ("rediz://h", "did you mean `redis://`?"),
            ("mongo://h", "rediss://, redis+sentinel://, redis+cluster:// and memory://"),
        ] {
            let error = check(url).unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
        }
        for url in
            ["redis:/u:hunter2@h", "redis//u:hunter2@h", "u:hunter2@h:6379", "u:hunter2@h://x", "redis:hunter2@h"]
        {
            let error = check(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }
}
