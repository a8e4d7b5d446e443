//! What a store's URL begins with. A typo is told from a store that is not there.

use crate::failure::Failure;
use crate::secrets::masked;
use crate::values::nearest;

/// The kinds of store that a URL may name.
const SCHEMES: [&str; 6] = ["sqlite", "memory", "redis", "rediss", "redis+sentinel", "redis+cluster"];
const KNOWN: &str = "sqlite://, redis://, rediss://, redis+sentinel://, redis+cluster:// and memory://";

/// Refuses what names no store, and says what was probably meant.
pub(crate) fn check(url: &str) -> Result<(), Failure> {
    let Some((scheme, _)) = url.split_once("://") else {
        return Err(Failure::usage(format!("`{}` is not the URL of a store", masked(url))).hint(meant(url)));
    };
    if SCHEMES.contains(&scheme) {
        return Ok(());
    }
    let plain = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let shown = if plain { format!("`{scheme}://`") } else { "what stands before ://".to_owned() };
    let failure = Failure::usage(format!("{shown} is no kind of store; there are {KNOWN}"));
    Err(match nearest(scheme, &SCHEMES) {
        Some(near) => failure.hint(format!("did you mean `{near}://`?")),
        None => failure,
    })
}

/// What to write instead of a text without `://`.
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
    fn what_was_probably_meant_is_said() {
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
            let failure = check(url).unwrap_err().to_string();
            assert!(failure.contains(words), "{url}: {failure}");
        }
        for url in
            ["redis:/u:hunter2@h", "redis//u:hunter2@h", "u:hunter2@h:6379", "u:hunter2@h://x", "redis:hunter2@h"]
        {
            let failure = check(url).unwrap_err().to_string();
            assert!(!failure.contains("hunter2"), "{url}: {failure}");
        }
    }
}
