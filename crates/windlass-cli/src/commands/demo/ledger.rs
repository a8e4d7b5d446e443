//! Ledgers: what the workers say they did, outside the store. A line that was written outlives its writer, also one that
//! was killed; the demo cuts no power, so nothing is synced.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use windlass::core::id::{JobId, Token};
use windlass::core::job::State;

const EXTENSION: &str = "ledger";

/// One line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(super) enum Entry {
    /// A handler begins an attempt.
    Started { job: JobId, attempt: u32 },
    /// It has ended.
    Ended { job: JobId, attempt: u32, how: How },
    /// The store has taken the outcome of a lease.
    Accepted { job: JobId, token: Token, state: State, repeated: bool },
    /// The store wants nothing from this lease any more: somebody else has the job.
    Refused { job: JobId, token: Token },
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    Returned,
    Failed,
    /// It was dropped half-way: it took too long, lost its lease, or its worker went.
    Dropped,
}

/// The ledger of one process.
#[derive(Debug)]
pub(super) struct Ledger(File);

impl Ledger {
    pub(super) fn open(dir: &Path, name: &str) -> std::io::Result<Self> {
        let path = dir.join(name).with_extension(EXTENSION);
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// Appends in one write. A ledger that cannot be written makes the audit worthless: the process ends.
    pub(super) fn note(&self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let lines: String =
            entries.iter().filter_map(|entry| serde_json::to_string(entry).ok()).map(end_line).collect();
        if let Err(error) = (&self.0).write_all(lines.as_bytes()) {
            anstream::eprintln!("the ledger cannot be written: {error}");
            std::process::exit(1);
        }
    }
}

fn end_line(line: String) -> String {
    line + "\n"
}

/// Reads all ledgers of a directory.
pub(super) fn read_all(dir: &Path) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            entries.extend(parse(&std::fs::read(path)?)?);
        }
    }
    Ok(entries)
}

/// A process may be killed in the middle of its last line, which then says nothing.
fn parse(bytes: &[u8]) -> Result<Vec<Entry>, Failure> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            serde_json::from_slice(line).map_err(|error| Failure::failed(format!("a ledger is damaged: {error}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobId::from_parts(0, 7);
        let (first, second) = (Entry::Started { job, attempt: 1 }, Entry::Refused { job, token: Token::from_bits(1) });
        Ledger::open(dir.path(), "w1-1").unwrap().note(&[first]);
        Ledger::open(dir.path(), "w1-1").unwrap().note(&[second]);
        assert_eq!(read_all(dir.path()).unwrap(), [first, second]);
        let whole = std::fs::read(dir.path().join("w1-1.ledger")).unwrap();
        assert_eq!(parse(&whole[..whole.len() - 3]).unwrap(), [first]);
        assert!(parse(&[&whole[5..], &whole[..]].concat()).is_err());
    }
}
