//! Durations of workflow code.

use std::time::Duration;

/// A duration: a [`Duration`], or text such as `"30s"`.
///
/// The units of text are `ms`, `s`, `m`, `h` and `d`. Less than a millisecond counts as one, so that a positive duration never
/// becomes zero.
pub trait Span {
    /// The duration in milliseconds.
    ///
    /// # Panics
    ///
    /// On text that is not a number and a unit. In a workflow such a panic makes the run stuck and names the line.
    fn to_ms(self) -> u64;
}

impl Span for Duration {
    fn to_ms(self) -> u64 {
        windlass_core::typed::ms(self)
    }
}

impl Span for &str {
    #[track_caller]
    #[expect(clippy::panic, reason = "documented: the text is a literal in almost every program")]
    fn to_ms(self) -> u64 {
        match parse(self) {
            Some(ms) => ms,
            None => panic!("`{self}` is not a duration; write 500ms, 30s, 5m, 2h or 30d"),
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn text_is_a_number_and_a_unit() {
        let cases = [("1ms", 1), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("30d", 2_592_000_000)];
        for (text, ms) in cases {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for wrong in ["", "30", "s", "30 s", "-1s", "1.5s", "30w", "99999999999999999999d", "9999999999999999999d"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
