//! Lua compares two texts by the locale of its host, and Redis takes the locale from the host: `<` between texts gives another
//! order on a Czech server than on an English one. So scripts compare numbers, and texts by `E.is_before`.
//!
//! Lua refuses to compare a number with a text. It is therefore enough that one side of a comparison is seen to be a number:
//! a literal, a length, a sum, a call such as `tonumber`, a constant, or a name that holds a number in every script. Other
//! comparisons of numbers say so in the line above.

use super::{Finding, Tree};

/// Says that a comparison, or a sort, is one of numbers; above its line or behind it.
const NUMBERS: &str = "-- compares numbers";
const ORDERS: [&str; 4] = ["<", ">", "<=", ">="];
/// Functions that return a number.
const FUNCTIONS: [&str; 7] = ["tonumber", "min", "max", "floor", "byte", "E.num", "E.counter"];
/// Names that hold numbers in every script, also as fields.
const NAMES: &str = "active at_time attempts cap count due edge expires first following gone handled huge i level limit max \
    minute most n next_at now over piece position ready ring_vtime s_ready stalls stalls_max to upto vtime";
/// Where an operand of a comparison ends.
const ENDS: &str = ", ; = == ~= < > <= >= and or not then do if elseif else while until return local end in function";

const OPENING: &str = "([{";
const CLOSING: &str = ")]}";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.has_extension(&["lua"])) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let says = |line: &str| line.contains(NUMBERS);
            if says(line) || at.checked_sub(1).and_then(|above| lines.get(above)).is_some_and(|above| says(above)) {
                continue;
            }
            if let Some(message) = fault(line) {
                findings.push(Finding::new(&file.path, at + 1, message));
            }
        }
    }
}

/// What a line compares that may be texts.
fn fault(line: &str) -> Option<String> {
    let tokens = tokens(line);
    for (at, token) in tokens.iter().enumerate() {
        if ORDERS.contains(&token.as_str()) {
            let (left, right) = (before(&tokens[..at]), behind(&tokens[at + 1..]));
            if !is_number(left) && !is_number(right) {
                let compared = format!("{} {token} {}", left.concat(), right.concat());
                return Some(format!(
                    "`{compared}` may compare texts, by the locale of the server's host: use `E.is_before`, or say `{NUMBERS}` \
                     above the line"
                ));
            }
        }
        let is_sort = tokens[at..].starts_with(&["table", ".", "sort", "("].map(str::to_owned));
        let arguments = tokens.get(at + 4..).unwrap_or_default();
        if is_sort && behind(arguments).len() == arguments_len(arguments) {
            return Some(format!(
                "`table.sort` without a function sorts texts by the locale of the server's host: give it one, or say `{NUMBERS}` \
                 above the line"
            ));
        }
    }
    None
}

/// How many tokens there are before one outside of all parentheses for which `ends` is true, or before a parenthesis that
/// closes more than was opened. Read backwards, `opening` and `closing` parentheses change places.
fn length_until<'a>(
    tokens: impl ExactSizeIterator<Item = &'a String>,
    (opening, closing): (&str, &str),
    ends: impl Fn(&str) -> bool,
) -> usize {
    let (count, mut depth) = (tokens.len(), 0_usize);
    for (at, token) in tokens.enumerate() {
        match token.as_str() {
            token if opening.contains(token) => depth += 1,
            token if closing.contains(token) && depth > 0 => depth -= 1,
            token if depth == 0 && (closing.contains(token) || ends(token)) => return at,
            _ => {}
        }
    }
    count
}

/// How many tokens there are before the parenthesis closes.
fn arguments_len(tokens: &[String]) -> usize {
    length_until(tokens.iter(), (OPENING, CLOSING), |_| false)
}

fn is_in(words: &str, token: &str) -> bool {
    words.split(' ').any(|word| word == token)
}

/// The operand that these tokens begin with.
fn behind(tokens: &[String]) -> &[String] {
    &tokens[..length_until(tokens.iter(), (OPENING, CLOSING), |token| is_in(ENDS, token))]
}

/// The operand that these tokens end with.
fn before(tokens: &[String]) -> &[String] {
    let length = length_until(tokens.iter().rev(), (CLOSING, OPENING), |token| is_in(ENDS, token));
    &tokens[tokens.len() - length..]
}

/// Whether an operand is seen to be a number.
fn is_number(operand: &[String]) -> bool {
    // A value in parentheses, and what stands for it when there is none.
    if let [open, inner @ .., close] = operand
        && (open.as_str(), close.as_str()) == ("(", ")")
        && arguments_len(inner) == inner.len()
    {
        return inner.split(|token| token == "or").any(is_number);
    }
    let mut depth = 0_usize;
    let mut outside = Vec::new();
    for token in operand {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            other if depth == 0 => outside.push(other),
            _ => {}
        }
    }
    if outside.contains(&"..") {
        return false;
    }
    let is_sum = outside.iter().any(|token| ["+", "-", "*", "/", "%", "^", "#"].contains(token));
    let is_literal = outside.first().is_some_and(|token| token.starts_with(|c: char| c.is_ascii_digit()));
    let is_call = operand.last().is_some_and(|token| token == ")");
    let is_indexed = operand.last().is_some_and(|token| token == "]");
    let name = outside.last().copied().unwrap_or_default();
    let is_constant = name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    is_sum
        || is_literal
        || is_call && FUNCTIONS.contains(&outside.concat().as_str())
        || !is_call && !is_indexed && (is_constant || is_in(NAMES, name))
}

/// The tokens of a line without its comment; a text is one token.
fn tokens(line: &str) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let rest = &chars[at..];
        let length = match rest[0] {
            '-' if rest.get(1) == Some(&'-') => break,
            quote @ ('\'' | '"') => text_len(rest, quote),
            c if c.is_alphanumeric() || c == '_' => {
                let is_number = c.is_ascii_digit();
                let goes_on = |c: &char| c.is_alphanumeric() || *c == '_' || is_number && *c == '.';
                rest.iter().take_while(|c| goes_on(c)).count()
            }
            c if c.is_whitespace() => {
                at += 1;
                continue;
            }
            '.' => rest.iter().take_while(|c| **c == '.').count(),
            '<' | '>' | '=' | '~' if rest.get(1) == Some(&'=') => 2,
            _ => 1,
        };
        tokens.push(rest[..length].iter().collect());
        at += length;
    }
    tokens
}

/// How long a text is, its quotes included.
fn text_len(chars: &[char], quote: char) -> usize {
    let mut is_escaped = false;
    let closes = |c: &char| {
        let closes = *c == quote && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        closes
    };
    chars[1..].iter().position(closes).map_or(chars.len(), |at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::{Tree, check};

    fn lines_of(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Tree::of(&[("crates/windlass-redis/lua/lib/a.lua", text)]), &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_comparison_that_may_be_one_of_texts_is_found() {
        for line in [
            "if place < l.head then",
            "return a[1] <= b[1]",
            "local first = member > after and 1 or 2",
            "if (match(memo, '^(%d+) ') or claim.request) < claim.request then",
            "while 'a' .. n >= prefix .. count do",
            "if f(now) < g(limit) then",
            "if names[i] < names[n] then",
        ] {
            assert_eq!(lines_of(line), [1], "{line}");
        }
    }

    #[test]
    fn a_comparison_with_something_seen_to_be_a_number_is_fine() {
        for line in [
            "if #list > most then",
            "if t < (soonest or math.huge) then",
            "return (j.expires or 0) > now",
            "if a - b < c then",
            "if tonumber(x) <= y and z >= 0 then",
            "if d.count[labelled] >= LANES_MAX then",
            "if E.work >= E.WORK_MAX then",
            "if a[1] == b[1] or a ~= b then",
            "local arrow = '<' .. \"a > b\" -- a < b",
        ] {
            assert_eq!(lines_of(line), [], "{line}");
        }
        assert_eq!(lines_of("-- compares numbers\nif a < b then\nif a < b then"), [3]);
        assert_eq!(lines_of("if a < b then -- compares numbers"), []);
    }

    #[test]
    fn a_sort_has_a_function_or_says_that_it_sorts_numbers() {
        assert_eq!(lines_of("table.sort(members)\ntable.sort(f(a, b))"), [1, 2]);
        assert_eq!(lines_of("table.sort(both, E.is_before)\ntable.sort(both, function(a, b)"), []);
        assert_eq!(lines_of("-- compares numbers\ntable.sort(ids)"), []);
    }
}
