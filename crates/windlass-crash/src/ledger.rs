//! Ledgers: what a process or a task says it did, outside the store, before it goes on.

use crate::Result;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Lease, State};

/// One line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// By how much the clock of this process is ahead of the store's.
    Clock {
        /// In milliseconds; negative when it is behind.
        ahead_ms: i64,
    },
    /// An enqueuer is about to enqueue this job.
    Intended {
        /// The job.
        job: JobId,
    },
    /// The store has acknowledged this job.
    Acknowledged {
        /// The job.
        job: JobId,
    },
    /// A handler did the work of this attempt.
    Executed {
        /// The job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Under which lease.
        token: Token,
    },
    /// The job was claimed once more by a claim that was sent after its completion had been acknowledged.
    Redelivered {
        /// The job.
        job: JobId,
    },
    /// The store has refused the outcome of this attempt: its lease was lost.
    Refused {
        /// The job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Under which lease.
        token: Token,
    },
    /// The store has accepted the outcome of this attempt.
    Accepted {
        /// The job.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Under which lease.
        token: Token,
        /// The state that it led to.
        state: State,
        /// The store said that it knew already.
        repeated: bool,
    },
}

impl Entry {
    /// The work of an attempt was done.
    pub fn executed(lease: Lease) -> Self {
        Self::Executed { job: lease.job, attempt: lease.attempt, token: lease.token }
    }
}

/// Entries that tasks of one process write down together.
pub type Book = Arc<Mutex<Vec<Entry>>>;

/// The ledger of one process or task.
#[derive(Debug)]
pub enum Ledger {
    /// Of a process that may be killed: synced.
    File(File),
    /// Of a task whose process lives on.
    Shared(Book),
}

impl Ledger {
    /// Where the ledger of `name` is kept.
    pub fn path(dir: &Path, name: &str) -> PathBuf {
        dir.join(format!("{name}.ledger"))
    }

    /// Opens it to append.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        Ok(Self::File(OpenOptions::new().create(true).append(true).open(Self::path(dir, name))?))
    }

    /// Appends entries in one write, and returns when the disk has them.
    pub fn note(&mut self, entries: &[Entry]) -> Result<()> {
        let file = match self {
            Self::File(file) => file,
            Self::Shared(book) => {
                book.lock().extend_from_slice(entries);
                return Ok(());
            }
        };
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        file.write_all(&lines)?;
        Ok(file.sync_data()?)
    }
}

/// Reads a ledger. A process may be killed in the middle of its last line, which then says nothing.
pub fn read_ledger(path: &Path) -> Result<Vec<Entry>> {
    let bytes = std::fs::read(path)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_slice(line)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobId::from_parts(0, 7);
        let mut ledger = Ledger::open(dir.path(), "a").unwrap();
        ledger.note(&[Entry::Intended { job }, Entry::Acknowledged { job }]).unwrap();
        let path = Ledger::path(dir.path(), "a");
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(read_ledger(&path).unwrap().len(), 2);
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        assert_eq!(read_ledger(&path).unwrap(), vec![Entry::Intended { job }]);
        std::fs::write(&path, [&whole[5..], &whole[..]].concat()).unwrap();
        assert!(read_ledger(&path).is_err());
    }
}
