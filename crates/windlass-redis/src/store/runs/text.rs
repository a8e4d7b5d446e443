//! How runs are written, and how they are read back. The layout is in `lua/lib/runs.lua`.

use crate::record::unescape;
use crate::reply::{maybe, maybe_time, number, odd, text, time};
use bytes::Bytes;
use windlass_core::Result;
use windlass_core::id::{RunId, Token};
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{JobEnd, Run, RunItem, RunState};
use windlass_core::time::Timestamp;

const STATES: [(RunState, &str); 4] =
    [(RunState::Running, "R"), (RunState::Succeeded, "S"), (RunState::Failed, "F"), (RunState::Cancelled, "C")];

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
        ] = parts[..]
        else {
            return Err(odd("the record of a run has too few words"));
        };
        if form != "1" {
            return Err(odd("the record of a run is of another version"));
        }
        let held: Option<Token> = token_of(token)?;
        token_of(last)?;
        let (first, next): (u64, u64) = (number(first)?, number(next)?);
        let (kind, engine) = (Kind::new(line()?)?, line()?);
        let run = Run {
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
            damaged: None,
        };
        let number = u64::from_str_radix(seq, 16).map_err(|_| odd("the number of a run is none"))?;
        Ok(Self { number, inbox_first: first, definition_hash: hash_of(hash)?, run })
    }
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

/// An item of an inbox; nothing for one that cannot be read.
pub(super) fn item(stored: &Bytes) -> Option<RunItem> {
    let (head, rest) = text(stored).ok()?.split_once('\n')?;
    let parts: Vec<&str> = head.split(' ').collect();
    match parts[..] {
        ["m", at] => Some(RunItem::Message { at: time(at).ok()?, body: rest.to_owned() }),
        ["j", job, state, attempt, claimed, at] => {
            let (error, outputs) = rest.split_once('\n')?;
            let state = if state == "-" { None } else { Some(crate::reply::state(state).ok()?) };
            Some(RunItem::JobEnded(JobEnd {
                job: job.parse().ok()?,
                state,
                attempt: number(attempt).ok()?,
                claimed_at: maybe::<i64>(claimed).ok()?.map(Timestamp::from_ms),
                at: time(at).ok()?,
                error: error.strip_prefix('+').map(unescape),
                outputs: if outputs.is_empty() { Default::default() } else { serde_json::from_str(outputs).ok()? },
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "2 x",
            &GOOD.replace("1 0000", "2 0000"),
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

    #[test]
    fn an_item_that_cannot_be_read_is_left_out() {
        let stored = |item: &str| Bytes::from(item.to_owned());
        assert!(item(&stored("m 17\nhello\nyou")).is_some());
        for bad in ["", "m", "m x\nhello", "j 0 S 1 - 5\n-\n", "k 17\n"] {
            assert_eq!(item(&stored(bad)), None, "{bad}");
        }
    }
}
