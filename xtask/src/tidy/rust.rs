//! Just enough of Rust's syntax to count: code without its comments and literals, and where functions end.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Of the `fn`, from 1.
    pub(super) line: usize,
    /// From the `fn` to the closing brace.
    pub(super) lines: usize,
}

/// The same text with the insides of comments, strings and characters blanked out; lines stay where they are.
pub(super) fn mask(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            masked.push(chars[at]);
            at += 1;
        } else {
            masked.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    masked
}

/// Where the comment or literal that starts here ends; `at` itself when none starts here.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |c| c == '\n'),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at),
        'r' if !follows_word(chars, at) => raw_string_end(chars, at),
        'b' if next == Some('r') && !follows_word(chars, at) => {
            let end = raw_string_end(chars, at + 1);
            if end == at + 1 { at } else { end }
        }
        '\'' => char_end(chars, at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|c| wanted(*c)).map_or(chars.len(), |offset| from + offset)
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) if depth == 1 => return at + 2,
            ('*', Some('/')) => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    chars.len()
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn raw_string_end(chars: &[char], r: usize) -> usize {
    let quote = find(chars, r + 1, |c| c != '#');
    let hashes = quote - r - 1;
    if chars.get(quote) != Some(&'"') {
        // An identifier that starts with r, or a raw identifier.
        return r;
    }
    let mut at = quote + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// A character ends at its second quote; a lifetime has none.
fn char_end(chars: &[char], start: usize) -> usize {
    match chars.get(start + 1) {
        Some('\\') => (find(chars, start + 3, |c| c == '\'') + 1).min(chars.len()),
        Some(_) if chars.get(start + 2) == Some(&'\'') => start + 3,
        _ => start,
    }
}

/// The functions with a body in masked code, also those inside others.
pub(super) fn functions(masked: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    for (at, _) in masked.match_indices("fn ") {
        if masked[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String =
            masked[at + 3..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // Without a name it is a type: `fn (u8) -> u8`.
        let Some(end) = body_end(&masked[at..]).filter(|_| !name.is_empty()) else {
            continue;
        };
        functions.push(Function {
            name,
            line: line_of(masked, at),
            lines: masked[at..at + end].matches('\n').count() + 1,
        });
    }
    functions
}

/// Where the body's closing brace is; none for a declaration that ends with a semicolon.
fn body_end(code: &str) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            // Inside brackets it belongs to an array type: `[u8; 16]`.
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(at + 1),
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The line, from 1, of a position.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The line, from 1, at which the unit tests of a file begin; they are its end by convention.
pub(super) fn tests_start(masked: &str) -> Option<usize> {
    let mut lines = masked.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let is_module = lines.peek().is_some_and(|(_, next)| {
            let next = next.trim_start();
            next.starts_with("mod ") && !next.trim_end().ends_with(';')
        });
        if line.trim() == "#[cfg(test)]" && is_module {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{functions, mask, tests_start};

    fn found(text: &str) -> Vec<(String, usize, usize)> {
        functions(&mask(text)).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn literals_and_comments_are_blanked_and_lines_kept() {
        let text = "a /* { /* { */ \n } */ b // }\nc \"}\\\"}\" d r#\"}\"}\"# e '}' '\\'' &'a f br\"}\" g";
        let masked = mask(text);
        assert!(!masked.contains(['{', '}']), "{masked}");
        assert_eq!(masked.lines().count(), 3);
        assert_eq!(masked.split_whitespace().collect::<String>(), "abcde&'afg");
    }

    #[test]
    fn a_function_is_measured_from_its_fn_to_its_closing_brace() {
        let text = "\npub async fn one(\n    a: [u8; 2],\n) -> u8 {\n    if a { \"}\" } else { 2 }\n}\n";
        assert_eq!(found(text), [("one".to_owned(), 2, 5)]);
    }

    #[test]
    fn declarations_and_function_types_have_no_body() {
        assert_eq!(found("trait T { fn a(&self) -> [u8; 2]; }\nstruct S { f: fn (u8) -> u8 }\n"), []);
        assert_eq!(found("// fn commented() {}\nlet s = \"fn quoted() {}\";\n"), []);
    }

    #[test]
    fn nested_functions_count_for_themselves_too() {
        let names: Vec<_> = found("fn outer() {\n    fn inner() {\n    }\n}\n");
        assert_eq!(names, [("outer".to_owned(), 1, 4), ("inner".to_owned(), 2, 2)]);
    }

    #[test]
    fn unit_tests_start_at_their_attribute() {
        assert_eq!(tests_start("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), Some(3));
        assert_eq!(tests_start("#[cfg(test)]\nfn helper() {}\n"), None);
        assert_eq!(tests_start("#[cfg(test)]\nmod tests;\nfn live() {}\n"), None);
    }
}
