//! How runs are written, and how they are read back. The layout is in `lua/lib/runs.lua`.

use crate::record::unescape;
use crate::reply::{maybe_time, number, odd, time};
use bytes::Bytes;
use std::collections::BTreeMap;
use windlass_core::Result;
use windlass_core::id::{RunId, Token};
use windlass_core::name::{Kind, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::store::{Run, RunLabel, RunState};

const STATES: [(RunState, &str); 6] = [
    (RunState::Running, "R"),
    (RunState::Succeeded, "S"),
    (RunState::Failed, "F"),
    (RunState::Cancelled, "C"),
    (RunState::TimedOut, "T"),
    (RunState::Terminated, "E"),
];

pub(in crate::store) fn state(letter: &str) -> Result<RunState> {
    let found = STATES.iter().find(|(_, known)| *known == letter);
    found.map(|(state, _)| *state).ok_or_else(|| odd(&format!("`{letter}` is no state of a run")))
}

pub(super) fn state_letter(state: RunState) -> &'static str {
    STATES.iter().find(|(known, _)| *known == state).map_or("R", |(_, letter)| letter)
}

/// The place of a run among all, in digits that sort.
pub(super) fn digits(number: u64) -> String {
    format!("{number:012x}")
}

/// A stored run.
pub(super) struct Record {
    /// The number of the run in the store.
    pub(super) number: u64,
    /// The number of the oldest item of its inbox.
    pub(super) inbox_first: u64,
    pub(super) definition_hash: [u8; 16],
    pub(super) run: Run,
}

impl Record {
    pub(super) fn read(id: RunId, stored: &Bytes) -> Result<Self> {
        // What people wrote is shown as far as it can be.
        let stored = String::from_utf8_lossy(stored);
        let mut lines = stored.split('\n');
        let mut line = || lines.next().ok_or_else(|| odd("the record of a run is too short"));
        let parts: Vec<&str> = line()?.split(' ').collect();
        let [
            form,
            seq,
            of,
            history,
            first,
            next,
            token,
            _expires,
            last,
            _ready,
            wake,
            created,
            changed,
            finished,
            _keep,
            hash,
            _,
            ref words @ ..,
        ] = parts[..]
        else {
            return Err(odd("the record of a run has too few words"));
        };
        if form != "1" && form != "2" {
            return Err(odd("the record of a run is of another version"));
        }
        let held: Option<Token> = token_of(token)?;
        token_of(last)?;
        let (first, next): (u64, u64) = (number(first)?, number(next)?);
        let (kind, engine) = (Kind::new(line()?)?, line()?);
        // The engine that holds the run, and behind a tab another one that made the last commit.
        let engine = engine.split_once('\t').map_or(engine, |(holder, _)| holder);
        let mut run = Run {
            id,
            kind,
            name: unescape(line()?),
            state: state(of)?,
            stuck: line()?.strip_prefix('+').map(unescape),
            summary: unescape(line()?),
            history_len: number(history)?,
            inbox_len: next.saturating_sub(first),
            engine: held.map(|_| WorkerId::new(engine)).transpose()?,
            wake_at: maybe_time(wake)?,
            created_at: time(created)?,
            changed_at: time(changed)?,
            finished_at: maybe_time(finished)?,
            parent: None,
            labels: Default::default(),
            segment_from: 0,
            stall_count: 0,
            unread_messages: 0,
            error: None,
            damaged: None,
        };
        let holes = read_words(&mut run, words)?;
        run.inbox_len = run.inbox_len.saturating_sub(holes);
        lines.try_for_each(|line| read_line(&mut run, line))?;
        let number = u64::from_str_radix(seq, 16).map_err(|_| odd("the number of a run is none"))?;
        Ok(Self { number, inbox_first: first, definition_hash: hash_of(hash)?, run })
    }
}

/// Reads the words that few runs have; how many numbers of the inbox have no item any more.
fn read_words(run: &mut Run, words: &[&str]) -> Result<u64> {
    let mut holes = 0;
    for word in words {
        let (letter, rest) = word.split_at_checked(1).ok_or_else(|| odd("a word of a run is empty"))?;
        match letter {
            "s" => run.segment_from = number(rest)?,
            "u" => run.unread_messages = number(rest)?,
            "l" => run.stall_count = number(rest)?,
            "h" => holes = number(rest)?,
            // What only scripts need.
            "n" | "j" => {}
            _ => return Err(odd("a word of a run is not known")),
        }
    }
    Ok(holes)
}

/// Reads a line that few runs have.
fn read_line(run: &mut Run, line: &str) -> Result<()> {
    match line.split_at_checked(1) {
        Some(("^", parent)) => run.parent = Some(parent.parse()?),
        // Labels that cannot be read must not keep the run from being worked.
        Some(("#", labels)) => run.labels = serde_json::from_str(labels).unwrap_or_default(),
        Some(("!", error)) => run.error = Some(unescape(error)),
        _ => return Err(odd("a line of a run is not known")),
    }
    Ok(())
}

/// Labels as a record has them.
pub(super) fn labels_text(labels: &BTreeMap<String, String>) -> Result<String> {
    serde_json::to_string(labels).map_err(|error| odd(&error.to_string()))
}

/// A label as it stands among the labels of a record.
pub(super) fn label_text(label: &RunLabel) -> Result<String> {
    let text = labels_text(&BTreeMap::from([(label.name.clone(), label.value.clone())]))?;
    Ok(text.trim_start_matches('{').strip_suffix('}').unwrap_or_default().to_owned())
}

/// The values that a run publishes; none when they cannot be read.
pub(super) fn published(stored: Option<&Bytes>) -> BTreeMap<String, Payload> {
    stored.and_then(|stored| serde_json::from_slice(stored).ok()).unwrap_or_default()
}

fn token_of(text: &str) -> Result<Option<Token>> {
    if text == "-" { Ok(None) } else { text.parse().map(Some) }
}

pub(super) fn hash_text(hash: [u8; 16]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_of(text: &str) -> Result<[u8; 16]> {
    let whole = u128::from_str_radix(text, 16).map_err(|_| odd("the hash of a definition is none"))?;
    Ok(whole.to_be_bytes())
}

/// A run from its record; one that cannot be read is shown as far as it can be.
pub(super) fn view(id: RunId, stored: Option<&Bytes>, broken: bool) -> Result<Run> {
    let why = match stored.map(|stored| Record::read(id, stored)) {
        Some(Ok(record)) if !broken => return Ok(record.run),
        Some(Ok(_)) => "its numbers contradict each other".to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "it is not there".to_owned(),
    };
    Run::unreadable(id, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::time::Timestamp;

    const GOOD: &str = "1 00000000000a R 3 1 4 0123456789abcdef 1700 - - 1800 1600 1650 - 1000 \
                        000102030405060708090a0b0c0d0e0f 0123456789abcdef\ngraph\nengine 1\na\\nb\n-\n1 of 2";

    fn id() -> RunId {
        RunId::from_parts(0, 7)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record::read(id(), &Bytes::from_static(GOOD.as_bytes())).unwrap();
        assert_eq!((record.number, record.inbox_first), (10, 1));
        assert_eq!(record.definition_hash, std::array::from_fn(|i| u8::try_from(i).unwrap()));
        assert_eq!(hash_text(record.definition_hash), "000102030405060708090a0b0c0d0e0f");
        let run = record.run;
        assert_eq!((run.name.as_str(), run.summary.as_str(), run.stuck), ("a\nb", "1 of 2", None));
        assert_eq!((run.history_len, run.inbox_len), (3, 3));
        assert_eq!(run.engine.unwrap().as_str(), "engine 1");
        assert_eq!((run.wake_at, run.finished_at), (Some(Timestamp::from_ms(1800)), None));
    }

    #[test]
    fn what_cannot_be_read_is_shown_as_damaged() {
        for bad in [
            "",
            "3 x",
            &GOOD.replace("1 0000", "3 0000"),
            &GOOD.replace(" R ", " X "),
            &GOOD.replace("graph", ""),
            &GOOD.replace("00a", "00x"),
        ] {
            let shown = view(id(), Some(&Bytes::copy_from_slice(bad.as_bytes())), false).unwrap();
            assert!(shown.damaged.is_some(), "{bad}");
        }
        assert!(view(id(), Some(&Bytes::from_static(GOOD.as_bytes())), true).unwrap().damaged.is_some());
        assert_eq!(view(id(), Some(&Bytes::from_static(GOOD.as_bytes())), false).unwrap().damaged, None);
    }
}
