//! Values as people read them, and text that is safe to print.

use windlass::core::time::Timestamp;

/// Units of time and their milliseconds, the longest first.
pub(crate) const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration in its largest whole unit: `3m`, `2h`.
pub fn rough_duration(ms: u64) -> String {
    let (unit, unit_ms) = TIME_UNITS.into_iter().find(|(_, unit_ms)| ms >= *unit_ms).unwrap_or(("ms", 1));
    format!("{}{unit}", ms / unit_ms)
}

/// The distance of a time from `now`: `3m ago`, `in 2h`.
pub fn relative_time(time: Timestamp, now: Timestamp) -> String {
    match time > now {
        true => format!("in {}", rough_duration(time.ms_since(now))),
        false => format!("{} ago", rough_duration(now.ms_since(time))),
    }
}

/// A number with its noun: `1 job`, `2 jobs`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A size in bytes, KiB, MiB or GiB.
pub(crate) fn byte_size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// The known name that is most similar to a typed one; `None` when none is similar enough.
pub fn nearest_name<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|name| (strsim::jaro(typed, name), *name)).max_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|(similarity, _)| *similarity > 0.7).map(|(_, name)| name)
}

/// A hint for serde's message about an unknown field; `None` for other messages.
pub fn unknown_field_hint(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field `")?;
    let mut quoted = rest.split('`').step_by(2);
    let typed = quoted.next()?;
    let known: Vec<&str> = rest.split('`').skip(2).step_by(2).collect();
    Some(match nearest_name(typed, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", known.join(", ")),
    })
}

/// At most 60 characters of typed text, with control characters escaped.
pub fn excerpt(text: &str) -> String {
    let cut = if text.chars().nth(60).is_some() { "…" } else { "" };
    text.chars().take(60).flat_map(char::escape_debug).chain(cut.chars()).collect()
}

/// Stored text for a terminal: each control character becomes a space.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A logged line for a terminal: colours are kept, tabs become four spaces, other control characters one.
pub fn printable_with_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\x1b[") {
            let end = sequence.find(|c: char| !(c.is_ascii_digit() || matches!(c, ';' | ':')));
            if let Some(end) = end.filter(|&end| sequence[end..].starts_with('m')) {
                out.push_str(&rest[..end + 3]);
                rest = &rest[end + 3..];
                continue;
            }
        }
        rest = &rest[c.len_utf8()..];
        if c == '\t' {
            out.push_str("    ");
        } else {
            out.push(if c.is_control() { ' ' } else { c });
        }
    }
    out
}

/// A name quoted for a shell, where it needs quotes.
pub fn shell_quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@+,".contains(c);
    match !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        assert_eq!(nearest_name("sqllite", &["sqlite", "memory"]), Some("sqlite"));
        assert_eq!(nearest_name("xyz", &["sqlite", "memory"]), None);
        let said = "unknown field `prioritty`, expected one of `queue`, `priority`";
        assert_eq!(unknown_field_hint(said).unwrap(), "did you mean `priority`?");
        assert_eq!(unknown_field_hint("unknown field `stroe`, expected `store`").unwrap(), "did you mean `store`?");
        assert_eq!(unknown_field_hint("expected a map"), None);
    }

    #[test]
    fn stored_text_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(excerpt(&"x".repeat(100)).chars().count(), 61);
        assert_eq!(printable_with_colours("\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(printable_with_colours("\x1b[2Jgone\x07"), " [2Jgone ");
        assert_eq!(printable_with_colours("\x1b]0;title\x07"), " ]0;title ");
        assert_eq!(printable_with_colours("a\tü\x1b["), "a    ü [");
    }

    #[test]
    fn a_quoted_name_is_one_word_of_a_shell() {
        assert_eq!(shell_quoted("mail"), "mail");
        assert_eq!(shell_quoted("a}b{c"), "'a}b{c'");
        assert_eq!(shell_quoted("it's; rm"), r"'it'\''s; rm'");
    }
}
