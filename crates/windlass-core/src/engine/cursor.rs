//! Cursors of listings: opaque to callers, checked when they come back.

use super::tables::Position;
use crate::error::{Error, Result};
use crate::job::State;

/// Where a listing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// In which queue, by number.
    pub(super) queue: u64,
    /// In which state.
    pub(super) state: State,
    /// At which place; `None` is before the first.
    pub(super) position: Option<Position>,
}

const VERSION: u8 = 1;
const BODY: usize = 1 + 8 + 1 + 1 + 24;
const SUM: usize = 8;

impl Cursor {
    /// As text. `question` is what was asked: a cursor answers no other one.
    pub(super) fn encode(&self, question: &str) -> String {
        let mut bytes = Vec::with_capacity(BODY + SUM);
        bytes.push(VERSION);
        bytes.extend(self.queue.to_be_bytes());
        bytes.push(u8::try_from(self.state.index()).unwrap_or(u8::MAX));
        bytes.push(u8::from(self.position.is_some()));
        for part in self.position.unwrap_or_default() {
            bytes.extend(part.to_be_bytes());
        }
        bytes.extend(sum(&bytes, question));
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From text that may have been tampered with.
    pub(super) fn decode(text: &str, question: &str) -> Result<Self> {
        let wrong = Error::wrong_cursor;
        let bytes = unhex(text).filter(|bytes| bytes.len() == BODY + SUM).ok_or_else(wrong)?;
        let (body, check) = bytes.split_at(BODY);
        if check != sum(body, question) || body[0] != VERSION {
            return Err(wrong());
        }
        let number = |at: usize| -> Option<u64> { Some(u64::from_be_bytes(body.get(at..at + 8)?.try_into().ok()?)) };
        let queue = number(1).ok_or_else(wrong)?;
        let state = *State::ALL.get(usize::from(body[9])).ok_or_else(wrong)?;
        let mut position = [0; 3];
        for (i, part) in position.iter_mut().enumerate() {
            *part = number(11 + 8 * i).ok_or_else(wrong)?.cast_signed();
        }
        Ok(Self { queue, state, position: (body[10] == 1).then_some(position) })
    }
}

fn sum(body: &[u8], question: &str) -> [u8; SUM] {
    let mut hash = blake3::Hasher::new_derive_key("windlass listing cursor v1");
    hash.update(body).update(question.as_bytes());
    let mut first = [0; SUM];
    first.copy_from_slice(&hash.finalize().as_bytes()[..SUM]);
    first
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * (BODY + SUM) || !text.is_ascii() {
        return None;
    }
    let digit = |i: usize| text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_comes_back_for_its_question_only(queue: u64, state in 0usize..6, position: Option<[i64; 3]>) {
            let cursor = Cursor { queue, state: State::ALL[state], position };
            let text = cursor.encode("question");
            prop_assert_eq!(Cursor::decode(&text, "question").unwrap(), cursor);
            prop_assert!(Cursor::decode(&text, "another").is_err());
        }

        #[test]
        fn one_changed_digit_is_noticed(at in 0usize..2 * (BODY + SUM), digit in "[0-9a-f]") {
            let text = Cursor { queue: 7, state: State::Ready, position: Some([1, -2, 3]) }.encode("q");
            let mut other = text.clone();
            other.replace_range(at..=at, &digit);
            prop_assert_eq!(Cursor::decode(&other, "q").is_ok(), other == text);
        }

        #[test]
        fn no_text_panics(text in ".{0,100}") {
            prop_assert!(Cursor::decode(&text, "q").is_err());
        }
    }
}
