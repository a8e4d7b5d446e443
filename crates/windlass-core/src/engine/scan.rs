//! Scans over the jobs that match a filter: which queues and states a scan visits, and the cursors at which it stops. A
//! cursor is opaque to callers, and checked when it comes back.

use super::tables::Position;
use crate::error::{Error, Result};
use crate::job::{JobSpec, State};
use crate::name::{Kind, Labels};
use crate::store::Filter;
use bytes::Bytes;

/// Jobs that one page looks at, at most, when it filters by something that has no index.
pub const SCAN_MAX: usize = 10_000;
/// Payloads up to this size are searched for text.
const SEARCHED_BYTES_MAX: usize = 64 << 10;

/// A position in the listing of one queue and state, as a store keeps it.
pub trait CursorPosition: Clone {
    /// The context of the checksum, so that a store rejects the cursors of another kind of store.
    const CONTEXT: &'static str;

    /// The position as bytes, for the text of a cursor.
    fn to_bytes(&self) -> Vec<u8>;

    /// The position that these bytes were made of; `None` when there is none.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl CursorPosition for Position {
    const CONTEXT: &'static str = "windlass listing cursor v1";

    fn to_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|part| part.to_be_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (parts, rest) = bytes.as_chunks::<8>();
        rest.is_empty().then(|| parts.iter().map(|part| i64::from_be_bytes(*part)).collect::<Vec<_>>())?.try_into().ok()
    }
}

/// A member of an index on a server: whatever bytes, because a damaged one is passed like any other.
impl CursorPosition for Bytes {
    const CONTEXT: &'static str = "windlass listing cursor of a server v1";

    fn to_bytes(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self::copy_from_slice(bytes))
    }
}

/// Where a scan stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor<P> {
    /// The number of the queue.
    pub queue: u64,
    /// The state of the jobs that were visited last.
    pub state: State,
    /// The last position that was visited; `None` is before the first.
    pub position: Option<P>,
}

const VERSION: u8 = 1;
/// Version, queue, state, and whether a position follows.
const HEAD: usize = 1 + 8 + 1 + 1;
const SUM: usize = 8;

impl<P: CursorPosition> Cursor<P> {
    /// As text. `question` is what was asked: a cursor answers no other one.
    pub fn encode(&self, question: &str) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.queue.to_be_bytes());
        bytes.push(u8::try_from(self.state.index()).unwrap_or(u8::MAX));
        bytes.push(u8::from(self.position.is_some()));
        bytes.extend(self.position.iter().flat_map(P::to_bytes));
        bytes.extend(sum::<P>(&bytes, question));
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From text that may have been tampered with.
    pub fn decode(text: &str, question: &str) -> Result<Self> {
        let read = || {
            let bytes = unhex(text)?;
            let (body, check) = bytes.split_at_checked(bytes.len().checked_sub(SUM)?)?;
            let (head, position) = body.split_first_chunk::<HEAD>()?;
            let [VERSION, queue @ .., state, has_position] = head else { return None };
            let position = if *has_position == 1 { Some(P::from_bytes(position)?) } else { None };
            let state = *State::ALL.get(usize::from(*state))?;
            (check == sum::<P>(body, question)).then(|| Self { queue: u64::from_be_bytes(*queue), state, position })
        };
        read().ok_or_else(Error::wrong_cursor)
    }
}

fn sum<P: CursorPosition>(body: &[u8], question: &str) -> [u8; SUM] {
    let mut hash = blake3::Hasher::new_derive_key(P::CONTEXT);
    hash.update(body).update(question.as_bytes());
    let mut first = [0; SUM];
    first.copy_from_slice(&hash.finalize().as_bytes()[..SUM]);
    first
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |i: usize| text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A scan over the jobs that match a filter, queue by queue and state by state, from a cursor on.
#[derive(Debug)]
pub struct JobScan<P> {
    /// The filter that jobs have to match.
    pub filter: Filter,
    /// True when the scan goes from the last job to the first.
    pub descending: bool,
    states: Vec<State>,
    from: Option<Cursor<P>>,
}

impl<P: Clone> JobScan<P> {
    /// Over all states, or the filter's.
    pub fn new(filter: Filter, descending: bool, from: Option<Cursor<P>>) -> Self {
        let mut states = filter.state.map_or(State::ALL.to_vec(), |state| vec![state]);
        if descending {
            states.reverse();
        }
        Self { filter, descending, states, from }
    }

    /// Over these states only.
    pub fn in_states(mut self, states: &[State]) -> Self {
        self.states.retain(|state| states.contains(state));
        self
    }

    /// True for a queue that is not behind the scan.
    pub fn is_ahead(&self, queue: u64) -> bool {
        match &self.from {
            Some(from) if self.descending => queue <= from.queue,
            Some(from) => queue >= from.queue,
            None => true,
        }
    }

    /// True when the jobs of a lane match by kind and labels.
    pub fn has_lane(&self, kind: &Kind, labels: &Labels) -> bool {
        self.filter.kind.as_ref().is_none_or(|wanted| wanted == kind)
            && self.filter.label.as_ref().is_none_or(|label| labels.contains(label))
    }

    /// The states that are still to be visited in a queue.
    pub fn states(&self, queue: u64) -> Vec<State> {
        let from = self.from.as_ref().filter(|from| from.queue == queue);
        let ahead = |state: &State| match from {
            Some(from) if self.descending => *state <= from.state,
            Some(from) => *state >= from.state,
            None => true,
        };
        self.states.iter().copied().filter(ahead).collect()
    }

    /// The position behind which the scan goes on in a queue and state; `None` for the first.
    pub fn start(&self, queue: u64, state: State) -> Option<P> {
        let from = self.from.as_ref().filter(|from| from.queue == queue && from.state == state);
        from.and_then(|from| from.position.clone())
    }
}

/// What a cursor belongs to.
pub fn question(filter: &Filter, order: impl std::fmt::Debug) -> String {
    format!("{filter:?} {order:?}")
}

/// True when the custom id or the payload of a job contains a text.
pub fn spec_contains(spec: &JobSpec, text: &str) -> bool {
    let bytes = &spec.payload.bytes;
    spec.custom_id.as_ref().is_some_and(|id| id.as_str().contains(text))
        || bytes.len() <= SEARCHED_BYTES_MAX && bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The digits of a cursor with a position of three numbers.
    const DIGITS: usize = 2 * (HEAD + 24 + SUM);

    proptest! {
        #[test]
        fn a_cursor_comes_back_for_its_question_only(queue: u64, state in 0usize..6, position: Option<[i64; 3]>) {
            let cursor = Cursor { queue, state: State::ALL[state], position };
            let text = cursor.encode("question");
            prop_assert_eq!(Cursor::decode(&text, "question").unwrap(), cursor);
            prop_assert!(Cursor::<Position>::decode(&text, "another").is_err());
            prop_assert!(Cursor::<Bytes>::decode(&text, "question").is_err());
        }

        #[test]
        fn a_cursor_of_a_server_comes_back(position: Option<Vec<u8>>) {
            let cursor = Cursor { queue: 7, state: State::Ready, position: position.map(Bytes::from) };
            prop_assert_eq!(Cursor::decode(&cursor.encode("q"), "q").unwrap(), cursor);
        }

        #[test]
        fn one_changed_digit_is_noticed(at in 0..DIGITS, digit in "[0-9a-f]") {
            let text = Cursor { queue: 7, state: State::Ready, position: Some([1, -2, 3]) }.encode("q");
            let mut other = text.clone();
            other.replace_range(at..=at, &digit);
            prop_assert_eq!(Cursor::<Position>::decode(&other, "q").is_ok(), other == text);
        }

        #[test]
        fn no_text_panics(text in ".{0,100}") {
            prop_assert!(Cursor::<Position>::decode(&text, "q").is_err());
            prop_assert!(Cursor::<Bytes>::decode(&text, "q").is_err());
        }
    }
}
